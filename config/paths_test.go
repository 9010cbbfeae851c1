package config

import "testing"

func TestAdminPathsAreRefusedHoweverTheyAreSpelled(t *testing.T) {
	gate := (&Paths{}).Gate()
	for _, path := range []string{
		"/flush_cache", "/flush_cache/", "//flush_cache", "/./flush_cache", "/v1/../flush_cache", "/%66lush_cache", "/%2566lush_cache", "/FLUSH_CACHE", "/flush_cache?x=1", "/v1/flush_cache",
		"/x/%2e%2e/flush_cache", "/v1/load_lora_adapter", "/load_lora_adapter_from_tensors", "/update_weights_from_disk", "/metrics", "/v1/loads", "/slots/3", "/sleep?level=1", "/hicache/storage-backend",
		"/inference/v1/abort_requests", "/abort_request", "/server_info", "/reset_prefix_cache?reset_running_requests=true", "/%2Fflush_cache", "\\flush_cache", "/v1/v1/metrics", "/wake_up", "/start_profile", "http://proxy:8080/flush_cache?x", "HTTP://h//metrics",
	} {
		if reason, refused := gate.Refused([]byte(path)); !refused || reason == "" {
			t.Errorf("%s passes", path)
		}
	}
	for _, path := range []string{
		"/v1/chat/completions", "/v1/models", "/v1/models/flush_cache", "/tokenize", "/v1/responses/resp_1", "/health", "/v1/embeddings", "/", "", "/v1", "/v1/metrics-of-mine", "/sleepy", "/load_balance",
	} {
		if _, refused := gate.Refused([]byte(path)); refused {
			t.Errorf("%s is refused", path)
		}
	}
}

func TestAllowedPathsPassAloneOrAll(t *testing.T) {
	some := (&Paths{Allow: []string{"/metrics", "/update_weights_from_disk"}}).Gate()
	for path, want := range map[string]bool{"/metrics": false, "/v1/metrics": false, "/server_info": true, "/update_weights_from_disk": false, "/update_weights_from_tensor": true} {
		if _, refused := some.Refused([]byte(path)); refused != want {
			t.Errorf("%s refused: %v", path, refused)
		}
	}
	family := (&Paths{Allow: []string{"/update_weight*"}}).Gate()
	if _, refused := family.Refused([]byte("/update_weights_from_tensor")); refused {
		t.Error("an allowed family is refused")
	}
	all := (&Paths{Allow: []string{"*"}}).Gate()
	if _, refused := all.Refused([]byte("/flush_cache")); refused {
		t.Error("* does not allow all")
	}
}

func BenchmarkGateUsualPath(b *testing.B) {
	gate := (&Paths{}).Gate()
	path := []byte("/v1/chat/completions")
	b.ReportAllocs()
	for b.Loop() {
		if _, refused := gate.Refused(path); refused {
			b.Fatal("refused")
		}
	}
}
