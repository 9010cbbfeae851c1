package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Redacted is the whole effective configuration as TOML, defaults included, secrets masked: what the check command prints and a support request may contain.
func (c *Config) Redacted() string {
	shown := *c
	shown.Cluster.Keys = nil // masked ones would be no keys, and what is printed should be a configuration
	shown.Engines = slices.Clone(c.Engines)
	for i := range shown.Engines {
		if e := &shown.Engines[i]; e.APIKeyEnv != "" {
			e.APIKey = Secret{} // the name of the variable says it all, and both are not allowed
		}
	}
	text, err := toml.Marshal(&shown)
	if err != nil {
		return fmt.Sprintf("# cannot be printed: %v\n", err)
	}
	return string(text)
}

func (c *Config) String() string { return c.Redacted() }

// Keys lists every key that a file may have, as "section.key": for completion, documentation and tests.
func Keys() []string {
	var keys []string
	var walk func(t reflect.Type, path string)
	walk = func(t reflect.Type, path string) {
		for i := range t.NumField() {
			field := t.Field(i)
			name := field.Tag.Get("toml")
			if name == "" {
				continue
			}
			at, of := join(path, name), field.Type
			if of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct {
				of = of.Elem()
			}
			if of.Kind() == reflect.Struct && of != reflect.TypeFor[Secret]() {
				walk(of, at)
				continue
			}
			keys = append(keys, strings.TrimPrefix(at, "."))
		}
	}
	walk(reflect.TypeFor[Config](), "")
	return keys
}
