package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// streams opens many streams that fall silent after their first event, looks at what they cost, and lets them end.
func (b *bench) streamsScenario() error {
	t := table{title: fmt.Sprintf("%d streams at once, idle after their first event: what each costs beyond an idle proxy", b.streams)}
	t.row("peer", "body", "open s", "RSS KB", "heap KB", "stack KB", "peak MB", "idle CPU %", "complete")
	for _, p := range b.peers {
		if p.name != "nginx" && p.name != "envoy" && !strings.HasPrefix(p.name, "warmring") && !b.named {
			continue
		}
		for _, body := range []string{"2 KB", "220 KB"} {
			if err := b.streamsRun(&t, p, body); err != nil {
				fmt.Fprintf(os.Stderr, "bench: streams: %s: %v\n", p.name, err)
			}
		}
	}
	t.write(b.report.out)
	return nil
}

const openers = 64 // that open streams at the same time

func (b *bench) streamsRun(t *table, p peer, body string) error {
	s, err := b.stage("streams-" + p.name + "-" + strings.ReplaceAll(body, " ", ""))
	if err != nil {
		return err
	}
	s.cores = cores{} // this one is about memory: it may use all cores
	defer s.close()
	if err := s.startFakes(2); err != nil {
		return err
	}
	u, err := s.startPeer(p)
	if err != nil {
		return err
	}
	warm := load{address: u.address, body: body, stream: true, headers: true, conns: openers, total: 500, limit: 10 * time.Second}
	warm.run(&b.sets)
	time.Sleep(time.Second)
	idle, idleGo := usageOf(u.pid()), goMemory(u.extra)
	forgetPeak(u.pid())

	s.tell("set?park=1&events=5")
	began := time.Now()
	open, firstErr := openStreams(u.address, b.sets.get(body, true), b.streams)
	took := time.Since(began)
	time.Sleep(time.Second)
	quiet := usageOf(u.pid())
	time.Sleep(3 * time.Second)
	full, fullGo := usageOf(u.pid()), goMemory(u.extra)
	if b.profiles != "" {
		b.saveProfile(u, "streams-"+strings.ReplaceAll(body, " ", ""))
	}
	s.tell("set?park=0")
	s.tell("release")
	complete, endErr := endStreams(open)

	each := func(before, after int64) string {
		if before == 0 && after == 0 {
			return "–"
		}
		return fmt.Sprintf("%.1f", float64(after-before)/1024/float64(max(1, len(open))))
	}
	idleCPU := (full.cpu - quiet.cpu) / 3 * 100
	t.row(p.name, body, fmt.Sprintf("%.1f", took.Seconds()), each(idle.rss, full.rss), each(idleGo.heap, fullGo.heap), each(idleGo.stack, fullGo.stack),
		fmt.Sprintf("%.0f", float64(full.peak)/1e6), fmt.Sprintf("%.1f", idleCPU), fmt.Sprintf("%d of %d", complete, b.streams))
	b.report.line(map[string]any{"scenario": "streams", "peer": p.name, "body": body, "streams": b.streams, "open_seconds": took.Seconds(), "rss_before": idle.rss, "rss_after": full.rss,
		"heap_before": idleGo.heap, "heap_after": fullGo.heap, "stack_before": idleGo.stack, "stack_after": fullGo.stack, "peak": full.peak, "idle_cpu_percent": idleCPU, "complete": complete})
	if err := errors.Join(firstErr, endErr); err != nil {
		return err
	}
	return nil
}

// openStreams opens n streams and reads each up to its first event.
func openStreams(address string, set *talkSet, n int) (open []*caller, firstErr error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range openers {
		wg.Go(func() {
			for i := w; i < n; i += openers {
				c, err := openStream(address, set, i)
				mu.Lock()
				if err == nil {
					open = append(open, c)
				} else if firstErr == nil {
					firstErr = fmt.Errorf("opening: %w", err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return open, firstErr
}

func openStream(address string, set *talkSet, i int) (*caller, error) {
	c, err := call(address)
	if err != nil {
		return nil, err
	}
	_ = c.SetDeadline(time.Now().Add(answerLimit))
	talk := &set.talks[i%len(set.talks)]
	text := talk.text[:talk.ends[i/len(set.talks)%turns]]
	for _, part := range [][]byte{requestHead(nil, address, talk.id, true, len(text)+len(set.tail)), text, set.tail} {
		if _, err = c.Write(part); err != nil {
			break
		}
	}
	var status int
	if err == nil {
		status, err = c.readHead()
	}
	var first []byte
	for err == nil && status == 200 && !bytes.Contains(first, []byte("\n\n")) {
		var p []byte
		p, err = c.readPiece()
		first = append(first, p...)
	}
	if err == nil && status != 200 {
		err = fmt.Errorf("status %d", status)
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// endStreams reads all streams to their ends and counts those that ended as they should.
func endStreams(open []*caller) (complete int, firstErr error) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range openers {
		wg.Go(func() {
			for i := w; i < len(open); i += openers {
				err := endStream(open[i])
				mu.Lock()
				if err == nil {
					complete++
				} else if firstErr == nil {
					firstErr = fmt.Errorf("ending: %w", err)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return complete, firstErr
}

func endStream(c *caller) error {
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(answerLimit))
	var a answered
	for {
		p, err := c.readPiece()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		a.see(p)
	}
	if !a.done {
		return errors.New("no [DONE] before the end")
	}
	return nil
}

// goMemory is what a Go program says of its memory after a collection: live heap and stacks. Zero for others.
type memory struct{ heap, stack int64 }

func goMemory(admin string) (m memory) {
	for range 2 { // what a finalizer or a pool holds goes with the second one
		if _, err := get(admin + "/debug/pprof/heap?gc=1"); err != nil {
			return m
		}
	}
	page, _ := get(admin + "/metrics")
	for line := range strings.Lines(string(page)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, _ := strconv.ParseFloat(value, 64)
		switch name {
		case "go_memstats_heap_alloc_bytes":
			m.heap = int64(n)
		case "go_memstats_stack_inuse_bytes":
			m.stack = int64(n)
		}
	}
	return m
}
