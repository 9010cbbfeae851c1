package config

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func read(t *testing.T, text string) *Config {
	t.Helper()
	c, err := parse("warmring.toml", []byte(text), environment("KEY", "kk-from-the-environment"))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// What an operator reads after a reload: each difference once, by the engine's name, and no secret.
func TestWhatAReloadChangesIsToldInWords(t *testing.T) {
	before := read(t, `
retry.wait = "5s"
[[engine]]
name = "a"
url = "http://h:1"
api_key = "kk-the-old-one"
[[engine]]
name = "b"
url = "http://h:2"
[[engine]]
name = "gone"
url = "http://h:3"
`)
	after := read(t, `
retry.wait = "0s"
paths.allow = ["/metrics"]
models.alias = { small = "big" }
[[engine]]
name = "new"
url = "http://h:4"
[[engine]]
name = "b"
url = "http://h:2"
weight = 2
[[engine]]
name = "a"
url = "http://h:1"
api_key = "kk-the-new-one"
`)
	got, err := after.ChangesFrom(before)
	want := []string{
		"retry.wait 5s → 0s", "models.alias map[] → map[small:big]", "paths.allow [] → [/metrics]",
		"engine new added", "engine b weight 1 → 2", "engine a api_key changed", "engine gone removed",
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\n%q\nwant\n%q", err, got, want)
	}
	if got, err := after.ChangesFrom(after); err != nil || len(got) > 0 {
		t.Errorf("against itself: %q, %v", got, err)
	}
}

// Keys that other processes and open sockets depend on are refused by name and place, all of them at once, and then nothing
// of the file counts.
func TestWhatNeedsARestartIsRefusedByNameAndLine(t *testing.T) {
	const engine = "[[engine]]\nurl = \"http://h:1\"\n"
	before := read(t, "listen = \"127.0.0.1:8080\"\nidentity.secret = \"sssss-one\"\n[lanes]\noff = false\n"+engine)
	after := read(t, "listen = \"127.0.0.1:9090\"\nidentity.secret = \"sssss-two\"\n[lanes]\noff = true\n[server]\nmax_body = \"1MB\"\n"+engine)
	got, err := after.ChangesFrom(before)
	var told *Error
	if !errors.As(err, &told) || len(got) > 0 {
		t.Fatalf("%q, %v", got, err)
	}
	const want = `warmring.toml:1:1: listen: it is "127.0.0.1:8080" and cannot become "127.0.0.1:9090" while warmring runs; `
	if !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "sssss") {
		t.Errorf("%v\nwant\n%s", err, want)
	}
	for i, key := range []string{"listen", "identity.secret", "server.max_body"} {
		if told.Problems[i].Key != key || told.Problems[i].Line() != []int{1, 2, 6}[i] {
			t.Errorf("%s on line %d", told.Problems[i].Key, told.Problems[i].Line())
		}
	}
}

// Cluster keys rotate; encryption is not turned on or off.
func TestClusterKeysRotate(t *testing.T) {
	const engine = "[[engine]]\nurl = \"http://h:1\"\n[cluster]\nbind = \"127.0.0.1:7946\"\n"
	one, two := strings.Repeat("1", 32), strings.Repeat("2", 32)
	none, old, both := read(t, engine), read(t, engine+"keys = [\""+one+"\"]"), read(t, engine+"keys = [\""+one+"\", \""+two+"\"]")
	if got, err := both.ChangesFrom(old); err != nil || !slices.Equal(got, []string{"cluster.keys changed"}) {
		t.Errorf("%q, %v", got, err)
	}
	for name, pair := range map[string][2]*Config{"on": {none, old}, "off": {old, none}} {
		if got, err := pair[1].ChangesFrom(pair[0]); err == nil || len(got) > 0 || !strings.Contains(err.Error(), "cluster.keys") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// Whatever is not said to be live needs a restart: a key that somebody adds and nobody wires into a reload must not be
// accepted in silence. And each key there is makes exactly one difference.
func TestEveryKeyIsEitherAppliedOrRefused(t *testing.T) {
	restart := map[string]bool{"listen": true, "admin.listen": true, "identity.secret": true}
	for _, key := range Keys() {
		if section, name, _ := strings.Cut(key, "."); section == "server" || section == "routing" || section == "cluster" && name != "keys" {
			restart[key] = true
		}
	}
	refused := map[string]bool{}
	for _, key := range Keys() {
		before, after := read(t, SmallestFile), read(t, SmallestFile)
		before.Cluster.Keys, after.Cluster.Keys = []Secret{NewSecret("x")}, []Secret{NewSecret("x")}
		if key == "engine.name" {
			continue // another name is another engine
		}
		change(field(reflect.ValueOf(after).Elem(), strings.Split(key, ".")))
		changes, err := after.ChangesFrom(before)
		if (err == nil) == (len(changes) == 0) || len(changes) > 1 {
			t.Errorf("%s: %q, %v", key, changes, err)
		}
		if err != nil {
			refused[key] = true
		}
	}
	if !maps.Equal(refused, restart) {
		t.Errorf("need a restart: %v\nwant %v", slices.Sorted(maps.Keys(refused)), slices.Sorted(maps.Keys(restart)))
	}
}

// field finds a key's value; of arrays the first element.
func field(v reflect.Value, path []string) reflect.Value {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Struct && len(path) > 0 {
		v = v.Index(0)
	}
	if len(path) == 0 {
		return v
	}
	index, _ := fieldsOf(v.Type())
	return field(v.Field(index[path[0]]), path[1:])
}

// change gives a value that it did not have.
func change(v reflect.Value) {
	switch {
	case v.Type() == reflect.TypeFor[Secret]():
		v.Set(reflect.ValueOf(NewSecret("another")))
	case v.Kind() == reflect.String:
		v.SetString(v.String() + "x")
	case v.Kind() == reflect.Bool:
		v.SetBool(!v.Bool())
	case v.CanInt():
		v.SetInt(v.Int() + 1)
	case v.CanFloat():
		v.SetFloat(v.Float() / 2)
	case v.Kind() == reflect.Map:
		element := reflect.New(v.Type().Elem()).Elem()
		change(element)
		m := reflect.MakeMap(v.Type())
		m.SetMapIndex(reflect.ValueOf("x"), element)
		v.Set(m)
	case v.Kind() == reflect.Slice:
		element := reflect.New(v.Type().Elem()).Elem()
		change(element)
		v.Set(reflect.Append(v, element))
	}
}
