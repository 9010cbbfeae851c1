package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/warmring/warmring/e2e/workload"
	"github.com/warmring/warmring/proxy/wire"
)

// play sends a workload along a route, each session from its own goroutine, and counts in score. It returns when all
// have ended. A failed request is counted and its session goes on, as an agent would; errors are the end of ctx and a
// workload that does not come to its end.
func play(ctx context.Context, w *workload.Workload, r route, s *score, v *view) error {
	ctx, cancel := context.WithTimeoutCause(ctx, playLimit, fmt.Errorf("not at its end after %v", playLimit))
	defer cancel()
	// More than a session's pause, less than the engines' own limit for idle connections.
	transport := &http.Transport{MaxIdleConnsPerHost: len(w.Sessions), IdleConnTimeout: 3 * time.Second, DisableCompression: true}
	defer transport.CloseIdleConnections()
	p := &player{route: r, score: s, client: &http.Client{Transport: transport}, progress: make([]progress, len(w.Sessions))}
	for i, session := range w.Sessions {
		p.progress[i].turns = make([]chan struct{}, len(session.Turns))
		for n := range session.Turns {
			p.progress[i].turns[n] = make(chan struct{})
		}
	}
	s.begin(w)
	stop := v.watch(s)
	defer stop()
	var all sync.WaitGroup
	for _, session := range w.Sessions {
		all.Go(func() { p.live(ctx, session) })
	}
	all.Wait()
	s.freeze()
	return context.Cause(ctx)
}

// playLimit is several times what the largest workload takes.
const playLimit = 5 * time.Minute

type player struct {
	route    route
	client   *http.Client
	score    *score
	progress []progress // by the session's number
}

// progress lets sessions wait for turns of others: each turn's channel is closed at its end.
type progress struct{ turns []chan struct{} }

func (p *progress) end() <-chan struct{} { return p.turns[len(p.turns)-1] }

// live is the life of one session.
func (p *player) live(ctx context.Context, session *workload.Session) {
	own := &p.progress[session.Number]
	if parent := session.Parent; parent != nil && !await(ctx, p.progress[parent.Number].turns[session.From]) {
		return
	}
	if !pause(ctx, session.Begin) {
		return
	}
	p.score.enter(session)
	defer p.score.leave(session)
	for n, turn := range session.Turns {
		for _, child := range turn.Waits {
			if !await(ctx, p.progress[child.Number].end()) {
				return
			}
		}
		if !pause(ctx, turn.Pause) {
			return
		}
		p.score.sent()
		did := p.ask(ctx, session, n)
		for did.err != nil && ctx.Err() == nil && p.route.again != nil && p.route.again() && pause(ctx, 20*time.Millisecond) {
			did = p.ask(ctx, session, n)
		}
		if ctx.Err() != nil {
			return
		}
		p.score.answered(session, n, did)
		close(own.turns[n])
	}
}

func await(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// answered is what one request came to.
type answered struct {
	engine int           // which engine answered; -1 unknown
	ttft   time.Duration // until the first token
	err    error
}

// ask sends one turn and reads its stream to the end.
func (p *player) ask(ctx context.Context, session *workload.Session, n int) answered {
	turn := session.Request(n)
	url, engine := p.route.next()
	did := answered{engine: engine}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+turn.Path, bytes.NewReader(turn.Body))
	if err != nil {
		did.err = err
		return did
	}
	req.Header = turn.Header
	start := time.Now()
	resp, err := p.client.Do(req)
	if err != nil {
		did.err = err
		return did
	}
	defer resp.Body.Close()
	if did.engine < 0 {
		did.engine = p.route.engine(resp.Header.Get("X-Warmring-Engine"))
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 500))
		did.err = fmt.Errorf("status %d: %s", resp.StatusCode, bytes.TrimSpace(body))
		return did
	}
	var stream wire.Sniffer
	stream.Reset(turn.Family)
	buffer := make([]byte, 16<<10)
	for {
		k, err := resp.Body.Read(buffer)
		_, _ = stream.Write(buffer[:k]) // never fails
		if did.ttft == 0 && stream.Committed() {
			did.ttft = time.Since(start)
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			did.err = fmt.Errorf("the stream broke: %w", err)
			return did
		}
	}
	failure, failed := stream.Failure()
	switch {
	case failed:
		did.err = fmt.Errorf("an error in the stream: status %d, %s", failure.Status, failure.Message)
	case !stream.Committed(), !stream.Finished():
		did.err = errors.New("the stream ended before its end")
	}
	return did
}
