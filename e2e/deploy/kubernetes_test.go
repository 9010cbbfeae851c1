package deploy

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warmring/warmring/config"
)

// manifests are the objects of one kustomization.
type manifests struct {
	t       *testing.T
	dir     string
	objects []any
}

func kustomization(t *testing.T, name string) *manifests {
	t.Helper()
	k := &manifests{t: t, dir: filepath.Join("kubernetes", name)}
	listed := texts(document(t, filepath.Join(k.dir, "kustomization.yaml")), "resources")
	for _, file := range listed {
		k.objects = append(k.objects, documents(t, filepath.Join(k.dir, file))...)
	}
	all, err := filepath.Glob(filepath.Join(k.dir, "*.yaml"))
	if err != nil || len(all) != len(listed)+1 {
		t.Errorf("%s has %v, and lists %v (%v)", k.dir, all, listed, err)
	}
	for _, o := range k.objects {
		if text(o, "apiVersion") == "" || text(o, "kind") == "" || text(o, "metadata", "name") == "" {
			t.Errorf("%s: an object without kind or name: %v", k.dir, o)
		}
	}
	return k
}

func (k *manifests) of(kind string) (out []any) {
	for _, o := range k.objects {
		if text(o, "kind") == kind {
			out = append(out, o)
		}
	}
	return out
}

func (k *manifests) named(kind, name string) any {
	for _, o := range k.of(kind) {
		if text(o, "metadata", "name") == name {
			return o
		}
	}
	k.t.Fatalf("%s has no %s %s", k.dir, kind, name)
	return nil
}

// workloads are the objects that make pods.
func (k *manifests) workloads() []any { return append(k.of("Deployment"), k.of("StatefulSet")...) }

func containers(workload any) []any {
	pod := at(workload, "spec", "template", "spec")
	return append(slices.Clone(list(pod, "initContainers")), list(pod, "containers")...)
}

// chosen lists the workloads whose pods have all these labels.
func (k *manifests) chosen(labels map[string]any) (out []any) {
	for _, w := range k.workloads() {
		match := len(labels) > 0
		for name, value := range labels {
			match = match && at(w, "spec", "template", "metadata", "labels", name) == value
		}
		if match {
			out = append(out, w)
		}
	}
	return out
}

// portOf finds a container port of a workload by its name.
func portOf(workload any, name string) any {
	for _, c := range containers(workload) {
		for _, p := range list(c, "ports") {
			if text(p, "name") == name {
				return p
			}
		}
	}
	return nil
}

func eachKustomization(t *testing.T, f func(t *testing.T, k *manifests)) {
	for _, name := range []string{"gateway", "sidecar", "engines"} {
		t.Run(name, func(t *testing.T) { f(t, kustomization(t, name)) })
	}
}

func TestSelectorsFindPodsAndPortsThatExist(t *testing.T) {
	eachKustomization(t, func(t *testing.T, k *manifests) {
		find := func(what any, labels map[string]any) []any {
			found := k.chosen(labels)
			if len(found) == 0 {
				t.Errorf("%s %s chooses no pods: %v", text(what, "kind"), text(what, "metadata", "name"), labels)
			}
			return found
		}
		for _, w := range k.workloads() {
			find(w, table(w, "spec", "selector", "matchLabels"))
			for _, c := range containers(w) {
				for _, probe := range []string{"readinessProbe", "livenessProbe", "startupProbe"} {
					for _, how := range []string{"httpGet", "tcpSocket"} {
						if p := at(c, probe, how); p != nil && portOf(w, text(p, "port")) == nil {
							t.Errorf("%s asks port %q, which is not there", probe, text(p, "port"))
						}
					}
				}
			}
		}
		for _, s := range k.of("Service") {
			for _, w := range find(s, table(s, "spec", "selector")) {
				for _, p := range list(s, "spec", "ports") {
					target := portOf(w, text(p, "targetPort"))
					if target == nil || text(target, "containerPort") != text(p, "port") || text(target, "protocol") != text(p, "protocol") {
						t.Errorf("service %s: port %v finds %v", text(s, "metadata", "name"), p, target)
					}
				}
			}
		}
		for _, o := range k.of("PodDisruptionBudget") {
			find(o, table(o, "spec", "selector", "matchLabels"))
		}
		for _, n := range k.of("NetworkPolicy") {
			for _, w := range find(n, table(n, "spec", "podSelector", "matchLabels")) {
				for _, rule := range list(n, "spec", "ingress") {
					for _, p := range list(rule, "ports") {
						if target := portOf(w, text(p, "port")); target == nil || text(target, "protocol") != "" && text(target, "protocol") != text(p, "protocol") {
							t.Errorf("policy %s: port %v finds %v", text(n, "metadata", "name"), p, target)
						}
					}
				}
			}
		}
	})
}

// rules lists who may reach a port by a policy.
func rules(policy any, port string) (from []any) {
	for _, rule := range list(policy, "spec", "ingress") {
		for _, p := range list(rule, "ports") {
			if text(p, "port") == port {
				from = append(from, list(rule, "from")...)
			}
		}
	}
	return from
}

func TestOnlyProxiesGossipAndOnlyMonitoringReachesTheAdminListener(t *testing.T) {
	member := func(from []any) bool {
		return len(from) == 1 && text(from[0], "podSelector", "matchLabels", "warmring/gossip") == "member"
	}
	for dir, policy := range map[string]string{"gateway": "warmring", "sidecar": "agent"} {
		n := kustomization(t, dir).named("NetworkPolicy", policy)
		for _, port := range []string{"gossip-tcp", "gossip-udp"} {
			if from := rules(n, port); !member(from) {
				t.Errorf("%s: %s is open to %v", dir, port, from)
			}
		}
		for _, from := range rules(n, "admin") {
			if at(from, "podSelector") != nil || text(from, "namespaceSelector", "matchLabels", "kubernetes.io/metadata.name") != "monitoring" {
				t.Errorf("%s: the admin listener is open to %v", dir, from)
			}
		}
	}
	if from := rules(kustomization(t, "engines").named("NetworkPolicy", "vllm"), "http"); !member(from) {
		t.Errorf("engines are open to %v", from)
	}
}

// proxyOf is the container that runs warmring, with the configuration that it reads.
func proxyOf(t *testing.T, k *manifests) (workload, container any, file string, cfg *config.Config) {
	t.Helper()
	for _, workload = range k.workloads() {
		for _, container = range containers(workload) {
			if text(container, "image") == "warmring" {
				file = filepath.Join(k.dir, "warmring.toml")
				return workload, container, file, configuration(t, file)
			}
		}
	}
	t.Fatalf("%s has no warmring", k.dir)
	return nil, nil, "", nil
}

func TestPodsOfProxiesAgreeWithTheirConfiguration(t *testing.T) {
	for _, name := range []string{"gateway", "sidecar"} {
		k := kustomization(t, name)
		workload, container, file, cfg := proxyOf(t, k)
		pod := at(workload, "spec", "template", "spec")
		is := func(portName, address string) {
			if p := portOf(workload, portName); p != nil && text(p, "containerPort") != port(t, address) {
				t.Errorf("%s: port %s is %s, and %s is listened on", name, portName, text(p, "containerPort"), address)
			}
		}
		is("http", cfg.Listen)
		is("gossip-tcp", cfg.Cluster.Bind)
		is("gossip-udp", cfg.Cluster.Bind)
		if cfg.Admin.Listen != "" {
			is("admin", cfg.Admin.Listen)
			if scraped := text(workload, "spec", "template", "metadata", "annotations", "prometheus.io/port"); scraped != port(t, cfg.Admin.Listen) {
				t.Errorf("%s: port %s is scraped", name, scraped)
			}
		}
		// The file: generated, mounted, named.
		kust := document(t, filepath.Join(k.dir, "kustomization.yaml"))
		if generated := text(kust, "configMapGenerator", 0, "name"); text(pod, "volumes", 0, "configMap", "name") != generated || !slices.Contains(texts(kust, "configMapGenerator", 0, "files"), "warmring.toml") {
			t.Errorf("%s: the ConfigMap %s is not what is mounted", name, generated)
		}
		args := texts(container, "args")
		if want := text(container, "volumeMounts", 0, "mountPath") + "/warmring.toml"; args[len(args)-1] != want || text(container, "volumeMounts", 0, "name") != text(pod, "volumes", 0, "name") {
			t.Errorf("%s reads %v, mounted is %s", name, args, want)
		}
		// The names to join.
		for _, address := range cfg.Cluster.Join {
			host, p, _ := strings.Cut(address, ":")
			s := k.named("Service", host)
			if text(s, "spec", "clusterIP") != "None" || text(s, "spec", "publishNotReadyAddresses") != "true" || text(s, "spec", "ports", 0, "port") != p {
				t.Errorf("%s: %s is not found by %v", name, address, s)
			}
		}
		// Secrets.
		secret := text(container, "envFrom", 0, "secretRef", "name")
		head := read(t, filepath.Join("kubernetes", "gateway", "kustomization.yaml"))
		given(t, file, "the Secret "+secret, func(variable string) bool {
			return strings.Contains(head, "create secret generic "+secret+" ") && strings.Contains(head, "--from-literal="+variable+"=")
		})
		// Time to end, and memory.
		var before int
		if s := text(container, "lifecycle", "preStop", "sleep", "seconds"); s != "" {
			before, _ = strconv.Atoi(s)
		}
		grace, _ := strconv.Atoi(text(pod, "terminationGracePeriodSeconds"))
		if needed := time.Duration(before)*time.Second + drains(cfg); time.Duration(grace)*time.Second < needed {
			t.Errorf("%s: a pod may take %v to end, and gets %d s", name, needed, grace)
		}
		soft, hard := mebibytes(t, text(container, "env", 0, "value")), mebibytes(t, text(container, "resources", "limits", "memory"))
		if text(container, "env", 0, "name") != "GOMEMLIMIT" || soft >= hard || soft < hard/2 {
			t.Errorf("%s: GOMEMLIMIT is %d MiB of %d", name, soft, hard)
		}
		if text(container, "securityContext", "readOnlyRootFilesystem") != "true" || text(pod, "automountServiceAccountToken") != "false" {
			t.Errorf("%s has rights that it does not need", name)
		}
	}
}

func mebibytes(t *testing.T, s string) int {
	t.Helper()
	m := regexp.MustCompile(`^(\d+)(Mi|Gi|MiB|GiB)$`).FindStringSubmatch(s)
	if m == nil {
		t.Fatalf("%q is not a size", s)
	}
	n, _ := strconv.Atoi(m[1])
	if m[2][0] == 'G' {
		n *= 1024
	}
	return n
}

// Every pod of the engines has an entry in every proxy's file, and the other way round.
func TestConfigurationsNameThePodsOfTheEngines(t *testing.T) {
	k := kustomization(t, "engines")
	set, service := k.named("StatefulSet", "vllm"), k.named("Service", "vllm")
	replicas, _ := strconv.Atoi(text(set, "spec", "replicas"))
	if text(set, "spec", "serviceName") != text(service, "metadata", "name") || text(service, "spec", "clusterIP") != "None" {
		t.Error("the StatefulSet's Service gives its pods no names")
	}
	container := containers(set)[0]
	keepAlive, _ := strconv.Atoi(text(container, "env", 0, "value"))
	if text(container, "env", 0, "name") != "VLLM_HTTP_TIMEOUT_KEEP_ALIVE" || !slices.Contains(texts(container, "args"), "--enable-prompt-tokens-details") {
		t.Error("vLLM lacks a setting that the README asks for")
	}
	var names []string
	for i := range replicas {
		names = append(names, fmt.Sprintf("vllm-%d", i))
	}
	for _, name := range []string{"gateway", "sidecar"} {
		_, _, _, cfg := proxyOf(t, kustomization(t, name))
		var listed []string
		for _, e := range cfg.Engines {
			u, err := url.Parse(e.URL)
			if err != nil || u.Host != e.Name+".vllm:"+text(service, "spec", "ports", 0, "port") {
				t.Errorf("%s: engine %s is not at %s (%v)", name, e.Name, e.URL, err)
			}
			if e.MaxIdle.Std() >= time.Duration(keepAlive)*time.Second {
				t.Errorf("%s: connections to %s are kept for %v, by vLLM for %d s", name, e.Name, e.MaxIdle.Std(), keepAlive)
			}
			if e.APIKeyEnv != text(container, "env", 1, "valueFrom", "secretKeyRef", "key") {
				t.Errorf("%s: engine %s takes the key of another variable", name, e.Name)
			}
			listed = append(listed, e.Name)
		}
		if !slices.Equal(listed, names) {
			t.Errorf("%s lists %v, there are %v", name, listed, names)
		}
	}
}

// A gateway and sidecars can be in one cluster: what must be the same is.
func TestGatewayAndSidecarAgree(t *testing.T) {
	a, b := kustomization(t, "gateway"), kustomization(t, "sidecar")
	if !strings.HasSuffix(read(t, "kubernetes/gateway/services.yaml"), read(t, "kubernetes/sidecar/services.yaml")) {
		t.Error("warmring-headless is not the same in both")
	}
	_, _, _, one := proxyOf(t, a)
	_, _, _, two := proxyOf(t, b)
	if one.Cluster.Name != two.Cluster.Name || one.Routing.VirtualNodes != two.Routing.VirtualNodes || one.Identity.Secret != two.Identity.Secret {
		t.Error("they do not agree about homes")
	}
	if two.Admin.Listen != "" || !strings.HasPrefix(two.Listen, "127.0.0.1:") {
		t.Error("the sidecar is open to more than its agent")
	}
	for _, variable := range list(containers(b.named("Deployment", "agent"))[1], "env") {
		if !strings.HasPrefix(text(variable, "value"), "http://"+two.Listen) {
			t.Errorf("the agent does not ask its sidecar: %v", variable)
		}
	}
}

func TestEveryYAMLFileIsWellFormed(t *testing.T) {
	all := files(t, ".yaml")
	if len(all) < 12 {
		t.Errorf("only %v", all)
	}
	for _, file := range all {
		for i, d := range documents(t, file) {
			if table(d) == nil {
				t.Errorf("%s: document %d is no mapping", file, i+1)
			}
		}
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}
