package deploy

import (
	"context"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/warmring/warmring/e2e"
)

// callable checks a command line against the built program's own help: the command must exist and know every flag.
func callable(t *testing.T, where string, args []string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	if len(args) == 0 {
		t.Errorf("%s calls no command", where)
		return
	}
	help, err := exec.Command(path, args[0], "-h").CombinedOutput()
	if err != nil {
		t.Errorf("%s: warmring %s -h: %v\n%s", where, args[0], err, help)
		return
	}
	known := regexp.MustCompile(`(?m)^  -([a-z]+)`).FindAllStringSubmatch(string(help), -1)
	for _, arg := range args[1:] {
		if name, isFlag := strings.CutPrefix(arg, "-"); isFlag && !slices.ContainsFunc(known, func(m []string) bool { return m[1] == name }) {
			t.Errorf("%s: warmring %s has no flag %s", where, args[0], arg)
		}
	}
}

func TestEveryCommandLineIsOneOfTheProgram(t *testing.T) {
	quoted := func(s string) (out []string) {
		for _, m := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(s, -1) {
			out = append(out, m[1])
		}
		return out
	}
	callable(t, "Dockerfile", quoted(regexp.MustCompile(`(?m)^CMD .*$`).FindString(read(t, "Dockerfile"))))
	for name, service := range table(document(t, "compose.yaml"), "services") {
		if command := texts(service, "command"); len(command) > 0 {
			callable(t, name, command)
		}
	}
	for _, dir := range []string{"gateway", "sidecar"} {
		_, container, _, _ := proxyOf(t, kustomization(t, dir))
		callable(t, dir, texts(container, "args"))
	}
	_, start, _ := strings.Cut(read(t, "systemd/warmring.service"), "ExecStart=/usr/local/bin/warmring ")
	start, _, _ = strings.Cut(start, "\n")
	callable(t, "systemd", strings.Fields(start))
	lines := regexp.MustCompile("`warmring ([^`]+)`").FindAllStringSubmatch(read(t, "README.md"), -1)
	if len(lines) < 3 {
		t.Errorf("the README shows %v", lines)
	}
	for _, m := range lines {
		callable(t, "README", strings.Fields(m[1]))
	}
}

// A person who builds a dashboard from the README must find what it names.
func TestEveryMetricNamedIsOnThePage(t *testing.T) {
	tp := startTopology(t)
	judge(t, "some traffic", tp.during(12, func() {}))
	page := map[string]bool{} // names
	labels := ""
	for _, name := range tp.names {
		m, err := e2e.Scrape(context.Background(), "http://"+tp.hosts[name+":8081"]+"/metrics")
		if err != nil {
			t.Fatal(err)
		}
		for series := range m {
			metric, rest, _ := strings.Cut(series, "{")
			page[metric] = true
			labels += metric + "{" + rest + "\n"
		}
	}
	named := regexp.MustCompile(`warmring_[a-z_]+[a-z]`)
	told := 0
	for _, file := range []string{"README.md", "alerts.yaml"} {
		for _, metric := range named.FindAllString(read(t, file), -1) {
			told++
			if !page[metric] && !page[metric+"_bucket"] {
				t.Errorf("%s names %s, which no proxy has", file, metric)
			}
		}
		// Labels: name{label} in the README, label="value" and by (label) in the alerts.
		for _, m := range regexp.MustCompile(`(warmring_[a-z_]+)\{([a-z,]+)\}`).FindAllStringSubmatch(read(t, file), -1) {
			for _, label := range strings.Split(m[2], ",") {
				if !regexp.MustCompile(m[1] + `(_bucket)?\{[^\n]*` + label + `="`).MatchString(labels) {
					t.Errorf("%s: %s has no label %s", file, m[1], label)
				}
			}
		}
		for _, m := range regexp.MustCompile(`end=~?"([a-z_|]+)"`).FindAllStringSubmatch(read(t, file), -1) {
			for _, value := range strings.Split(m[1], "|") {
				if !strings.Contains(labels, `end="`+value+`"`) {
					t.Errorf("%s: no request ends as %s", file, value)
				}
			}
		}
	}
	if told < 40 {
		t.Errorf("only %d metrics are named", told)
	}
}

func TestAlertsSayWhatToDo(t *testing.T) {
	rules := list(document(t, "alerts.yaml"), "groups", 0, "rules")
	seen := map[string]bool{}
	for _, rule := range rules {
		name := text(rule, "alert")
		if name == "" || seen[name] || text(rule, "expr") == "" || text(rule, "annotations", "summary") == "" || text(rule, "annotations", "action") == "" || text(rule, "labels", "severity") == "" {
			t.Errorf("an alert lacks something: %v", rule)
		}
		seen[name] = true
	}
	if len(rules) < 8 {
		t.Errorf("%d alerts", len(rules))
	}
}
