package config

import (
	"reflect"
	"strings"
	"testing"
)

// zeros are the keys that may be 0, and what that means. Nowhere does it mean "without limit" by accident: a bound that may be
// 0 allows nothing, a time that may be 0 is no time, or the comment of its field says what is taken instead.
var zeros = map[string]string{
	"drain.delay":            "no request is served any more",
	"drain.limit":            "running answers are cut at once",
	"timeouts.first_byte":    "no limit, as documented",
	"timeouts.between_bytes": "no limit, as documented",
	"retry.wait":             "503 at once",
	"retry.max_waiting":      "nobody waits",
	"routing.hysteresis":     "any gain is worth a move",
	"routing.index_tokens":   "what the engines report, as documented",
	"keepalive.comments":     "off, as documented",
	"cluster.ready_limit":    "ready without waiting for the others",
	"lanes.border":           "derived, as documented",
	"lanes.budget":           "one long prefill at a time, as documented",
	"lanes.max_extra_delay":  "derived, as documented",
	"engine.kv_tokens":       "unknown until learned, as documented",
}

// C144: whoever sets a limit to 0 or below by mistake must hear of it, or get what the documentation says. Every number and
// every time of the file is tried.
func TestZeroAndNegativeLimitsMeanWhatIsDocumented(t *testing.T) {
	seen := map[string]bool{}
	parses := func(section, key, value string) error {
		text := SmallestFile
		switch section {
		case "":
			text = key + " = " + value + "\n" + text
		case "engine":
			text += key + " = " + value + "\n"
		case "cluster":
			text += "[cluster]\nbind = \"127.0.0.1:7946\"\n" + key + " = " + value + "\n"
		default:
			text += "[" + section + "]\n" + key + " = " + value + "\n"
		}
		_, err := parse("limits.toml", []byte(text), func(string) (string, bool) { return "", false })
		return err
	}
	try := func(section, key string, value any) {
		name := strings.TrimPrefix(section+"."+key, ".")
		minus, none := "-1", "0"
		switch value.(type) {
		case Duration:
			minus, none = `"-1s"`, `"0s"`
		case float64:
			minus, none = "-1.0", "0.0"
		}
		if err := parses(section, key, minus); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s = %s: %v", name, minus, err)
		}
		err := parses(section, key, none)
		if _, documented := zeros[name]; documented != (err == nil) {
			t.Errorf("%s = %s is accepted: %v; it is documented: %v", name, none, err == nil, documented)
		}
		seen[name] = true
	}
	for _, section := range sectionsOf(reflect.ValueOf(*Default())) {
		for key, value := range section.numbers {
			try(section.name, key, value)
		}
	}
	for name := range zeros {
		if !seen[name] {
			t.Errorf("there is no key %s", name)
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d keys were tried", len(seen))
	}
}

// numbered is a section of the file with its keys that are numbers, sizes or times.
type numbered struct {
	name    string
	numbers map[string]any
}

func sectionsOf(config reflect.Value) (all []numbered) {
	top := numbered{numbers: map[string]any{}}
	numbers := func(v reflect.Value) map[string]any {
		out := map[string]any{}
		for i := range v.NumField() {
			switch v.Field(i).Kind() {
			case reflect.Int, reflect.Int64, reflect.Float64:
				out[v.Type().Field(i).Tag.Get("toml")] = v.Field(i).Interface()
			}
		}
		return out
	}
	for i := range config.NumField() {
		field := config.Type().Field(i)
		name := field.Tag.Get("toml")
		switch {
		case name == "":
		case field.Type.Kind() == reflect.Struct:
			all = append(all, numbered{name, numbers(config.Field(i))})
		case name == "engine":
			all = append(all, numbered{name, numbers(reflect.ValueOf(defaultEngine()))})
		}
	}
	return append(all, top)
}
