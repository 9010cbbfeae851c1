package engines

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const quick = 50 * time.Millisecond

func TestKindsCapacityAndModelsOfRealEnginesAreFound(t *testing.T) {
	v, s, own := newFake(t).vllm(t), newFake(t).sglang(t), newFake(t).plain()
	llama := newFake(t).plain().set("/props", 200, `{"default_generation_settings":{"n_ctx":32768},"total_slots":2,"build_info":"b1234"}`)
	w := watch(t, FleetOptions{}, Spec{Name: "v", URL: v.URL}, Spec{Name: "s", URL: s.URL + "/v1/"}, Spec{Name: "own", URL: own.URL, KVTokens: 7000}, Spec{Name: "llama", URL: llama.URL})
	for name, want := range map[string]struct {
		kind    Kind
		version string
		kv      int64
		length  int
	}{"v": {VLLM, "0.32.0", 524288, 32768}, "s": {SGLang, "0.5.23", 60000, 32768}, "own": {Custom, "", 7000, 32768}, "llama": {Custom, "llama.cpp b1234", 65536, 32768}} {
		w.untilState(name, Ready)
		e := w.ByName(name)
		f := e.Facts()
		if e.DetectedKind() != want.kind || f.Version != want.version || e.KVTokens() != want.kv || len(e.Models()) != 1 || e.Models()[0].MaxModelLen != want.length {
			t.Errorf("%s: %s %q, %d tokens, %+v", name, e.DetectedKind(), f.Version, e.KVTokens(), e.Models())
		}
		if !w.heardChange(name, StateChanged) || !w.heardChange(name, ModelsChanged) || !w.heardChange(name, KindChanged) {
			t.Errorf("%s: not announced", name)
		}
	}
}

func TestAVLLMWithoutMetricsIsKnownByItsVersionAndItsModels(t *testing.T) {
	f := newFake(t).set("/health", 200, "").set("/version", 200, `{"version":"1.2.3"}`).set("/v1/models", 200, `{"data":[{"id":"m","owned_by":"vllm"}]}`)
	w := watch(t, FleetOptions{}, Spec{Name: "v", URL: f.URL})
	w.untilState("v", Ready)
	if e := w.ByName("v"); e.DetectedKind() != VLLM || e.KVTokens() != 0 || e.Facts().Version != "1.2.3" {
		t.Errorf("%s %s with %d tokens", e.DetectedKind(), e.Facts().Version, e.KVTokens())
	}
}

// C160
func TestTheKeyIsSentOnProbesAndAWrongOneIsToldAsSuch(t *testing.T) {
	good, bad, open := newFake(t).plain(), newFake(t).plain(), newFake(t).set("/health", 200, "")
	for _, f := range []*fake{good, bad} {
		f.with(func() { f.key = "k1" })
	}
	open.set("/v1/models", 401, `{"error":"Unauthorized"}`) // as vLLM: the key guards /v1 alone
	w := watch(t, FleetOptions{}, Spec{Name: "good", URL: good.URL, APIKey: "k1"}, Spec{Name: "bad", URL: bad.URL, APIKey: "kk-secret-1"}, Spec{Name: "open", URL: open.URL})
	w.untilState("good", Ready)
	w.untilState("bad", Unauthorized)
	w.untilState("open", Unauthorized)
	if reason := w.ByName("bad").Reason(); !strings.HasPrefix(reason, "auth") || !strings.Contains(reason, "not accepted") {
		t.Errorf("reason %q", reason)
	}
	if reason := w.ByName("open").Reason(); !strings.Contains(reason, "api_key_env") {
		t.Errorf("reason %q", reason)
	}
	status, err := json.Marshal(w.Status())
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{w.log.String(), string(status), fmt.Sprintf("%v %+v %#v", w.ByName("bad"), w.ByName("bad").Spec, w.Engines())} { // C206
		if strings.Contains(text, "kk-secret-1") {
			t.Errorf("the key is in %.200q", text)
		}
	}
}

// C161, C162
func TestReadyNeedsHealthAndAListedModel(t *testing.T) {
	loading, empty, noHealth, neither := newFake(t).plain(), newFake(t).plain(), newFake(t), newFake(t).set("/v1/models", 404, "")
	loading.set("/health", 503, "")
	empty.set("/v1/models", 200, `{"object":"list","data":[]}`)
	noHealth.set("/v1/models", 200, listTiny)
	w := watch(t, FleetOptions{ProbeInterval: quick}, Spec{Name: "loading", URL: loading.URL}, Spec{Name: "empty", URL: empty.URL}, Spec{Name: "no-health", URL: noHealth.URL}, Spec{Name: "neither", URL: neither.URL})
	w.untilState("no-health", Ready)
	if err := w.Settled(context.Background()); err != nil {
		t.Fatal(err)
	}
	for name, reason := range map[string]string{"loading": "/health answers 503", "empty": "lists no model", "neither": "no /v1/models"} {
		if e := w.ByName(name); e.State() != Starting || !strings.Contains(e.Reason(), reason) {
			t.Errorf("%s is %s: %q", name, e.State(), e.Reason())
		}
	}
	loading.set("/health", 200, "")
	empty.set("/v1/models", 200, listTiny)
	w.untilState("loading", Ready)
	w.untilState("empty", Ready)
	loading.set("/health", 503, "") // C214: it says that it stops
	w.untilState("loading", Down)
	noHealth.set("/v1/models", 500, "")
	w.untilState("no-health", Down)
}

func TestAnEngineWithoutAListServesTheConfiguredModels(t *testing.T) {
	f := newFake(t).set("/health", 200, "")
	w := watch(t, FleetOptions{}, Spec{Name: "own", URL: f.URL, Models: []string{"mine", "too"}})
	if !w.KnownModel("mine") {
		t.Error("a configured model is known from the beginning")
	}
	w.untilState("own", Ready)
	if got := string(w.ModelsJSON()); got != `{"object":"list","data":[{"id":"mine","object":"model","created":0,"owned_by":"warmring"},{"id":"too","object":"model","created":0,"owned_by":"warmring"}]}` {
		t.Errorf("list %s", got)
	}
}

// C111
func TestARestartInPlaceIsFoundOut(t *testing.T) {
	metrics := func(start, work int) string {
		return fmt.Sprintf("process_start_time_seconds %d\nvllm:prompt_tokens_total{engine=\"0\"} %d\n", start, work)
	}
	loads := func(computed int) string {
		return fmt.Sprintf(`{"loads":[{"max_total_num_tokens":100,"total_prefill_uncached_tokens":%d}]}`, computed)
	}
	v, s, still := newFake(t).plain(), newFake(t).plain(), newFake(t).plain()
	v.set("/metrics", 200, metrics(1000, 50))
	s.set("/v1/loads", 200, loads(70))
	still.set("/metrics", 200, metrics(1000, 50))
	w := watch(t, FleetOptions{ProbeInterval: quick}, Spec{Name: "v", URL: v.URL, Kind: VLLM}, Spec{Name: "s", URL: s.URL, Kind: SGLang}, Spec{Name: "still", URL: still.URL, Kind: VLLM})
	for _, name := range []string{"v", "s", "still"} {
		w.untilState(name, Ready)
	}
	v.set("/metrics", 200, metrics(2000, 60))
	s.set("/v1/loads", 200, loads(5))
	w.until("v restarted", func() bool { return w.heardChange("v", Restarted) })
	w.until("s restarted", func() bool { return w.heardChange("s", Restarted) })
	// A connection that fails, and the same process behind it afterwards, is no restart.
	w.ByName("still").Report(time.Now(), Unreachable)
	w.untilState("still", Ready)
	if w.heardChange("still", Restarted) {
		t.Error("the same process counts as restarted")
	}
	if w.ByName("v").Status().Counts.Restarts != 1 {
		t.Errorf("counts %+v", w.ByName("v").Status().Counts)
	}
}

// C111: a quick restart hides from health probes; a connection that broke is a reason to look at once, but not all the time.
func TestABrokenConnectionIsAReasonToReadTheFactsAgain(t *testing.T) {
	f := newFake(t).plain().set("/metrics", 200, "process_start_time_seconds 1000\n")
	w := watch(t, FleetOptions{ProbeInterval: time.Minute}, Spec{Name: "a", URL: f.URL, Kind: VLLM})
	w.untilState("a", Ready)
	f.set("/metrics", 200, "process_start_time_seconds 2000\n")
	begin, asked := time.Now(), f.count("/metrics")
	w.ByName("a").Report(time.Now(), Broken)
	w.until("the restart is known", func() bool { return w.heardChange("a", Restarted) })
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("after %v", took)
	}
	w.until("two more seconds are over", func() bool {
		w.ByName("a").Report(time.Now(), Broken)
		w.ByName("a").Report(time.Now(), Answered)
		w.ByName("a").LookSoon()
		return time.Since(begin) > 3*time.Second
	})
	if more := f.count("/metrics") - asked; more > 4 {
		t.Errorf("read %d times in %v", more, time.Since(begin))
	}
}

// C111: where nothing identifies the process, one that was gone and came back has an empty cache.
func TestAnEngineThatWasGoneCountsAsRestarted(t *testing.T) {
	f := newFake(t).plain()
	address := f.Listener.Addr().String()
	w := watch(t, FleetOptions{ProbeInterval: quick}, Spec{Name: "own", URL: f.URL, Kind: Custom})
	w.untilState("own", Ready)
	f.Close()
	w.untilState("own", Down)
	if reason := w.ByName("own").Reason(); !strings.Contains(reason, "connect") {
		t.Errorf("reason %q", reason)
	}
	newFakeAt(t, address).plain()
	w.untilState("own", Ready)
	if !w.heardChange("own", Restarted) {
		t.Error("not announced as restarted")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, h := range w.heard {
		if h.what&Restarted != 0 && h.what&StateChanged == 0 {
			t.Error("its return and its empty cache must be told together: work could be sent in between")
		}
	}
}

// C081: requests tell sooner than probes.
func TestAConnectFailureOfARequestTakesAnEngineOutAtOnceAndAProbeBringsItBack(t *testing.T) {
	f := newFake(t).plain()
	w := watch(t, FleetOptions{ProbeInterval: time.Hour}, Spec{Name: "a", URL: f.URL})
	w.untilState("a", Ready)
	e := w.ByName("a")
	e.Report(time.Now(), Unreachable)
	if e.State() != Down || !w.heardChange("a", StateChanged) {
		t.Errorf("it is %s", e.State())
	}
	begin := time.Now()
	w.untilState("a", Ready)
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("back after %v, though a probe was due at once", took)
	}
}

// C165
func TestTheEndOfBusyIsAnnounced(t *testing.T) {
	f := newFake(t).plain()
	w := watch(t, FleetOptions{ProbeInterval: time.Hour}, Spec{Name: "a", URL: f.URL})
	w.untilState("a", Ready)
	w.ByName("a").ReportBusy(time.Now(), 0)
	if w.ByName("a").State() != Busy {
		t.Error("not busy")
	}
	w.until("Ready is announced", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		last := w.heard[len(w.heard)-1]
		return last.state == Ready && len(w.heard) >= 3
	})
}

func TestASilentHealthPageIsOutweighedByAnswers(t *testing.T) {
	f := newFake(t).plain()
	w := watch(t, FleetOptions{ProbeInterval: quick, ProbeTimeout: quick}, Spec{Name: "a", URL: f.URL})
	w.untilState("a", Ready)
	f.with(func() { f.hang = true })
	e, asked := w.ByName("a"), f.count("/health")
	w.until("six silent probes", func() bool {
		e.Report(time.Now(), Answered)
		if e.State() != Ready {
			t.Fatalf("it is %s: %s", e.State(), e.Reason())
		}
		return f.count("/health") >= asked+6
	})
	w.untilState("a", Down) // and now nothing answers any more
	if !strings.Contains(e.Reason(), "/health did not answer within 50ms") {
		t.Errorf("reason %q", e.Reason())
	}
}

// C170: 17 engines, some of them odd.
func TestTheListOfModelsIsTheUnionOfTheGoodOnes(t *testing.T) {
	var specs []Spec
	for i := range 12 {
		f := newFake(t).set("/health", 200, "").set("/v1/models", 200, fmt.Sprintf(`{"data":[{"id":"m","n":%d},{"id":"m%d","odd":[1, 2]}]}`, i, i%3))
		specs = append(specs, Spec{Name: fmt.Sprintf("e%02d", i), URL: f.URL})
	}
	specs = append(specs,
		Spec{Name: "gone-1", URL: "http://127.0.0.1:1"}, Spec{Name: "gone-2", URL: "http://127.0.0.1:2"},
		Spec{Name: "empty", URL: newFake(t).plain().set("/v1/models", 200, `{"data":[]}`).URL},
		Spec{Name: "html", URL: newFake(t).plain().set("/v1/models", 200, "<html></html>").URL},
		Spec{Name: "short", URL: newFake(t).plain().set("/v1/models", 200, `{"data":[{"id":"short"}]}`).URL})
	w := watch(t, FleetOptions{Aliases: map[string]string{"small": "m", "lost": "nobody's"}}, specs...)
	if string(w.ModelsJSON()) != `{"object":"list","data":[]}` {
		t.Errorf("before anything is known: %s", w.ModelsJSON())
	}
	w.until("all are known", func() bool { return len(w.ModelNames()) == 5 && len(w.Serving("m")) == 12 })
	want := `{"object":"list","data":[{"id":"m","n":0},{"id":"m0","odd":[1,2]},{"id":"m1","odd":[1,2]},{"id":"m2","odd":[1,2]},{"id":"short"},` +
		`{"id":"small","object":"model","created":0,"owned_by":"warmring","root":"m"}]}`
	w.until("the list is "+want, func() bool { return string(w.ModelsJSON()) == want })
	if !w.KnownModel("m1") || w.KnownModel("zz") || w.KnownModel("small") || len(w.Serving("m1")) != 4 {
		t.Error("who serves what is wrong")
	}
	if card, ok := w.ModelJSON("short"); !ok || string(card) != `{"id":"short"}` {
		t.Errorf("card %s", card)
	}
	w.until("the odd ones have been asked", func() bool { return w.ByName("html").Reason() != "not probed yet" })
	if e := w.ByName("html"); e.State() != Starting || !strings.Contains(e.Reason(), "web page") {
		t.Errorf("html is %s: %s", e.State(), e.Reason())
	}
}

// C171: an adapter that was loaded at run time is found when somebody asks for it, once a second at most.
func TestAnUnknownModelHasTheListsReadOnceMore(t *testing.T) {
	f, other := newFake(t).plain(), newFake(t).plain()
	clock := &testClock{now: time.Now()}
	w := watch(t, FleetOptions{ProbeInterval: time.Hour, Now: clock.Now}, Spec{Name: "a", URL: f.URL}, Spec{Name: "b", URL: other.URL})
	w.untilState("a", Ready)
	w.untilState("b", Ready)
	f.set("/v1/models", 200, `{"data":[{"id":"tiny"},{"id":"ad-3","parent":"tiny"}]}`)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	w.RefreshModels(ctx) // the list is younger than a second: nothing is asked
	if f.count("/v1/models") != 1 {
		t.Errorf("asked %d times", f.count("/v1/models"))
	}
	clock.advance(2 * time.Second)
	w.RefreshModels(ctx)
	if ctx.Err() != nil {
		t.Fatal("nobody answered")
	}
	w.until("ad-3 is known", func() bool { return w.KnownModel("ad-3") })
	if s := w.Serving("ad-3"); len(s) != 1 || s[0].Name != "a" {
		t.Errorf("served by %v", s)
	}
	if asked := f.count("/v1/models"); asked != 2 {
		t.Errorf("asked %d times", asked)
	}
}

// C092
func TestProbingCostsAnEngineAtMostTwoRequestsASecond(t *testing.T) {
	f := newFake(t).vllm(t)
	w := watch(t, FleetOptions{}, Spec{Name: "v", URL: f.URL})
	w.untilState("v", Ready)
	before, begin := f.count(""), time.Now()
	for range 100 { // a storm of broken connections must not become a storm of probes
		w.ByName("v").Report(time.Now(), Broken)
		w.ByName("v").Report(time.Now(), Answered)
		w.ByName("v").RefreshModels()
	}
	w.until("two seconds are over", func() bool { return time.Since(begin) > 2*time.Second })
	if asked := f.count("") - before; asked > 5 {
		t.Errorf("%d requests in %v", asked, time.Since(begin))
	}
}

func TestDrainTakesNoNewSessionsAndCanBeUndone(t *testing.T) {
	f := newFake(t).plain()
	w := watch(t, FleetOptions{}, Spec{Name: "a", URL: f.URL})
	w.untilState("a", Ready)
	if err := w.Drain("a"); err != nil || w.ByName("a").State() != Draining || !w.Status()[0].Drained {
		t.Errorf("%v, %s", err, w.ByName("a").State())
	}
	if err := w.Undrain("a"); err != nil || w.ByName("a").State() != Ready {
		t.Errorf("%v, %s", err, w.ByName("a").State())
	}
	if w.Drain("zz") == nil {
		t.Error("an unknown engine was drained")
	}
}

func TestEnginesOnIPv6AreReached(t *testing.T) {
	listener, err := net.Listen("tcp6", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	newFakeAt(t, address).plain()
	w := watch(t, FleetOptions{}, Spec{URL: "http://" + address})
	w.untilState(address, Ready)
	conn, err := w.ByName(address).Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestCertificatesAreCheckedAsConfigured(t *testing.T) {
	f := &fake{pages: map[string]answer{}, asked: map[string]int{}}
	f.plain()
	f.Server = httptest.NewUnstartedServer(f)
	f.Config.ErrorLog = log.New(io.Discard, "", 0) // the refused handshake is the point
	f.StartTLS()
	t.Cleanup(f.Close)
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: f.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	w := watch(t, FleetOptions{}, Spec{Name: "strict", URL: f.URL}, Spec{Name: "ca", URL: f.URL, CAFile: file}, Spec{Name: "any", URL: f.URL, InsecureSkipVerify: true})
	w.untilState("ca", Ready)
	w.untilState("any", Ready)
	w.untilState("strict", Down)
	if !strings.Contains(w.ByName("strict").Reason(), "certificate is not trusted") {
		t.Errorf("reason %q", w.ByName("strict").Reason())
	}
	conn, err := w.ByName("ca").Dial(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if _, err := w.ByName("strict").Dial(context.Background()); err == nil {
		t.Error("an untrusted certificate was accepted")
	}
	if _, err := NewFleet([]Spec{{URL: "https://h", CAFile: file + "x"}}, FleetOptions{}); err == nil {
		t.Error("a CA file that is not there was accepted")
	}
}

func TestFleetsThatCannotWorkAreRefused(t *testing.T) {
	for _, specs := range [][]Spec{nil, {{URL: "h"}}, {{URL: "http://h"}, {URL: "http://h/v1"}}, {{URL: "http://h", Kind: "vlm"}}, {{URL: "http://h", Weight: -1}}} {
		if _, err := NewFleet(specs, FleetOptions{}); err == nil {
			t.Errorf("%v was accepted", specs)
		}
	}
}

func BenchmarkReportAnswered(b *testing.B) {
	f, err := NewFleet([]Spec{{URL: "http://h"}}, FleetOptions{})
	if err != nil {
		b.Fatal(err)
	}
	e := f.Engines()[0]
	e.mu.Lock()
	e.health.probed(time.Now(), verdict{kind: probeReady})
	e.settle(time.Now())
	e.mu.Unlock()
	now := time.Now()
	b.ReportAllocs()
	for b.Loop() {
		e.Report(now, Answered)
	}
}
