package demo

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

func TestOneSimulatedEngineAnswersAloneUntilItIsStopped(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	out, in := io.Pipe()
	ended := make(chan int, 1)
	go func() { ended <- Run(ctx, []string{"-engine", "127.0.0.1:0"}, in, io.Discard) }()
	line := make([]byte, 200)
	n, err := out.Read(line)
	if err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(strings.TrimPrefix(string(line[:n]), "simulated engine on "), ",")
	resp, err := http.Post("http://"+address+"/v1/chat/completions", "application/json",
		strings.NewReader(`{"model":"sim","messages":[{"role":"user","content":"Hello, engine"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 200 || !strings.Contains(string(body), "prompt_tokens") {
		t.Errorf("it answered %d %s", resp.StatusCode, body)
	}
	stop()
	if status := <-ended; status != 0 {
		t.Errorf("stopped, it ended with status %d", status)
	}
}

func TestAnEngineAloneTakesNoTraffic(t *testing.T) {
	var said strings.Builder
	if status := Run(t.Context(), []string{"-engine", "127.0.0.1:0", "-sessions", "3"}, io.Discard, &said); status != 2 {
		t.Errorf("status %d", status)
	}
	if !strings.Contains(said.String(), "-sessions") {
		t.Errorf("it said %q", said.String())
	}
}

func TestAWrongAddressIsSaid(t *testing.T) {
	var said strings.Builder
	if status := Run(t.Context(), []string{"-engine", "no-port"}, io.Discard, &said); status != 1 || !strings.Contains(said.String(), "no-port") {
		t.Errorf("status %d, %q", status, said.String())
	}
}
