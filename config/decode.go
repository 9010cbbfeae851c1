package config

import (
	"encoding"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// decode lays tree over c. go-toml's own decoder stops at the first wrong type; this one goes on, so that a file is mended in one round. The kinds of values are few: tables, arrays of tables,
// arrays of strings, tables of strings, strings, booleans, integers, floats and texts with a type of their own (Duration, Size, Secret).
func decode(c *Config, tree map[string]any, p *problems) {
	decodeTable(reflect.ValueOf(c).Elem(), tree, "", p)
}

func decodeTable(target reflect.Value, tree map[string]any, path string, p *problems) {
	fields, names := fieldsOf(target.Type())
	for key, value := range tree {
		at := join(path, key)
		index, ok := fields[key]
		if !ok {
			unknownKey(path, key, at, names, p)
			continue
		}
		decodeValue(target.Field(index), value, at, p)
	}
}

func fieldsOf(t reflect.Type) (index map[string]int, names []string) {
	index = map[string]int{}
	for i := range t.NumField() {
		if name := t.Field(i).Tag.Get("toml"); name != "" {
			index[name] = i
			names = append(names, name)
		}
	}
	return index, names
}

// keyHints are keys that people know from elsewhere, or write into the wrong table.
var keyHints = map[string]string{
	"port": `write the port into listen: "127.0.0.1:8080"`, "host": `write the host into listen: "127.0.0.1:8080"`, "address": `write url = "http://host:port"`, "base_url": `write url = "http://host:port"`,
	"backends": "write one [[engine]] per base URL", "servers": "write one [[engine]] per base URL", "workers": "write one [[engine]] per base URL", "upstream": "write one [[engine]] per base URL",
	"backend": "write one [[engine]] per base URL", "timeout": "timeouts are per phase: see [timeouts]", "timeout_seconds": "timeouts are per phase: see [timeouts]",
}

func unknownKey(path, key, at string, names []string, p *problems) {
	where := "at the top"
	if path != "" {
		where = "in [" + shown(path) + "]"
	}
	hint := ""
	if near := nearest(key, names); near != "" {
		hint = fmt.Sprintf("did you mean %q?", near)
	} else if elsewhere := homeOf(key, path); elsewhere != "" {
		hint = fmt.Sprintf("it belongs in %s", elsewhere)
	} else if known, ok := keyHints[strings.ToLower(key)]; ok {
		hint = known
	} else {
		sorted := slices.Clone(names)
		slices.Sort(sorted)
		hint = "known here: " + strings.Join(sorted, ", ")
	}
	p.unknownKey(at, hint, "unknown key %q %s", clip(key), where)
}

// homeOf names the section that has this very key, when exactly one has.
func homeOf(key, path string) string {
	found := ""
	root := reflect.TypeFor[Config]()
	for i := range root.NumField() {
		name, t := root.Field(i).Tag.Get("toml"), root.Field(i).Type
		section := "[" + name + "]"
		if t.Kind() == reflect.Slice {
			t, section = t.Elem(), "[["+name+"]]"
		}
		if name == key && path != "" && t.Kind() == reflect.String {
			return "the top of the file, before the first [section]"
		}
		if name == "" || t.Kind() != reflect.Struct {
			continue
		}
		if fields, _ := fieldsOf(t); hasKey(fields, key) {
			if found != "" {
				return ""
			}
			found = section
		}
	}
	return found
}

func hasKey(m map[string]int, key string) bool { _, ok := m[key]; return ok }

func decodeValue(target reflect.Value, value any, path string, p *problems) {
	if u, ok := target.Addr().Interface().(encoding.TextUnmarshaler); ok {
		decodeText(u, value, path, p)
		return
	}
	switch target.Kind() {
	case reflect.Struct:
		table, ok := value.(map[string]any)
		if !ok {
			mismatch(path, "a table", fmt.Sprintf("write [%s]", shown(path)), value, p)
			return
		}
		decodeTable(target, table, path, p)
	case reflect.Slice:
		decodeArray(target, value, path, p)
	case reflect.Map:
		decodeMap(target, value, path, p)
	case reflect.String:
		s, ok := value.(string)
		if !ok {
			mismatch(path, "a string", "put it in quotes", value, p)
			return
		}
		target.SetString(s)
	case reflect.Bool:
		b, ok := value.(bool)
		if !ok {
			mismatch(path, "true or false", unquote, value, p)
			return
		}
		target.SetBool(b)
	case reflect.Int, reflect.Int64:
		n, ok := value.(int64)
		if !ok {
			mismatch(path, "a whole number", unquote, value, p)
			return
		}
		if target.OverflowInt(n) {
			p.addf(path, "", "%s: %d is out of range", shown(path), n)
			return
		}
		target.SetInt(n)
	case reflect.Float64:
		switch n := value.(type) {
		case float64:
			target.SetFloat(n)
		case int64:
			target.SetFloat(float64(n))
		default:
			mismatch(path, "a number", unquote, value, p)
		}
	}
}

// decodeText reads a Duration, a Size or a Secret. Whole numbers are bytes of a Size; of a Duration only 0, since nobody can tell seconds from milliseconds.
func decodeText(u encoding.TextUnmarshaler, value any, path string, p *problems) {
	text, ok := value.(string)
	if n, isInt := value.(int64); isInt {
		_, isSize := u.(*Size)
		text, ok = strconv.FormatInt(n, 10), isSize || n == 0
	}
	switch u.(type) {
	case *Secret:
		if text, ok = value.(string); !ok {
			mismatch(path, "a string", "put it in quotes", value, p)
			return
		}
	case *Size:
		if !ok {
			mismatch(path, "a size", `write "16KB" or "64MB"`, value, p)
			return
		}
	default:
		if !ok {
			mismatch(path, "a duration", `write "500ms", "5s" or "2m", in quotes`, value, p)
			return
		}
	}
	if err := u.UnmarshalText([]byte(text)); err != nil {
		p.addError(path, err)
	}
}

func decodeArray(target reflect.Value, value any, path string, p *problems) {
	elements, ok := value.([]any)
	if target.Type().Elem() == reflect.TypeFor[Secret]() {
		if !ok {
			mismatch(path, "an array of strings", `write ["a", "b"]`, value, p)
			return
		}
		decodeSecrets(target, elements, path, p)
		return
	}
	if target.Type().Elem().Kind() == reflect.Struct {
		if _, isTable := value.(map[string]any); isTable { // [engine] instead of [[engine]]
			p.addf(path, fmt.Sprintf("write [[%s]]: there can be several", shown(path)), "%s must be in double brackets", shown(path))
			return
		}
		if !ok {
			mismatch(path, "an array of tables", fmt.Sprintf("write [[%s]]", shown(path)), value, p)
			return
		}
		for i, element := range elements {
			at := join(path, strconv.Itoa(i))
			table, ok := element.(map[string]any)
			if !ok {
				mismatch(at, "a table", fmt.Sprintf("write [[%s]]", shown(path)), element, p)
				continue
			}
			item := reflect.New(target.Type().Elem()).Elem()
			if e, isEngine := item.Addr().Interface().(*Engine); isEngine {
				*e = defaultEngine()
			}
			decodeTable(item, table, at, p)
			target.Set(reflect.Append(target, item))
		}
		return
	}
	if !ok {
		mismatch(path, "an array of strings", `write ["a", "b"]`, value, p)
		return
	}
	out := make([]string, 0, len(elements))
	for i, element := range elements {
		s, ok := element.(string)
		if !ok {
			mismatch(join(path, strconv.Itoa(i)), "a string", "put it in quotes", element, p)
			continue
		}
		out = append(out, s)
	}
	target.Set(reflect.ValueOf(out))
}

// decodeSecrets reads an array of secrets. Faults are told at the array: a line of its own might show a secret.
func decodeSecrets(target reflect.Value, elements []any, path string, p *problems) {
	var out []Secret
	for _, element := range elements {
		s, ok := element.(string)
		if !ok {
			mismatch(path, "an array of strings", "put each in quotes", element, p)
			continue
		}
		out = append(out, NewSecret(s))
	}
	target.Set(reflect.ValueOf(out))
}

func decodeMap(target reflect.Value, value any, path string, p *problems) {
	table, ok := value.(map[string]any)
	if !ok {
		mismatch(path, "a table of strings", fmt.Sprintf(`write [%s] and name = "value" below it`, shown(path)), value, p)
		return
	}
	out := reflect.MakeMap(target.Type())
	for key, element := range table {
		s, ok := element.(string)
		if !ok {
			hint := "put it in quotes"
			if _, nested := element.(map[string]any); nested {
				hint = "put names with dots in quotes"
			}
			mismatch(join(path, key), "a string", hint, element, p)
			continue
		}
		item := reflect.ValueOf(s)
		if target.Type().Elem() == reflect.TypeFor[Secret]() {
			item = reflect.ValueOf(NewSecret(s))
		}
		out.SetMapIndex(reflect.ValueOf(key), item)
	}
	target.Set(out)
}

const unquote = "write it without quotes"

func mismatch(path, want, hint string, value any, p *problems) {
	if _, quoted := value.(string); hint == unquote && !quoted {
		hint = ""
	}
	name := shown(path)
	if last := path[strings.LastIndexByte(path, '.')+1:]; strings.Trim(last, "0123456789") == "" {
		name = "each of " + name
	}
	p.addf(path, hint, "%s must be %s, not %s", name, want, kindOf(value))
}

func kindOf(value any) string {
	switch value.(type) { // never the value itself: it may be a secret without its quotes
	case string:
		return "a string"
	case bool:
		return "true or false"
	case int64:
		return "a number"
	case float64:
		return "a fraction"
	case map[string]any:
		return "a table"
	case []any:
		return "an array"
	}
	return "a date"
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:80], "") + "…"
	}
	return s
}
