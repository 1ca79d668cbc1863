package cluster

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// All problems are reported at once, with the flag and its value.
func TestCheck(t *testing.T) {
	c := Config{Dir: "/" + strings.Repeat("long ", 20), Bin: t.TempDir(), Nodes: 99, Slots: -1,
		Kwok: 5001, KwokCPU: "much", KwokMemory: ""}
	err := c.check()
	if err == nil {
		t.Fatal("it was accepted")
	}
	for _, want := range []string{
		"--dir is", "without spaces", "--nodes is 99", "--slots is -1", "--kwok is 5001",
		`--kwok-cpu is "much"`, `--kwok-memory is ""`, "has no kube;", "has no kwok;",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not reported in:\n%v", want, err)
		}
	}
	if err := (&Config{Bin: c.Bin}).check(); err == nil || !strings.Contains(err.Error(), "at least one node") {
		t.Errorf("a cluster of nothing: %v", err)
	}
}

func TestCheckAccepts(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"kube", "kwok"} {
		if err := os.WriteFile(filepath.Join(bin, name), nil, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	c := Config{Dir: "c", Bin: bin, Kwok: 200, KwokCPU: "7500m", KwokMemory: "16Gi"}
	if err := c.check(); err != nil {
		t.Fatal(err)
	}
	if !filepath.IsAbs(c.Dir) {
		t.Errorf("the folder is %q", c.Dir)
	}
}

// A cluster without real nodes uses only its directory and 127.0.0.1.
func TestFakeClusterKeepsToItself(t *testing.T) {
	s := newState(t, Config{Kwok: 3})
	for _, c := range s.all() {
		for _, arg := range c.Args {
			for _, ip := range regexp.MustCompile(`\d+\.\d+\.\d+\.\d+(/\d+)?`).FindAllString(arg, -1) {
				if !strings.HasPrefix(ip, "127.0.0.1") && !strings.Contains(ip, "/") {
					t.Errorf("%s has the address %s in %q", c.Name, ip, arg)
				}
			}
			for _, path := range regexp.MustCompile(`=(/[^ ]*)`).FindAllStringSubmatch(arg, -1) {
				if !strings.HasPrefix(path[1], s.Dir+"/") {
					t.Errorf("%s uses %s, which is not in the cluster's folder", c.Name, path[1])
				}
			}
		}
	}
}

// `down` finds each process by the mark, and `kill node-i` those of a node.
func TestMarks(t *testing.T) {
	s := newState(t, Config{Nodes: 2, Kwok: 1})
	names := map[string]bool{}
	for _, c := range s.all() {
		if !slices.Contains(c.Env, "ELASTICDL_CLUSTER_PROCESS="+s.Mark) {
			t.Errorf("%s has no mark: %q", c.Name, c.Env)
		}
		node, isNode := strings.CutPrefix(c.Name, "kubelet-")
		if !isNode {
			node, isNode = strings.CutPrefix(c.Name, "containerd-")
		}
		if got := slices.Contains(c.Env, "ELASTICDL_CLUSTER_NODE="+s.Mark+"/node-"+node); got != isNode {
			t.Errorf("%s: marked as of node %q: %v", c.Name, node, got)
		}
		if names[c.Name] {
			t.Errorf("two components are %s", c.Name)
		}
		names[c.Name] = true
	}
}

// A proxy that this machine needs otherwise is not used for the cluster's addresses.
func TestNoProxy(t *testing.T) {
	const ours = "10.255.0.1,10.96.0.0/16,10.244.0.0/16"
	for _, c := range []struct{ upper, lower, want string }{
		{"", "", ours}, {"a,b", "", "a,b," + ours}, {"", "c", "c," + ours}, {"a", "c", "a," + ours},
	} {
		t.Setenv("NO_PROXY", c.upper)
		t.Setenv("no_proxy", c.lower)
		s := newState(t, Config{Nodes: 1})
		for _, command := range s.all() {
			if !slices.Contains(command.Env, "NO_PROXY="+c.want) || !slices.Contains(command.Env, "no_proxy="+c.want) {
				t.Errorf("of %q and %q, %s has %q", c.upper, c.lower, command.Name, command.Env)
			}
		}
		if err := s.save(); err != nil {
			t.Fatal(err)
		}
		var usage strings.Builder
		if err := Usage(s.Dir, &usage); err != nil ||
			!strings.Contains(usage.String(), "export 'NO_PROXY="+c.want+"'\n") {
			t.Errorf("usage: %v\n%s", err, &usage)
		}
	}
}

// Two nodes on one machine share no name, address or directory that must be their own.
func TestNodesDiffer(t *testing.T) {
	s := newState(t, Config{Nodes: 2})
	var configs [2]map[string]any
	for i := range configs {
		if err := yaml.Unmarshal([]byte(s.kubeletConfig(i)), &configs[i]); err != nil {
			t.Fatal(err)
		}
		for _, config := range []string{containerdConfig(s.path(nodeName(i))), networkConfig(s.path(nodeName(i)), i)} {
			if strings.Contains(config, nodeName(1-i)) {
				t.Errorf("%s has something of the other:\n%s", nodeName(i), config)
			}
		}
	}
	for _, key := range []string{"port", "cgroupRoot", "containerRuntimeEndpoint", "podLogsDir", "volumePluginDir"} {
		if a, b := configs[0][key], configs[1][key]; a == nil || reflect.DeepEqual(a, b) {
			t.Errorf("%s is %v and %v", key, a, b)
		}
	}
	if networkConfig("x", 0) == networkConfig("x", 1) || bridge(0) == bridge(1) {
		t.Error("the nodes have one network")
	}
	if len(bridge(maxNodes)) > 15 {
		t.Errorf("%s is too long for the name of a link", bridge(maxNodes))
	}
}

func TestKubeletName(t *testing.T) {
	if got := Kubelet("node-1"); got != kubeletName(1) {
		t.Errorf("the kubelet of node-1 is %q", got)
	}
}

// The stages can be parsed by kwok, and do not change pods that have ended.
func TestStages(t *testing.T) {
	kinds := map[string]int{}
	for doc := range strings.SplitSeq(string(stages), "\n---\n") {
		var object struct {
			Kind string
			Spec struct {
				Selector struct{ MatchExpressions []any }
			}
		}
		if err := yaml.Unmarshal([]byte(doc), &object); err != nil {
			t.Fatalf("%v in\n%s", err, doc)
		}
		kinds[object.Kind]++
		if object.Kind == "Stage" && len(object.Spec.Selector.MatchExpressions) == 0 {
			t.Errorf("a stage for everything:\n%s", doc)
		}
	}
	if kinds["Stage"] != 3 || kinds["KwokConfiguration"] != 1 {
		t.Errorf("there are %v", kinds)
	}
}

// newState returns the state of a cluster that does not run.
func newState(t *testing.T, c Config) *state {
	t.Helper()
	c.Dir, c.Bin, c.KwokCPU, c.KwokMemory = t.TempDir(), "bin", "8", "1Gi"
	s := &state{Config: c, Mark: "mark", Server: "https://127.0.0.1:1", Store: "http://127.0.0.1:2",
		Peer: "http://127.0.0.1:3"}
	for _, dir := range []string{"pki", "logs"} {
		if err := os.Mkdir(s.path(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// all returns the commands that `up` runs.
func (s *state) all() []proc.Command {
	commands := []proc.Command{s.etcd(), s.apiserver(), s.controllers(), s.scheduler()}
	if s.Kwok > 0 {
		commands = append(commands, s.kwok())
	}
	if s.Nodes > 0 {
		commands = append(commands, s.registry(), s.proxy(), s.dns())
	}
	for i := range s.Nodes {
		commands = append(commands, s.containerd(i), s.kubelet(i))
	}
	return commands
}
