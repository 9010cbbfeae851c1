package config

import (
	"fmt"
	"reflect"
	"strconv"
)

// ChangesFrom compares c, just read, with the configuration that a proxy runs with, and tells in one line each what is another. Secrets are told by their key alone. If something differs that
// cannot change while the proxy runs, that is an *Error with the place of each such key in c's file, and there are no changes: a file is taken as a whole or not at all.
func (c *Config) ChangesFrom(running *Config) ([]string, error) {
	d := &differences{problems: problems{source: c.source}}
	if d.problems.source == nil {
		d.problems.source = &source{name: "configuration"}
	}
	d.table(reflect.ValueOf(running).Elem(), reflect.ValueOf(c).Elem(), "", "", false)
	d.engines(running.Engines, c.Engines)
	if was, is := len(running.Cluster.Keys) > 0, len(c.Cluster.Keys) > 0; was != is {
		d.refuse("cluster.keys", "encryption between proxies cannot be turned on or off")
	}
	if err := d.problems.err(); err != nil {
		return nil, err
	}
	return d.changes, nil
}

// differences collects what two configurations do not have in common.
type differences struct {
	changes  []string
	problems problems
}

func (d *differences) refuse(path, what string) {
	d.problems.addf(path, "restart it for that, or put the old value back: until then nothing of this file applies", "%s: %s while warmring runs", shown(path), what)
}

// table compares two tables. The name stands before each key in what is told; live says whether all of it may change.
func (d *differences) table(was, is reflect.Value, path, name string, live bool) {
	for i := range was.NumField() {
		field := was.Type().Field(i)
		key := field.Tag.Get("toml")
		if key == "" || field.Type == reflect.TypeFor[[]Engine]() {
			continue
		}
		at, told, may := join(path, key), name+key, live || field.Tag.Get("reload") == "live"
		if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[Secret]() {
			d.table(was.Field(i), is.Field(i), at, told+".", may)
			continue
		}
		if same(was.Field(i), is.Field(i)) {
			continue
		}
		before, after := inWords(was.Field(i)), inWords(is.Field(i))
		switch secret := before == "" || after == ""; {
		case !may && secret:
			d.refuse(at, "it cannot change")
		case !may:
			d.refuse(at, fmt.Sprintf("it is %s and cannot become %s", before, after))
		case secret:
			d.changes = append(d.changes, told+" changed")
		default:
			d.changes = append(d.changes, fmt.Sprintf("%s %s → %s", told, before, after))
		}
	}
}

// engines compares two lists by the engines' names.
func (d *differences) engines(was, is []Engine) {
	before := make(map[string]*Engine, len(was))
	for i := range was {
		before[was[i].Name] = &was[i]
	}
	for i := range is {
		old := before[is[i].Name]
		if old == nil {
			d.changes = append(d.changes, fmt.Sprintf("engine %s added", is[i].Name))
			continue
		}
		delete(before, is[i].Name)
		d.table(reflect.ValueOf(old).Elem(), reflect.ValueOf(&is[i]).Elem(), join("engine", strconv.Itoa(i)), "engine "+is[i].Name+" ", true)
	}
	for i := range was {
		if before[was[i].Name] != nil {
			d.changes = append(d.changes, fmt.Sprintf("engine %s removed", was[i].Name))
		}
	}
}

func same(a, b reflect.Value) bool {
	if k := a.Kind(); (k == reflect.Slice || k == reflect.Map) && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

// inWords is a value for people, "" for a secret.
func inWords(v reflect.Value) string {
	t := v.Type()
	if k := t.Kind(); k == reflect.Slice || k == reflect.Map {
		t = t.Elem()
	}
	if t == reflect.TypeFor[Secret]() {
		return ""
	}
	if v.Kind() == reflect.String {
		return strconv.Quote(clip(v.String()))
	}
	return clip(fmt.Sprint(v.Interface()))
}
