package engines

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// loaded is an engine with a metrics page.
func loaded(t *testing.T, start, work int) *fake {
	return newFake(t).plain().set("/metrics", 200, metricsPage(start, work))
}

func metricsPage(start, work int) string {
	return fmt.Sprintf("process_start_time_seconds %d\nvllm:prompt_tokens_total %d\nvllm:num_requests_running 1\nvllm:num_requests_waiting 0\nvllm:cache_config_info{kv_cache_size_tokens=\"1000\"} 1\n", start, work)
}

// told keeps telling an engine what another proxy has read a moment ago.
func (w *watched) told(name string, d Digest) {
	d.Age = 0
	w.ByName(name).Heard(d)
}

func TestWhatAnotherProxyReadsIsNotReadAgainUntilThatOneIsSilent(t *testing.T) {
	f := loaded(t, 100, 50)
	var turn atomic.Int32
	turn.Store(1)
	w := watch(t, FleetOptions{ProbeInterval: 200 * time.Millisecond, Turn: func(string) int { return int(turn.Load()) }}, Spec{Name: "a", URL: f.URL})
	w.untilState("a", Ready)
	own, lists := f.count("/metrics"), f.count("/v1/models") // it came up here, and was read for that
	d, ok := w.ByName("a").Digest()
	if !ok || d.KVTokens != 1000 || d.Running != 1 || d.Models == 0 {
		t.Fatalf("digest %+v", d)
	}
	health := f.count("/health")
	w.until("thirty probes, in which an own reader would have read six times", func() bool {
		d.Running, d.Work = 9, d.Work+1
		w.told("a", d)
		return f.count("/health") > health+30
	})
	if more := f.count("/metrics") - own; more > 0 {
		t.Errorf("its metrics were read %d times besides", more)
	}
	if more := f.count("/v1/models") - lists; more > 0 {
		t.Errorf("its models were read %d times besides", more)
	}
	if st := w.ByName("a").Status(); st.Running == nil || *st.Running != 9 || st.Counts.FactsHeard == 0 {
		t.Errorf("what was told is not known: %+v", st)
	}
	w.until("the page to be read when the other is silent", func() bool { return f.count("/metrics") > own && f.count("/v1/models") > lists })
	turn.Store(0)
	before := f.count("/metrics")
	w.until("the page to be read again and again", func() bool { return f.count("/metrics") > before+2 })
}

// What others tell is a reason to look, and never believed where it would change something.
func TestADigestThatTellsOfARestartIsLookedInto(t *testing.T) {
	for what, lie := range map[string]func(*Digest){
		"a later start":          func(d *Digest) { d.Start += 50 },
		"a counter set back":     func(d *Digest) { d.Start, d.Work = 0, 1 },
		"another capacity":       func(d *Digest) { d.KVTokens = 5 },
		"another list of models": func(d *Digest) { d.Models++ },
	} {
		f := loaded(t, 100, 50)
		w := watch(t, FleetOptions{ProbeInterval: 200 * time.Millisecond, Turn: func(string) int { return 3 }}, Spec{Name: "a", URL: f.URL})
		w.untilState("a", Ready)
		reads, lists := f.count("/metrics"), f.count("/v1/models")
		d, _ := w.ByName("a").Digest()
		lie(&d)
		w.until(what+" to be looked into", func() bool {
			w.told("a", d)
			return f.count("/metrics") > reads || f.count("/v1/models") > lists
		})
		if w.heardChange("a", Restarted) || w.ByName("a").KVTokens() != 1000 || len(w.ModelNames()) != 1 {
			t.Errorf("%s was believed", what)
		}
	}
}

// The counters of the reader are the ones that a restart is found out by, also by those who have not read for long.
func TestARestartIsFoundOutByOneThatOnlyHears(t *testing.T) {
	page := func(work int) string { return fmt.Sprintf("vllm:prompt_tokens_total %d\n", work) }
	f := newFake(t).plain().set("/metrics", 200, page(100))
	w := watch(t, FleetOptions{ProbeInterval: 200 * time.Millisecond, Turn: func(string) int { return 3 }}, Spec{Name: "a", URL: f.URL})
	w.untilState("a", Ready)
	d, _ := w.ByName("a").Digest()
	d.Work = 1_000_000
	w.until("the counter to be known", func() bool {
		w.told("a", d)
		return w.ByName("a").Status().Counts.FactsHeard > 0
	})
	f.set("/metrics", 200, page(5000)) // more than was read here
	d.Work = 5000
	w.until("the restart to be found out", func() bool {
		w.told("a", d)
		return w.heardChange("a", Restarted)
	})
}

func TestOldDigestsAndThoseOfAnEngineThatIsDownAreLeft(t *testing.T) {
	f := loaded(t, 100, 50)
	w := watch(t, FleetOptions{ProbeInterval: 200 * time.Millisecond}, Spec{Name: "a", URL: f.URL}, Spec{Name: "gone", URL: "http://127.0.0.1:1"})
	w.untilState("a", Ready)
	w.untilState("gone", Down)
	w.ByName("gone").Heard(Digest{Running: 3, Waiting: 3, KVTokens: 77, Work: -1})
	w.ByName("a").Heard(Digest{Age: time.Hour, Running: 3, Waiting: 3, KVTokens: 77, Work: -1})
	if w.ByName("gone").KVTokens() != 0 || w.ByName("a").KVTokens() != 1000 || w.ByName("a").Status().Counts.FactsHeard+w.ByName("gone").Status().Counts.FactsHeard != 0 {
		t.Error("they were taken")
	}
}
