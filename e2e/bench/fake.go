package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"hash/maphash"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// engineMark stands before a fake's number in its answers: they tell the client who has answered, through any proxy.
const engineMark = `chatcmpl-e`

// fake is an engine that does nothing but answer: raw HTTP/1.1, about 10 µs of CPU for a request, so that what is
// measured is the proxy. It looks like a vLLM to those who ask. GET /ctl/set?knob=value turns its knobs, and
// GET /ctl/release lets parked streams end.
type fake struct {
	number int
	knobs  map[string]*atomic.Int64
	hold   *atomic.Int64 // ms before an answer begins
	pace   *atomic.Int64 // ms between the events of a stream
	events *atomic.Int64 // of a stream
	park   *atomic.Int64 // 1: streams stop after their first event until released
	cache  *atomic.Int64 // 1: cached_tokens is what a prefix cache would have found; 0: nearly everything
	served atomic.Int64

	mu       sync.Mutex
	released chan struct{}
	known    map[uint64]struct{} // prefixes of bodies seen, for cache
	seed     maphash.Seed
	bodies   sync.Pool // so that parked streams hold no prompt
}

const (
	fakeKVTokens  = 6_000_000
	maxKnown      = 1 << 20 // prefixes
	knownStride   = 2048    // bytes
	bytesPerToken = 4
)

// runFake is the program of one fake engine.
func runFake(args []string) int {
	fs := flag.NewFlagSet("fake", flag.ExitOnError)
	listen := fs.String("listen", "127.0.0.1:9001", "`address`")
	number := fs.Int("number", 0, "which engine this is")
	_ = fs.Parse(args)
	runtime.GOMAXPROCS(1)
	f := newFake(*number)
	ln, err := f.listen(*listen)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	f.accept(ln)
	return 0
}

func newFake(number int) *fake {
	f := &fake{number: number, released: make(chan struct{}), known: make(map[uint64]struct{}), seed: maphash.MakeSeed()}
	f.hold, f.pace, f.events, f.park, f.cache = new(atomic.Int64), new(atomic.Int64), new(atomic.Int64), new(atomic.Int64), new(atomic.Int64)
	f.knobs = map[string]*atomic.Int64{"hold": f.hold, "pace": f.pace, "events": f.events, "park": f.park, "cache": f.cache}
	f.events.Store(20)
	f.bodies.New = func() any { return new([]byte) }
	return f
}

func (f *fake) listen(address string) (net.Listener, error) { return net.Listen("tcp", address) }

// accept serves connections until the listener is closed.
func (f *fake) accept(ln net.Listener) {
	for {
		c, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			time.Sleep(5 * time.Millisecond) // out of descriptors for a moment
			continue
		}
		go f.serve(c)
	}
}

// release lets parked streams end.
func (f *fake) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	close(f.released)
	f.released = make(chan struct{})
}

func (f *fake) serve(c net.Conn) {
	defer c.Close()
	in := bufio.NewReaderSize(c, 4<<10)
	for {
		target, length, err := readRequest(in)
		if err != nil {
			return
		}
		path, query, _ := strings.Cut(target, "?")
		generates := strings.HasSuffix(path, "/completions")
		body := f.bodies.Get().(*[]byte)
		if *body, err = readBody(in, length, *body); err != nil {
			return
		}
		size, stream, cached := len(*body), false, 0
		if generates {
			stream = wantsStream(*body)
			cached = f.cached(*body)
		}
		f.bodies.Put(body)
		if generates {
			err = f.generate(c, size, cached, stream)
		} else {
			err = f.page(c, path, query)
		}
		if err != nil {
			return
		}
	}
}

// readRequest gives the target and the body's length, -1 for a chunked one.
func readRequest(in *bufio.Reader) (target string, length int, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return "", 0, err
	}
	parts := bytes.SplitN(line, []byte(" "), 3)
	if len(parts) < 3 {
		return "", 0, fmt.Errorf("request line %q", line)
	}
	target = string(parts[1])
	for {
		if line, err = in.ReadSlice('\n'); err != nil {
			return "", 0, err
		}
		name, value, found := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(":"))
		if !found {
			return target, length, nil
		}
		switch len(name) {
		case len("content-length"):
			if bytes.EqualFold(name, []byte("content-length")) {
				length, err = strconv.Atoi(string(bytes.TrimSpace(value)))
				if err != nil {
					return "", 0, err
				}
			}
		case len("transfer-encoding"):
			if bytes.EqualFold(name, []byte("transfer-encoding")) {
				length = -1
			}
		}
	}
}

func readBody(in *bufio.Reader, length int, buf []byte) ([]byte, error) {
	if length >= 0 {
		if cap(buf) < length {
			buf = make([]byte, length+length/4)
		}
		buf = buf[:length]
		_, err := io.ReadFull(in, buf)
		return buf, err
	}
	buf = buf[:0]
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return buf, err
		}
		n, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return buf, err
		}
		at := len(buf)
		if need := at + int(n) + 2; cap(buf) < need {
			buf = append(make([]byte, 0, 2*need), buf...)
		}
		if _, err := io.ReadFull(in, buf[at:at+int(n)+2]); err != nil {
			return buf, err
		}
		buf = buf[:at+int(n)]
		if n == 0 {
			return buf, nil
		}
	}
}

// wantsStream looks where the bench's own bodies have the field, then everywhere: some proxies write bodies anew.
func wantsStream(body []byte) bool {
	mark := []byte(`"stream":`)
	i := bytes.LastIndex(body[max(0, len(body)-200):], mark)
	if i >= 0 {
		i += max(0, len(body)-200)
	} else if i = bytes.Index(body, mark); i < 0 {
		return false
	}
	return bytes.HasPrefix(bytes.TrimLeft(body[i+len(mark):], " "), []byte("true"))
}

// cached is how many tokens of the body's beginning are known from before.
func (f *fake) cached(body []byte) int {
	if f.cache.Load() == 0 {
		return len(body) / bytesPerToken * 95 / 100
	}
	var h maphash.Hash
	h.SetSeed(f.seed)
	f.mu.Lock()
	defer f.mu.Unlock()
	found := 0
	for end := knownStride; end <= len(body); end += knownStride {
		_, _ = h.Write(body[end-knownStride : end])
		key := h.Sum64()
		if _, ok := f.known[key]; ok {
			found = end
		} else if len(f.known) < maxKnown {
			f.known[key] = struct{}{}
		}
	}
	return found / bytesPerToken
}

func (f *fake) generate(c net.Conn, size, cached int, stream bool) error {
	began := time.Now()
	if hold := f.hold.Load(); hold > 0 {
		time.Sleep(time.Duration(hold) * time.Millisecond)
	}
	id := engineMark + strconv.Itoa(f.number) + "-" + strconv.FormatInt(f.served.Add(1), 10)
	prompt := size / bytesPerToken
	usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":20,"total_tokens":%d,"prompt_tokens_details":{"cached_tokens":%d}}`, prompt, prompt+20, cached)
	if !stream {
		return plain(c, "application/json", `{"id":"`+id+`","object":"chat.completion","created":1700000000,"model":"tiny","choices":[{"index":0,"message":{"role":"assistant","content":"Done. The test passes now."},"finish_reason":"stop","logprobs":null}],`+usage+`}`)
	}
	if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\nTransfer-Encoding: chunked\r\n\r\n"); err != nil {
		return err
	}
	pace := time.Duration(f.pace.Load()) * time.Millisecond
	for i, n := 0, int(f.events.Load()); i < n; i++ {
		if i > 0 && pace > 0 {
			time.Sleep(time.Until(began.Add(time.Duration(i) * pace)))
		}
		if i == 1 && f.park.Load() != 0 {
			f.mu.Lock()
			released := f.released
			f.mu.Unlock()
			<-released
		}
		event := `data: {"id":"` + id + `","object":"chat.completion.chunk","created":1700000000,"model":"tiny","choices":[{"index":0,"delta":{"content":" token` + strconv.Itoa(i) + `"},"logprobs":null,"finish_reason":null}]}` + "\n\n"
		if i == n-1 {
			event = `data: {"id":"` + id + `","object":"chat.completion.chunk","created":1700000000,"model":"tiny","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],` + usage + `}` + "\n\n"
		}
		if _, err := fmt.Fprintf(c, "%x\r\n%s\r\n", len(event), event); err != nil {
			return err
		}
	}
	_, err := io.WriteString(c, "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")
	return err
}

// page answers what is not generation: the pages that proxies ask to find out what they talk to, and the knobs.
func (f *fake) page(c net.Conn, path, query string) error {
	switch path {
	case "/v1/models":
		return plain(c, "application/json", `{"object":"list","data":[{"id":"tiny","object":"model","created":1700000000,"owned_by":"vllm","root":"tiny","parent":null,"max_model_len":1000000}]}`)
	case "/metrics":
		return plain(c, "text/plain; version=0.0.4", fmt.Sprintf("# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"16\",engine=\"0\",num_gpu_blocks=\"%d\"} 1.0\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"tiny\"} 0.0\n# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{engine=\"0\",model_name=\"tiny\"} 0.0\n", fakeKVTokens/16))
	case "/version":
		return plain(c, "application/json", `{"version":"0.20.0"}`)
	case "/get_model_info", "/model_info":
		return plain(c, "application/json", `{"model_path":"tiny","tokenizer_path":"tiny","is_generation":true,"preferred_sampling_params":null}`)
	case "/server_info", "/get_server_info":
		return plain(c, "application/json", `{"model_path":"tiny","served_model_name":"tiny","tp_size":1,"dp_size":1,"max_total_num_tokens":1000000,"version":"0.5.0"}`)
	case "/ctl/release":
		f.release()
	case "/ctl/set":
		for _, pair := range strings.Split(query, "&") {
			name, value, _ := strings.Cut(pair, "=")
			if knob := f.knobs[name]; knob != nil {
				n, _ := strconv.ParseInt(value, 10, 64)
				knob.Store(n)
			}
		}
	}
	return plain(c, "text/plain", "ok\n")
}

func plain(c net.Conn, contentType, body string) error {
	_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", contentType, len(body), body)
	return err
}
