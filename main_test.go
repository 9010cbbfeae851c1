package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a person types, and what comes back where.
func TestCommands(t *testing.T) {
	bad := filepath.Join(t.TempDir(), "bad.toml")
	if err := os.WriteFile(bad, []byte("listne = \"127.0.0.1:1\"\n[[engine]]\nurl = \"http://127.0.0.1:2\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	good := filepath.Join(t.TempDir(), "good.toml")
	if err := os.WriteFile(good, []byte("[[engine]]\nurl = \"http://127.0.0.1:2\"\napi_key = \"kk-secret-of-forty-characters-in-all-1234\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		args           []string
		status         int
		stdout, stderr string // parts that must be there
	}{
		"nothing":         {nil, 2, "", "usage: warmring COMMAND"},
		"help":            {[]string{"-h"}, 0, "usage: warmring COMMAND", ""},
		"help of serve":   {[]string{"serve", "-h"}, 0, "-config", ""},
		"help of check":   {[]string{"check", "-h"}, 0, "-probe", ""},
		"help of version": {[]string{"version", "-h"}, 0, "usage: warmring version", ""},
		"version":         {[]string{"version"}, 0, "warmring ", ""},
		"version of what": {[]string{"version", "x"}, 2, "", "unexpected argument \"x\""},
		"no such command": {[]string{"srve"}, 2, "", "there are serve, demo, check and version"},
		"no such flag":    {[]string{"serve", "-x"}, 2, "", "-x"},
		"no file":         {[]string{"serve", "-config", "/nowhere.toml"}, 1, "", "smallest file"},
		"bad file":        {[]string{"check", "-config", bad}, 1, "", "bad.toml:1:1: unknown key \"listne\" at the top; did you mean \"listen\"?"},
		"good file":       {[]string{"check", "-config", good}, 0, "is valid: 1 engines", ""},
		"shown file":      {[]string{"check", "-show", "-config", good}, 0, "max_body = '64MB'", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			if status := run(tc.args, &stdout, &stderr); status != tc.status {
				t.Errorf("status %d, want %d", status, tc.status)
			}
			if !strings.Contains(stdout.String(), tc.stdout) || (tc.stdout == "") != (stdout.Len() == 0) {
				t.Errorf("stdout %q, want %q", stdout.String(), tc.stdout)
			}
			if !strings.Contains(stderr.String(), tc.stderr) || (tc.stderr == "") != (stderr.Len() == 0) {
				t.Errorf("stderr %q, want %q", stderr.String(), tc.stderr)
			}
			if strings.Contains(stdout.String()+stderr.String(), "kk-secret") {
				t.Error("a secret is shown")
			}
		})
	}
}
