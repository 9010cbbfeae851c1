package engines

import (
	"bytes"
	"strconv"
)

// sample is one line of a Prometheus text page, as slices of it.
type sample struct {
	name   []byte // "vllm:cache_config_info"
	labels []byte // between the braces, or empty
	value  []byte // "1.0"
}

// nextSample reads the next sample whose name is wanted, and returns the rest of the page. Comments and all other names are skipped after a glance, without looking at labels or value, which is
// what makes a page of 50 KB cost microseconds. A malformed line is skipped. ok is false at the end.
func nextSample(page []byte, wanted func(name []byte) bool) (s sample, rest []byte, ok bool) {
	for len(page) > 0 {
		line := page
		if end := bytes.IndexByte(page, '\n'); end >= 0 {
			line, page = page[:end], page[end+1:]
		} else {
			page = nil
		}
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		end := bytes.IndexByte(line, '{')
		if space := bytes.IndexByte(line[:max(end, 0)], ' '); end < 0 || space >= 0 {
			if end = bytes.IndexByte(line, ' '); end < 0 {
				continue
			}
		}
		if !wanted(line[:end]) {
			continue
		}
		if s, ok = parseSample(line, end); ok {
			return s, page, true
		}
	}
	return sample{}, nil, false
}

func parseSample(line []byte, end int) (s sample, ok bool) {
	s.name = line[:end]
	if line[end] == '{' {
		closing := closingBrace(line[end+1:])
		if closing < 0 {
			return s, false
		}
		s.labels = line[end+1 : end+1+closing]
		end += closing + 2
	}
	value := bytes.TrimLeft(line[end:], " \t")
	if space := bytes.IndexAny(value, " \t\r"); space >= 0 {
		value = value[:space] // a timestamp may follow
	}
	s.value = value
	return s, len(value) > 0
}

// closingBrace finds the end of the labels; braces inside quotes do not count.
func closingBrace(labels []byte) int {
	for i := 0; i < len(labels); i++ {
		switch labels[i] {
		case '}':
			return i
		case '"':
			for i++; i < len(labels) && labels[i] != '"'; i++ {
				if labels[i] == '\\' {
					i++
				}
			}
		}
	}
	return -1
}

// label returns the raw value of a label, without its quotes; nil when there is none.
func (s *sample) label(name string) []byte {
	rest := s.labels
	for len(rest) > 0 {
		equals := bytes.IndexByte(rest, '=')
		if equals < 0 || equals+1 >= len(rest) || rest[equals+1] != '"' {
			return nil
		}
		key := bytes.TrimLeft(rest[:equals], " ,")
		rest = rest[equals+2:]
		end := 0
		for ; end < len(rest) && rest[end] != '"'; end++ {
			if rest[end] == '\\' {
				end++
			}
		}
		if end >= len(rest) {
			return nil
		}
		if string(key) == name {
			return rest[:end]
		}
		rest = rest[end+1:]
	}
	return nil
}

// float reads a value; anything unreadable, NaN and infinities are not known.
func float(text []byte) (v float64, ok bool) {
	v, err := strconv.ParseFloat(string(text), 64)
	if err != nil || v-v != 0 {
		return 0, false
	}
	return v, true
}

// metricsFacts is what one page tells. Negative numbers are unknown.
type metricsFacts struct {
	vllm, sglang bool    // names of that engine were seen
	start        float64 // process_start_time_seconds
	work         float64 // a counter that only a restart sets back
	kvTokens     int64
	running      float64
	waiting      float64
	kvUsage      float64
}

// factName tells the samples that readMetrics understands.
func factName(name []byte) bool {
	switch string(name) {
	case "process_start_time_seconds", "vllm:cache_config_info", "vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc", "vllm:prompt_tokens_total",
		"vllm:generation_tokens_total", "sglang:token_usage", "sglang:num_running_reqs", "sglang:num_queue_reqs", "sglang:max_total_num_tokens", "sglang:prompt_tokens_total",
		"sglang:generation_tokens_total", "llamacpp:requests_processing", "llamacpp:requests_deferred", "llamacpp:prompt_tokens_total", "llamacpp:tokens_predicted_total":
		return true
	}
	return false
}

// readMetrics reads a page of vLLM, SGLang, llama.cpp or of anything that uses their names. An endpoint with several ranks has one line for each: capacities and counts add up, usage is the fullest.
func readMetrics(page []byte) metricsFacts {
	f := metricsFacts{start: -1, work: -1, kvTokens: -1, running: -1, waiting: -1, kvUsage: -1}
	sglangKV := int64(-1)
	for {
		s, rest, ok := nextSample(page, factName)
		if !ok {
			break
		}
		page = rest
		switch string(s.name) {
		case "process_start_time_seconds":
			if v, ok := float(s.value); ok && v > f.start {
				f.start = v
			}
		case "vllm:cache_config_info":
			f.vllm = true
			if tokens := cacheConfigTokens(&s); tokens > 0 {
				f.kvTokens = max(f.kvTokens, 0) + tokens
			}
		case "vllm:num_requests_running":
			f.vllm = true
			add(&f.running, s.value)
		case "vllm:num_requests_waiting":
			f.vllm = true
			add(&f.waiting, s.value)
		case "vllm:kv_cache_usage_perc", "sglang:token_usage":
			if v, ok := float(s.value); ok {
				f.kvUsage = max(f.kvUsage, v)
			}
		case "sglang:num_running_reqs", "llamacpp:requests_processing":
			f.sglang = f.sglang || s.name[0] == 's'
			add(&f.running, s.value)
		case "sglang:num_queue_reqs", "llamacpp:requests_deferred":
			add(&f.waiting, s.value)
		case "sglang:max_total_num_tokens":
			f.sglang = true
			if v, ok := float(s.value); ok {
				sglangKV = max(sglangKV, int64(v)) // one line per tensor-parallel rank, all of the same pool
			}
		case "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "sglang:prompt_tokens_total", "sglang:generation_tokens_total", "llamacpp:prompt_tokens_total",
			"llamacpp:tokens_predicted_total":
			add(&f.work, s.value)
		}
	}
	if f.kvTokens < 0 {
		f.kvTokens = sglangKV
	}
	return f
}

func add(sum *float64, text []byte) {
	if v, ok := float(text); ok {
		*sum = max(*sum, 0) + v
	}
}

// cacheConfigTokens is the capacity in one vllm:cache_config_info line: kv_cache_size_tokens, or in versions without it block_size × num_gpu_blocks. 0 when neither is a number.
func cacheConfigTokens(s *sample) int64 {
	if tokens := integer(s.label("kv_cache_size_tokens")); tokens > 0 {
		return tokens
	}
	blocks, size := integer(s.label("num_gpu_blocks")), integer(s.label("block_size"))
	if blocks <= 0 || size <= 0 || blocks > 1<<40/size {
		return 0
	}
	return blocks * size
}

func integer(text []byte) int64 {
	v, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		return 0
	}
	return v
}
