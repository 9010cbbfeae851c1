package engines

import (
	"strings"
	"testing"
)

// C013: the base URL and the client's path meet without a doubled version segment.
func TestPathsMeetTheBaseURLWithoutADoubledVersion(t *testing.T) {
	for _, c := range []struct{ base, path, want string }{
		{"http://h:8000", "/v1/chat/completions", "/v1/chat/completions"},
		{"http://h:8000/", "/v1/chat/completions", "/v1/chat/completions"},
		{"http://h:8000/v1", "/v1/chat/completions", "/v1/chat/completions"},
		{"http://h:8000/v1/", "/v1/chat/completions", "/v1/chat/completions"},
		{"http://h:8000/serve/a/v4", "/v1/chat/completions", "/serve/a/v4/chat/completions"},
		{"http://h:8000/serve/a/v4/", "/v4/chat/completions", "/serve/a/v4/chat/completions"},
		{"http://h:8000/serve/a", "/v1/messages?beta=true", "/serve/a/v1/messages?beta=true"},
		{"http://h:8000/serve/a", "/tokenize", "/serve/a/tokenize"},
		{"http://h:8000/v1", "/tokenize", "/tokenize"},
		{"http://h:8000/v4", "/health", "/health"},
		{"http://h:8000/v4", "/v1", "/v4"},
		{"http://h:8000/v4", "/v1?x", "/v4?x"},
		{"http://h:8000/v4", "/v1beta/x", "/v1beta/x"},
		{"http://h:8000/v4", "/v10/x", "/v10/x"},
		{"http://h:8000", "/chat/completions", "/v1/chat/completions"},
		{"http://h:8000/v4", "/messages?beta=true", "/v4/messages?beta=true"},
		{"http://h:8000", "/completion", "/completion"},
		{"http://h:8000", "/v1//a/%2e?q=1", "/v1//a/%2e?q=1"},
		{"http://h:8000/v1beta2", "/v1/models", "/v1beta2/models"},
		{"http://h:8000/vault", "/v1/models", "/vault/v1/models"},
		{"http://h:8000", "*", "/*"},
	} {
		target, err := ParseTarget(c.base)
		if err != nil {
			t.Errorf("%s: %v", c.base, err)
			continue
		}
		if got := string(target.AppendPath(nil, []byte(c.path))); got != c.want {
			t.Errorf("%s and %s: the engine sees %s, want %s", c.base, c.path, got, c.want)
		}
	}
}

func TestBaseURLsAreTakenApart(t *testing.T) {
	for raw, want := range map[string]Target{
		"http://h:8000":                    {Address: "h:8000", Host: "h:8000", Name: "h", Version: "v1"},
		"http://H":                         {Address: "h:80", Host: "h", Name: "h", Version: "v1"},
		"https://h/":                       {TLS: true, Address: "h:443", Host: "h", Name: "h", Version: "v1"},
		"HTTPS://h:443/v1":                 {TLS: true, Address: "h:443", Host: "h", Name: "h", Version: "v1"},
		"https://h:8443/serve/a/v4":        {TLS: true, Address: "h:8443", Host: "h:8443", Name: "h", Prefix: "/serve/a", Version: "v4"},
		"http://[::1]:8000/v1/":            {Address: "[::1]:8000", Host: "[::1]:8000", Name: "::1", Version: "v1"},
		"http://[2001:db8::1]":             {Address: "[2001:db8::1]:80", Host: "[2001:db8::1]", Name: "2001:db8::1", Version: "v1"},
		"http://[fe80::1%25eth0]:80/":      {Address: "[fe80::1%eth0]:80", Host: "[fe80::1]", Name: "fe80::1%eth0", Version: "v1"},
		"http://h:8000/a%20b/v1///":        {Address: "h:8000", Host: "h:8000", Name: "h", Prefix: "/a%20b", Version: "v1"},
		"http://warmring-engine-0.svc:080": {Address: "warmring-engine-0.svc:080", Host: "warmring-engine-0.svc:080", Name: "warmring-engine-0.svc", Version: "v1"},
	} {
		if got, err := ParseTarget(raw); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", raw, got, err, want)
		}
	}
}

func TestBaseURLsThatCannotWorkAreRefusedWithAHint(t *testing.T) {
	for raw, hint := range map[string]string{
		"": "empty", "10.0.0.1:8000": `write "http://10.0.0.1:8000"`, "localhost:8000/v1": `write "http://localhost:8000/v1"`, "//h:1": `"http://h:1"`, "ftp://h": "only http and https",
		"http://": "no host", "http://:8000": "no host", "http://h:0": "not a port", "http://h:99999": "not a port", "http://h:x": "not a URL", "http://user:kk-secret@h": "user or password",
		"http://kk-secret@h": "user or password", "http://h?key=kk-secret": "query", "http://h?": "query", "http://h/#x": "fragment", "http://h/a/../v1": "dots", "http://::1:8000": "",
		"http://user:kk-secret@h:x": "not a URL", "http://a b/": "not a URL", "grpc://h:1": "only http and https",
	} {
		_, err := ParseTarget(raw)
		if err == nil || !strings.Contains(err.Error(), hint) || strings.Contains(err.Error(), "kk-secret") {
			t.Errorf("%s: %v; want a word about %q and no secret", raw, err, hint)
		}
	}
}

func FuzzTarget(f *testing.F) {
	f.Add("http://h:8000/serve/a/v4", "/v1/chat/completions")
	f.Add("https://[::1]:8000/v1/", "/tokenize?x=1")
	f.Fuzz(func(t *testing.T, raw, path string) {
		target, err := ParseTarget(raw)
		if err != nil {
			return
		}
		got := string(target.AppendPath(nil, []byte(path)))
		if !strings.HasPrefix(got, target.Prefix+"/") {
			t.Errorf("%q and %q: %q left the prefix", raw, path, got)
		}
		if strings.HasPrefix(path, "/v1/") && !strings.HasPrefix(path, "/v1/v") && strings.HasPrefix(got, target.Prefix+"/"+target.Version+"/"+target.Version+"/") {
			t.Errorf("%q and %q: doubled in %q", raw, path, got)
		}
		if again, err := ParseTarget(target.String()); err != nil || again != target {
			t.Errorf("%q reads as %+v, its normal form %q as %+v, %v", raw, target, target.String(), again, err)
		}
	})
}

func BenchmarkAppendPath(b *testing.B) {
	target, err := ParseTarget("http://h:8000/serve/a/v4")
	if err != nil {
		b.Fatal(err)
	}
	dst, path := make([]byte, 0, 128), []byte("/v1/chat/completions")
	b.ReportAllocs()
	for b.Loop() {
		dst = target.AppendPath(dst[:0], path)
	}
}
