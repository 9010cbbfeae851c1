package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/warmring/warmring/engines"
)

var update = flag.Bool("update", false, "write the golden files anew")

func noEnvironment(string) (string, bool) { return "", false }

func environment(pairs ...string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		for i := 0; i < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

// Each testdata/bad/*.toml has its whole error text beside it: line, column, excerpt and suggestion are part of the product.
func TestEveryFaultIsNamedWithLineColumnAndTheNearestRightKey(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.toml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no test files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".toml"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			_, err = parse("warmring.toml", data, environment("EMPTY", ""))
			if err == nil {
				t.Fatal("was accepted")
			}
			golden := strings.TrimSuffix(file, ".toml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(err.Error()+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, readErr := os.ReadFile(golden)
			if readErr != nil {
				t.Fatal(readErr)
			}
			if got := err.Error() + "\n"; got != string(want) {
				t.Errorf("error text\n%s\nwant\n%s", got, want)
			}
		})
	}
}

func TestTheSmallestFileHasEveryDefault(t *testing.T) {
	c, err := Parse("warmring.toml", []byte(SmallestFile))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Engines) != 1 || c.Engines[0].Name != "127.0.0.1:8000" || c.Engines[0].Weight != 1 || c.Engines[0].Health != "/health" || c.Engines[0].MaxIdle.Std() != 3*time.Second {
		t.Errorf("engine %+v", c.Engines)
	}
	want := Default()
	c.Engines, c.source, c.lookup, want.lookup = nil, nil, nil, nil
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got\n%s\nwant\n%s", c, want)
	}
}

func TestTheFileOfTheManualWorks(t *testing.T) {
	const manual = `listen = "127.0.0.1:8080"
[admin]
listen = "127.0.0.1:8081"
[[engine]]
name = "a"                        # default: host:port
url  = "http://10.0.0.1:8000"     # kind is detected; kind = "vllm" | "sglang" | "custom" settles it
[cluster]                         # optional
bind = "0.0.0.0:7946"
join = ["warmring-headless:7946"]
`
	c, err := Parse("warmring.toml", []byte(manual))
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Warnings()) != 2 || !strings.Contains(c.Warnings()[0], "no cluster.keys") || !strings.Contains(c.Warnings()[1], "identity.secret") {
		t.Errorf("a cluster open to everybody must be told: %q", c.Warnings())
	}
}

func TestEverySectionIsRead(t *testing.T) {
	data, err := os.ReadFile("testdata/full.toml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse("full.toml", data, environment("KEY_B", " kk-secret-b \n", "TENANTS", "tenant-secret", "CLUSTER_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="))
	if err != nil {
		t.Fatal(err)
	}
	// Every key that exists is used in the file, so that none is forgotten here.
	for _, key := range Keys() {
		if _, there := c.source.places[strings.Replace(key, "engine.", "engine.0.", 1)]; !there && key != "engine.api_key_env" {
			t.Errorf("testdata/full.toml does not use %q", key)
		}
	}
	if c.Server.MaxBody != 32<<20 || c.Timeouts.FirstByte.Std() != 10*time.Minute || c.Headers.Response || c.Log.Access || c.Routing.VirtualNodes != 80 {
		t.Errorf("values of the file are missing: %s", c)
	}
	specs := c.Specs()
	if specs[0].Kind != engines.SGLang || specs[0].APIKey != "kk-secret-1" || specs[0].Headers["X-Gate"] != "kk-secret-2" || !specs[0].InsecureSkipVerify || specs[0].Weight != 2 {
		t.Errorf("spec %#v", c.Engines[0])
	}
	if specs[1].APIKey != "kk-secret-b" || c.Identity.Secret.Reveal() != "tenant-secret" {
		t.Errorf("secrets of the environment were not taken")
	}
	if c.Models.Resolve("small", nil) != "org/m-7b" || c.Models.Resolve("zz", nil) != "org/m-70b" || c.Models.Resolve("org/m-1b", func(string) bool { return true }) != "org/m-1b" {
		t.Error("names are not resolved (C173)")
	}
}

// C206, C208: no print of a configuration shows a secret.
func TestSecretsAreNowhereInPrints(t *testing.T) {
	data, err := os.ReadFile("testdata/full.toml")
	if err != nil {
		t.Fatal(err)
	}
	c, err := parse("full.toml", data, environment("KEY_B", "kk-secret-b", "TENANTS", "tenant-secret", "CLUSTER_KEY", "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="))
	if err != nil {
		t.Fatal(err)
	}
	for _, print := range prints(c, c.Engines, c.Engines[0], c.Specs(), c.Specs()[0], c.Identity) {
		for _, secret := range []string{"kk-secret-1", "kk-secret-2", "kk-secret-b", "tenant-secret", "bGFzdCBtb250", "MDEyMzQ1"} {
			if strings.Contains(print, secret) {
				t.Errorf("%q is in %.300q", secret, print)
			}
		}
	}
	if again, err := parse("again.toml", []byte(c.Redacted()), environment("KEY_B", "kk-secret-b")); err != nil {
		t.Errorf("the redacted print is no configuration: %v\n%s", err, c.Redacted())
	} else if again.Redacted() != c.Redacted() {
		t.Errorf("the redacted print reads as something else:\n%s\n%s", c.Redacted(), again.Redacted())
	}
}

// C208
func TestMaskingShowsAtMostFourCharactersOfLongSecrets(t *testing.T) {
	for secret, want := range map[string]string{
		"": "", "abcdef": "***", "abcdefghijkl": "***", strings.Repeat("a", 36) + "wxyz": "***wxyz", strings.Repeat("é", 20): "***",
	} {
		if got := NewSecret(secret).Masked(); got != want {
			t.Errorf("%q is shown as %q, want %q", secret, got, want)
		}
	}
}

func TestNoFileIsAnErrorThatShowsTheSmallestOne(t *testing.T) {
	_, err := Load(filepath.Join(t.TempDir(), "warmring.toml"))
	if err == nil || !strings.Contains(err.Error(), SmallestFile) {
		t.Errorf("got %v", err)
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "folder") {
		t.Errorf("a folder: %v", err)
	}
}

func TestOtherPackagesCanPointIntoTheFile(t *testing.T) {
	c, err := Parse("warmring.toml", []byte(SmallestFile+"\n[identity]\nsources = [\"claude\", \"codexx\"]\n"))
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New(`unknown source "codexx"; did you mean "codex"?`)
	err = c.At("identity.sources.1", cause)
	if !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "warmring.toml:7:22: ") {
		t.Errorf("got %v", err)
	}
	if c.At("listen", nil) != nil {
		t.Error("no error became one")
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*/*.toml")
	for _, file := range append(files, "testdata/full.toml") {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parse("f", data, noEnvironment)
		if err != nil {
			var problems *Error
			if errors.As(err, &problems) && len(problems.Problems) == 0 {
				t.Error("an error without a problem")
			}
			_ = err.Error()
			return
		}
		if len(c.Engines) == 0 {
			t.Error("accepted without an engine")
		}
		_ = c.Redacted()
	})
}
