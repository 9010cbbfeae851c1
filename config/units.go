package config

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is a length of time, written "500ms", "5s", "2m", "1h30m". Never negative.
type Duration time.Duration

// Std returns the standard library's form.
func (d Duration) Std() time.Duration { return time.Duration(d) }

func (d Duration) String() string {
	s := time.Duration(d).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// MarshalText writes the form that UnmarshalText reads.
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads "5s" and the like.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf(`%q is not a duration; write "500ms", "5s", "2m" or "1h"`, text)
	}
	if v < 0 {
		return fmt.Errorf("%q is negative", text)
	}
	*d = Duration(v)
	return nil
}

// Size is a number of bytes, written "16KB", "64MB", "1GB" or as a plain number. K, M and G are powers of 1,024, with or without the i of KiB.
type Size int64

var sizeUnits = [...]struct {
	name  string
	bytes int64
}{{"GIB", 1 << 30}, {"GB", 1 << 30}, {"G", 1 << 30}, {"MIB", 1 << 20}, {"MB", 1 << 20}, {"M", 1 << 20}, {"KIB", 1 << 10}, {"KB", 1 << 10}, {"K", 1 << 10}, {"B", 1}, {"", 1}}

func (s Size) String() string {
	switch {
	case s >= 1<<30 && s%(1<<30) == 0:
		return fmt.Sprintf("%dGB", s>>30)
	case s >= 1<<20 && s%(1<<20) == 0:
		return fmt.Sprintf("%dMB", s>>20)
	case s >= 1<<10 && s%(1<<10) == 0:
		return fmt.Sprintf("%dKB", s>>10)
	}
	return fmt.Sprintf("%dB", int64(s))
}

// MarshalText writes the form that UnmarshalText reads.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads "64MB" and the like.
func (s *Size) UnmarshalText(text []byte) error {
	t := strings.ToUpper(strings.TrimSpace(string(text)))
	for _, unit := range sizeUnits {
		number, found := strings.CutSuffix(t, unit.name)
		if !found {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil || math.IsNaN(v) {
			break
		}
		if v < 0 || v*float64(unit.bytes) > math.MaxInt64/2 {
			return fmt.Errorf("%q is out of range", text)
		}
		*s = Size(v * float64(unit.bytes))
		return nil
	}
	return fmt.Errorf(`%q is not a size; write "16KB", "64MB" or "1GB"`, text)
}

// Secret is a value that no print, log or marshal shows. Only Reveal gives it out. It is a struct and no string, since encoders write strings out whatever methods they have.
type Secret struct{ value string }

// NewSecret hides a value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value itself.
func (s Secret) Reveal() string { return s.value }

// UnmarshalText takes the text as it is.
func (s *Secret) UnmarshalText(text []byte) error {
	s.value = string(text)
	return nil
}

// Masked is what may be shown: at most the last four characters of a secret of 20 and more, nothing of a shorter one.
func (s Secret) Masked() string {
	switch {
	case s.value == "":
		return ""
	case len(s.value) < 20:
		return "***"
	}
	tail := s.value[len(s.value)-4:]
	for i := range len(tail) {
		if tail[i] < '!' || tail[i] > '~' {
			return "***"
		}
	}
	return "***" + tail
}

func (s Secret) String() string { return s.Masked() }

// Format keeps every verb of fmt from showing the value.
func (s Secret) Format(f fmt.State, verb rune) {
	if verb == 'q' || (verb == 'v' && f.Flag('#')) {
		_, _ = io.WriteString(f, strconv.Quote(s.Masked()))
		return
	}
	_, _ = io.WriteString(f, s.Masked())
}

// LogValue is what slog shows.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.Masked()) }

// MarshalText is what JSON and TOML show.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.Masked()), nil }

// expand replaces "${NAME}" as the whole of a secret by the environment variable of that name. Text around it is refused: half a secret in the file is a mistake.
func (s Secret) expand(lookup func(string) (string, bool)) (Secret, error) {
	if !strings.Contains(s.value, "${") {
		return s, nil
	}
	name, ok := strings.CutPrefix(s.value, "${")
	if ok {
		name, ok = strings.CutSuffix(name, "}")
	}
	if !ok || strings.ContainsAny(name, "${}") || name == "" {
		return Secret{}, errors.New(`environment variables stand for a whole secret: write "${NAME}" and nothing around it`)
	}
	return fromEnvironment(name, lookup)
}

func fromEnvironment(name string, lookup func(string) (string, bool)) (Secret, error) {
	value, ok := lookup(name)
	if !ok {
		return Secret{}, fmt.Errorf("the environment variable %s is not set", name)
	}
	value = strings.TrimSpace(value)
	if value == "" {
		return Secret{}, fmt.Errorf("the environment variable %s is empty", name)
	}
	return Secret{value}, nil
}
