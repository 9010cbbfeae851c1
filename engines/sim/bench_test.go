package sim

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// agentBody is a conversation of 160 messages and about 400 KB.
func agentBody() []byte {
	var b strings.Builder
	b.WriteString(`{"model":"sim","stream":true,"messages":[{"role":"system","content":"You are an agent."}`)
	for i := 0; i < 160; i++ {
		role := [...]string{"user", "assistant"}[i%2]
		fmt.Fprintf(&b, `,{"role":%q,"content":[{"type":"text","text":%q}]}`, role, strings.Repeat(fmt.Sprintf("line %d of \"it\"\n", i), 155))
	}
	b.WriteString(`]}`)
	return []byte(b.String())
}

func BenchmarkParseAndRender(b *testing.B) {
	body := agentBody()
	b.SetBytes(int64(len(body)))
	buf := make([]byte, 0, len(body))
	for b.Loop() {
		if _, err := parseCall(chat, body, buf, true, nil); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkHashRendered(b *testing.B) {
	c, err := parseCall(chat, agentBody(), nil, true, nil)
	if err != nil {
		b.Fatal(err)
	}
	text := c.inputs[0].rendered
	for _, block := range []int{1, 16} {
		b.Run(fmt.Sprintf("block=%d", block), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				HashRendered(1, block, text)
			}
		})
	}
}

// BenchmarkStep is a step of 32 decoding requests of 10,000 tokens each.
func BenchmarkStep(b *testing.B) {
	for _, mode := range []Mode{VLLM, SGLang} {
		b.Run(mode.String(), func(b *testing.B) {
			c := NewCore(Options{Mode: mode, KVTokens: 100_000_000, MaxModelLen: 50_000_000, MaxBatchedTokens: 16384})
			now := int64(0)
			for i := 0; i < 32; i++ {
				p := HashTokens(uint64(i), c.opt.BlockTokens, words(i, 10_000))
				if err := c.Submit(Request{ID: fmt.Sprint(i), Prompt: p, MaxTokens: 40_000_000}); err != nil {
					b.Fatal(err)
				}
			}
			for c.Stats().Decoded < 64 {
				d, _ := c.Step(now)
				now += int64(d)
			}
			for b.Loop() {
				d, _ := c.Step(now)
				now += int64(d)
			}
		})
	}
}

// BenchmarkTurn is a whole warm turn of a session: 100,000 tokens known, 500 new, 300 answered.
func BenchmarkTurn(b *testing.B) {
	for _, mode := range []Mode{VLLM, SGLang} {
		b.Run(mode.String(), func(b *testing.B) {
			c := NewCore(Options{Mode: mode, KVTokens: 1_000_000})
			base := words(1, 100_000)
			now, n := int64(0), 0
			run := func(p Prompt, output int) {
				n++
				if err := c.Submit(Request{ID: fmt.Sprint(n), Prompt: p, MaxTokens: output}); err != nil {
					b.Fatal(err)
				}
				for c.Live() > 0 {
					d, _ := c.Step(now)
					now += int64(d)
				}
			}
			run(HashTokens(0, c.opt.BlockTokens, base), 1)
			turn := HashTokens(0, c.opt.BlockTokens, append(base, words(2, 500)...))
			for b.Loop() {
				run(turn, 300)
			}
		})
	}
}

// BenchmarkServer is a 480 KB turn over HTTP, answered with 16 tokens by an engine that takes no time.
func BenchmarkServer(b *testing.B) {
	s, err := Start(ServerOptions{Options: Options{Cost: Cost{Base: 1e-9}}})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	body := agentBody()
	client := &http.Client{}
	defer client.CloseIdleConnections()
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		res, err := client.Post(s.URL()+"/v1/chat/completions", "application/json", bytes.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		io.Copy(io.Discard, res.Body)
		res.Body.Close()
		if res.StatusCode != http.StatusOK {
			b.Fatal(res.Status)
		}
	}
}
