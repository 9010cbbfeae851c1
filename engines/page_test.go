package engines

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

func page(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if _, body, ok := bytes.Cut(data, []byte("\r\n\r\n")); ok {
		return body
	}
	return data
}

func TestTheMetricsOfRealEnginesTellCapacityAndIdentity(t *testing.T) {
	v := readMetrics(page(t, "vllm/metrics.txt"))
	if !v.vllm || v.sglang || v.kvTokens != 524288 || v.start != 1.79597059655e9 || v.work <= 1413 || v.running != 0 || v.waiting != 0 || v.kvUsage != 0 {
		t.Errorf("vLLM: %+v", v)
	}
	s := readMetrics(page(t, "sglang/metrics.http"))
	if s.vllm || !s.sglang || s.kvTokens != 60000 {
		t.Errorf("SGLang: %+v", s)
	}
}

func TestMetricsPagesThatAreOddTellLessAndNeverWrong(t *testing.T) {
	unknown := metricsFacts{start: -1, work: -1, kvTokens: -1, running: -1, waiting: -1, kvUsage: -1}
	for name, c := range map[string]struct {
		page string
		want func(f *metricsFacts)
	}{
		"empty":              {"", func(*metricsFacts) {}},
		"a web page":         {"<html>\nvllm\nsglang\n</html>", func(*metricsFacts) {}},
		"JSON":               {`[{"gpuMemUsage":1}]`, func(*metricsFacts) {}},
		"older vLLM":         {`vllm:cache_config_info{block_size="16",num_gpu_blocks="1000"} 1`, func(f *metricsFacts) { f.vllm, f.kvTokens = true, 16000 }},
		"size None":          {`vllm:cache_config_info{kv_cache_size_tokens="None",block_size="16",num_gpu_blocks="None"} 1`, func(f *metricsFacts) { f.vllm = true }},
		"overflow":           {`vllm:cache_config_info{block_size="9000000000000",num_gpu_blocks="9000000000000"} 1`, func(f *metricsFacts) { f.vllm = true }},
		"two ranks":          {"vllm:cache_config_info{engine=\"0\",kv_cache_size_tokens=\"10\"} 1\nvllm:cache_config_info{engine=\"1\",kv_cache_size_tokens=\"20\"} 1", func(f *metricsFacts) { f.vllm, f.kvTokens = true, 30 }},
		"braces in a label":  {`vllm:cache_config_info{a="}{\"",kv_cache_size_tokens="10"} 1`, func(f *metricsFacts) { f.vllm, f.kvTokens = true, 10 }},
		"cut off":            {`vllm:cache_config_info{kv_cache_size_tokens="10`, func(*metricsFacts) {}},
		"not a number":       {"vllm:num_requests_running{} NaN\nprocess_start_time_seconds +Inf", func(f *metricsFacts) { f.vllm = true }},
		"timestamps":         {"vllm:num_requests_running{engine=\"0\"} 3 1795970596550\r\n", func(f *metricsFacts) { f.vllm, f.running = true, 3 }},
		"no labels, spaces":  {"process_start_time_seconds   12.5", func(f *metricsFacts) { f.start = 12.5 }},
		"similar names":      {"vllm:cache_config_info_total 7\nvllm:num_requests_running_max 3", func(*metricsFacts) {}},
		"llama.cpp":          {"llamacpp:prompt_tokens_total 7\nllamacpp:requests_processing 1", func(f *metricsFacts) { f.work, f.running = 7, 1 }},
		"ranks of one model": {"sglang:max_total_num_tokens{tp_rank=\"0\"} 60\nsglang:max_total_num_tokens{tp_rank=\"1\"} 60", func(f *metricsFacts) { f.sglang, f.kvTokens = true, 60 }},
	} {
		want := unknown
		c.want(&want)
		if got := readMetrics([]byte(c.page)); got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

func FuzzMetrics(f *testing.F) {
	f.Add(page(f, "vllm/metrics.txt"))
	f.Add([]byte(`vllm:cache_config_info{a="}{\"",kv_cache_size_tokens="10"} 1 2`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for rest := data; ; {
			s, next, ok := nextSample(rest, func(name []byte) bool { return len(name) > 0 })
			if !ok {
				break
			}
			if len(next) >= len(rest) || len(s.name) == 0 || len(s.value) == 0 || strings.ContainsAny(string(s.name), "\n{ ") {
				t.Fatalf("sample %q %q %q", s.name, s.labels, s.value)
			}
			_ = s.label("engine")
			rest = next
		}
		got := readMetrics(data)
		if got.kvTokens == 0 || got.kvTokens < -1 {
			t.Errorf("%d tokens", got.kvTokens)
		}
	})
}

func BenchmarkReadMetrics(b *testing.B) {
	data := page(b, "vllm/metrics.txt")
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if readMetrics(data).kvTokens != 524288 {
			b.Fatal("wrong")
		}
	}
}
