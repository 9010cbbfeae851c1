package sim

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// page answers all paths that do not generate.
func (x *exchange) page(path string) {
	get := x.r.Method == http.MethodGet || x.r.Method == http.MethodHead
	mode := x.s.opt.Mode
	switch path {
	case "/v1/models":
		x.json(http.StatusOK, x.models())
	case "/health", "/health_generate":
		x.health(path)
	case "/ping":
		x.write(http.StatusOK, "", nil)
	case "/v1/messages/count_tokens":
		x.countTokens()
	case "/tokenize", "/v1/tokenize":
		if get {
			x.wrongMethod("POST")
			return
		}
		x.tokenize()
	default:
		ok := false
		switch mode {
		case VLLM:
			ok = x.vllmPage(path)
		case SGLang:
			ok = x.sglangPage(path)
		}
		if !ok {
			x.json(http.StatusNotFound, []byte(`{"detail":"Not Found"}`))
		}
	}
}

func (x *exchange) models() []byte {
	s := x.s
	b := []byte(`{"object":"list","data":[`)
	created := s.begun.Load() / int64(time.Second)
	for i, name := range s.opt.Models {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendQuoted(append(b, `{"id":`...), name)
		if s.opt.Mode == SGLang {
			b = fmt.Appendf(b, `,"object":"model","created":%d,"owned_by":"sglang","root":%q,"parent":null,"max_model_len":%d}`, created, name, s.opt.MaxModelLen)
			continue
		}
		if s.opt.Mode == Llama {
			b = fmt.Appendf(b, `,"object":"model","created":%d,"owned_by":"llamacpp","meta":{"n_ctx_train":%d}}`, created, s.opt.MaxModelLen)
			continue
		}
		b = fmt.Appendf(b, `,"object":"model","created":%d,"owned_by":"vllm","root":"/models/%s","parent":null,"max_model_len":%d,"permission":[{"id":"modelperm-%s","object":"model_permission","created":%d,`+
			`"allow_create_engine":false,"allow_sampling":true,"allow_logprobs":true,"allow_search_indices":false,"allow_view":true,"allow_fine_tuning":false,"organization":"*","group":null,"is_blocking":false}]}`,
			created, strings.Trim(string(appendQuoted(nil, name)), `"`), s.opt.MaxModelLen, hexID(uint64(i)), created)
	}
	return append(b, `]}`...)
}

func (x *exchange) health(path string) {
	s := x.s
	if path == "/health_generate" && s.opt.Mode != SGLang {
		x.json(http.StatusNotFound, []byte(`{"detail":"Not Found"}`))
		return
	}
	if s.opt.HealthDelay > 0 && !s.sleep(x.r.Context(), s.opt.HealthDelay) {
		return
	}
	if s.opt.Mode == Llama {
		x.json(http.StatusOK, []byte(`{"status":"ok"}`))
		return
	}
	x.write(http.StatusOK, "", nil)
}

func (x *exchange) countTokens() {
	ids, p := x.tokens(messages)
	switch {
	case p != nil:
		x.refuse(messages, p)
	case x.s.opt.Mode == SGLang:
		x.json(http.StatusOK, fmt.Appendf(nil, `{"input_tokens":%d}`, len(ids)))
	default:
		x.json(http.StatusOK, fmt.Appendf(nil, `{"input_tokens":%d,"context_management":{"original_input_tokens":%d}}`, len(ids), len(ids)))
	}
}

func (x *exchange) tokenize() {
	f := completions
	if checkJSON(x.body) == nil {
		eachField(x.body[skipSpace(x.body, 0):], func(key string, _ []byte) {
			if key == "messages" {
				f = chat
			}
		})
	}
	ids, p := x.tokens(f)
	if p != nil {
		x.refuse(f, p)
		return
	}
	list := []byte{'['}
	for i, id := range ids {
		if i > 0 {
			list = append(list, ',')
		}
		list = fmt.Append(list, id)
	}
	list = append(list, ']')
	if x.s.opt.Mode == SGLang {
		x.json(http.StatusOK, fmt.Appendf(nil, `{"tokens":%s,"count":%d,"max_model_len":%d}`, list, len(ids), x.s.opt.MaxModelLen))
		return
	}
	x.json(http.StatusOK, fmt.Appendf(nil, `{"count":%d,"max_model_len":%d,"tokens":%s,"token_strs":null}`, len(ids), x.s.opt.MaxModelLen, list))
}

// tokens are the ids of the body's prompt, as a generation would have them.
func (x *exchange) tokens(f family) ([]uint64, *problem) {
	c, err := parseCall(f, x.body, nil, x.s.opt.Mode == VLLM, nil)
	if err != nil {
		return nil, badBody(x.s.opt.Mode, f, err)
	}
	in := c.inputs[0]
	switch {
	case in.ids != nil:
		return in.ids, nil
	case x.s.opt.Tokenizer != nil:
		return x.s.opt.Tokenizer(in.rendered), nil
	}
	return tokens4(in.rendered), nil
}

func (x *exchange) vllmPage(path string) bool {
	s := x.s
	switch path {
	case "/version":
		x.json(http.StatusOK, []byte(`{"version":"0.32.0"}`))
	case "/load":
		x.json(http.StatusOK, []byte(`{"server_load":0}`))
	case "/metrics":
		x.write(http.StatusOK, "text/plain; version=1.0.0; charset=utf-8", x.vllmMetrics())
	case "/reset_prefix_cache":
		x.json(http.StatusOK, fmt.Appendf(nil, `{"success":%t}`, s.engine.ResetCache()))
	default:
		return false
	}
	return true
}

func (x *exchange) vllmMetrics() []byte {
	s := x.s
	st, opt := s.engine.Stats(), s.engine.Options()
	labels := fmt.Sprintf(`{engine="0",model_name=%q}`, s.opt.Models[0])
	var b []byte
	one := func(name, kind string, value float64) {
		b = fmt.Appendf(b, "# TYPE %s %s\n%s%s %g\n", name, kind, name, labels, value)
	}
	usable := float64(max(st.Capacity-opt.BlockTokens, 1))
	b = fmt.Appendf(b, "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds %.3f\n", float64(s.begun.Load())/1e9)
	one("vllm:num_requests_running", "gauge", float64(st.Running))
	one("vllm:num_requests_waiting", "gauge", float64(st.Waiting))
	one("vllm:kv_cache_usage_perc", "gauge", float64(st.Used)/usable)
	one("vllm:prefix_cache_queries_total", "counter", float64(st.Queried))
	one("vllm:prefix_cache_hits_total", "counter", float64(st.Hit))
	one("vllm:num_preemptions_total", "counter", float64(st.Preempted))
	one("vllm:prompt_tokens_total", "counter", float64(st.Prefilled))
	one("vllm:generation_tokens_total", "counter", float64(st.Decoded))
	b = fmt.Appendf(b, "# TYPE vllm:request_success_total counter\nvllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=%q} %d\n", s.opt.Models[0], st.Done)
	b = fmt.Appendf(b, "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\",model_name=%q} %d\n", s.opt.Models[0], st.Dropped)
	b = fmt.Appendf(b, "# TYPE vllm:cache_config_info gauge\nvllm:cache_config_info{block_size=\"%d\",enable_prefix_caching=\"True\",engine=\"0\",kv_cache_size_tokens=\"%d\",num_gpu_blocks=\"%d\",prefix_caching_hash_algo=\"sha256\"} 1.0\n",
		opt.BlockTokens, st.Capacity, st.Capacity/opt.BlockTokens)
	return b
}

func (x *exchange) sglangPage(path string) bool {
	s := x.s
	switch path {
	case "/":
		x.json(http.StatusOK, []byte(`"SGLang is running"`))
	case "/v1/loads":
		x.json(http.StatusOK, x.sglangLoads())
	case "/server_info", "/get_server_info":
		x.json(http.StatusOK, x.sglangInfo())
	case "/model_info", "/get_model_info":
		x.json(http.StatusOK, fmt.Appendf(nil, `{"model_path":"/models/%s","served_model_name":%q,"tokenizer_path":"/models/%s","is_generation":true,"weight_version":"default","model_type":"llama","architectures":["LlamaForCausalLM"]}`,
			s.opt.Models[0], s.opt.Models[0], s.opt.Models[0]))
	case "/abort_request":
		x.abortRequest()
	case "/flush_cache":
		text, status := "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the operation will not be performed.)\n", http.StatusOK
		if !s.engine.ResetCache() {
			status = http.StatusBadRequest
		}
		x.write(status, "", []byte(text))
	default:
		if name, ok := strings.CutPrefix(path, "/v1/models/"); ok {
			if slices.Contains(s.opt.Models, name) {
				x.json(http.StatusOK, fmt.Appendf(nil, `{"id":%q,"object":"model","created":%d,"owned_by":"sglang","root":%q,"parent":null,"max_model_len":%d}`,
					name, s.begun.Load()/int64(time.Second), name, s.opt.MaxModelLen))
				return true
			}
			p := &problem{status: http.StatusNotFound, kind: "invalid_request_error", param: "model", code: "model_not_found", text: "The model '" + name + "' does not exist"}
			x.json(p.status, p.body(SGLang, responses))
			return true
		}
		return false
	}
	return true
}

// abortRequest ends every request whose id begins with rid; an empty rid without abort_all does
// nothing.
func (x *exchange) abortRequest() {
	var rid string
	all := false
	if checkJSON(x.body) == nil {
		eachField(x.body[skipSpace(x.body, 0):], func(key string, v []byte) {
			switch key {
			case "rid":
				rid = unquote(v)
			case "abort_all":
				all = isTrue(v)
			}
		})
	}
	if rid != "" || all {
		x.s.engine.AbortWhere(func(id string) bool { return all || strings.HasPrefix(id, rid) })
	}
	x.write(http.StatusOK, "", nil)
}

func (x *exchange) sglangLoads() []byte {
	s := x.s
	st, opt := s.engine.Stats(), s.engine.Options()
	now := time.Now()
	hit := 0.0
	if st.Queried > 0 {
		hit = float64(st.Hit) / float64(st.Queried)
	}
	usage := float64(st.Used) / float64(st.Capacity)
	return fmt.Appendf(nil, `{"timestamp":%q,"version":"0.5.23","accelerator":null,"num_accelerators":1,"loads":[{"timestamp":%.6f,"dp_rank":0,"num_running_reqs":%d,"num_waiting_reqs":%d,"num_waiting_uncached_tokens":%d,`+
		`"num_used_tokens":%d,"num_total_tokens":%d,"num_active_tokens":%d,"num_prealloc_ready_tokens":0,"max_total_num_tokens":%d,"max_running_requests":%d,"token_usage":%.4f,"gen_throughput":0.0,"cache_hit_rate":%.4f,"utilization":0.0,`+
		`"total_prefill_uncached_tokens":%d,"total_prefill_busy_us":%d,"decode_moments":null,"memory":{"weight_gb":0.087,"kv_cache_gb":0.114,"graph_gb":0.0,"token_capacity":%d},`+
		`"disaggregation":{"mode":"null","prefill_bootstrap_queue_reqs":0,"prefill_inflight_queue_reqs":0,"decode_prealloc_queue_reqs":0,"decode_transfer_queue_reqs":0,"decode_retracted_queue_reqs":0,"kv_transfer_speed_gb_s":0.0,"kv_transfer_latency_ms":0.0},`+
		`"queues":{"waiting":%d,"grammar":0,"paused":0,"retracted":0,"prealloc_ready":0}}]}`,
		now.UTC().Format("2006-01-02T15:04:05.000000+00:00"), float64(now.UnixMicro())/1e6, st.Running, st.Waiting, st.WaitingFresh, st.Used, st.Used, st.Used,
		st.Capacity, opt.MaxRunning, usage, hit, st.Prefilled, st.Busy.Microseconds(), st.Capacity, st.Waiting)
}

func (x *exchange) sglangInfo() []byte {
	s := x.s
	opt := s.engine.Options()
	queued := "null"
	if opt.MaxQueued > 0 {
		queued = string(num(nil, opt.MaxQueued))
	}
	return fmt.Appendf(nil, `{"model_path":"/models/%s","served_model_name":%q,"context_length":%d,"max_running_requests":%d,"max_queued_requests":%s,"chunked_prefill_size":%d,"enable_mixed_chunk":%t,"page_size":%d,"schedule_policy":"fcfs",`+
		`"status":"ready","max_total_num_tokens":%d,"max_req_input_len":%d,"startup_time":%.3f,"kv_events":null,"internal_states":[{"max_total_num_tokens":%d}],"version":"0.5.23"}`,
		s.opt.Models[0], s.opt.Models[0], opt.MaxModelLen, opt.MaxRunning, queued, opt.MaxBatchedTokens, opt.MixedChunk, opt.BlockTokens, opt.KVTokens, opt.MaxModelLen-6,
		float64(s.begun.Load())/1e9, opt.KVTokens)
}
