package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
)

// prints is every way in which a value ends up in a log or an answer.
func prints(values ...any) []string {
	var out []string
	for _, value := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			out = append(out, fmt.Sprintf(verb, value))
		}
		if text, err := json.Marshal(value); err == nil {
			out = append(out, string(text))
		}
		var log bytes.Buffer
		slog.New(slog.NewTextHandler(&log, nil)).Info("x", "value", value)
		slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "value", value)
		out = append(out, log.String())
	}
	return out
}
