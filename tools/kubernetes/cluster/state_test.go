package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/elasticdl/elasticdl/tools/kubernetes/proc"
)

// TestMain runs the tests; this binary is also the component that they start.
func TestMain(m *testing.M) {
	if os.Getenv("CLUSTER_TEST") == "component" {
		fmt.Println("component", os.Args[1:])
		select {}
	}
	os.Exit(m.Run())
}

func component(s *state, name string) proc.Command {
	c := s.command(name, "", "x")
	c.Args[0] = os.Args[0]
	c.Env = append(c.Env, "CLUSTER_TEST=component")
	return c
}

// A component that one command has started can be ended, started again, paused and resumed by the
// next, and `down` ends it.
func TestComponent(t *testing.T) {
	s := newState(t, Config{Kwok: 1})
	s.Mark = "test-" + filepath.Base(s.Dir) + fmt.Sprint(os.Getpid())
	if err := s.run(component(s, "worker")); err != nil {
		t.Fatal(err)
	}
	s.Up = true
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { Down(s.Dir, new(bytes.Buffer)) })
	is := func(want proc.State) {
		t.Helper()
		now, err := loadState(s.Dir)
		if err != nil {
			t.Fatal(err)
		}
		p, _ := now.process("worker")
		if got := p.State(); got != want || now.running() != (want != proc.Ended) {
			t.Fatalf("the component is %v, the cluster runs: %v; want %v", got, now.running(), want)
		}
	}
	is(proc.Running)
	// another user who creates fake nodes next to root's real ones must be able to read it
	if info, err := os.Stat(s.file()); err != nil || info.Mode().Perm()&0o444 != 0o444 {
		t.Errorf("not for all to read: %v %v", info.Mode(), err)
	}
	for _, step := range []struct {
		do   func(dir, component string) error
		want proc.State
	}{
		{Pause, proc.Paused}, {Resume, proc.Running}, {Kill, proc.Ended},
		{func(dir, component string) error { return Start(t.Context(), dir, component) }, proc.Running},
	} {
		if err := step.do(s.Dir, "worker"); err != nil {
			t.Fatal(err)
		}
		is(step.want)
	}
	var out bytes.Buffer
	if err := Status(s.Dir, &out); err != nil || !strings.Contains(out.String(), "worker") {
		t.Errorf("status: %v\n%s", err, &out)
	}
	for range 2 {
		if err := Down(s.Dir, &out); err != nil {
			t.Fatal(err)
		}
	}
	if pids := proc.Marked(markEntry(s.Mark)); len(pids) > 0 {
		t.Errorf("%v are left", pids)
	}
	left, _ := filepath.Glob(s.path("*"))
	if len(left) != 1 || left[0] != s.path("logs") {
		t.Errorf("%q is left, want the logs", left)
	}
	if err := Status(s.Dir, &out); !errors.Is(err, ErrNotUp) {
		t.Errorf("status of no cluster: %v", err)
	}
}

func TestUnknownComponent(t *testing.T) {
	s := newState(t, Config{Nodes: 1})
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	for name, do := range map[string]func(dir, component string) error{"kill": Kill, "pause": Pause, "resume": Resume} {
		if err := do(s.Dir, "node-7"); err == nil || !strings.Contains(err.Error(), `"node-7"`) ||
			!strings.Contains(err.Error(), "node-0") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestOneAtATime(t *testing.T) {
	s := newState(t, Config{Kwok: 1})
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	held, err := lock(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := Down(s.Dir, new(bytes.Buffer)); err == nil ||
		!strings.Contains(err.Error(), "another `cluster` command") {
		t.Errorf("down during another command: %v", err)
	}
	held.Close()
	if err := Down(s.Dir, new(bytes.Buffer)); err != nil {
		t.Error(err)
	}
}

// The remains of a cluster can be removed after its directory was deleted.
func TestCleanWithoutFolder(t *testing.T) {
	s := newState(t, Config{Kwok: 1})
	s.Mark = "test-" + filepath.Base(s.Dir) + fmt.Sprint(os.Getpid())
	if err := s.run(component(s, "worker")); err != nil {
		t.Fatal(err)
	}
	p, _ := s.process("worker")
	t.Cleanup(func() { p.Signal(syscall.SIGKILL) })
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	if err := clean(s.Dir, s.Mark, false); err != nil {
		t.Error(err)
	}
	if pids := proc.Marked(markEntry(s.Mark)); len(pids) > 0 {
		t.Errorf("%v are left", pids)
	}
}

// Another cluster with real nodes may be removed only if it is not starting and no process of it
// runs. The test starts none, because the machine may have a real one.
func TestLockRecord(t *testing.T) {
	before := recordPath
	t.Cleanup(func() { recordPath = before })
	recordPath = filepath.Join(t.TempDir(), "record.json")
	s := newState(t, Config{Nodes: 1})
	r := &record{Dir: s.Dir, Mark: "first"}
	if err := r.claim(); err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), "end it first: cluster down --dir "+s.Dir) {
			t.Errorf("%s: %v", what, err)
		}
	}
	taken := func(what string) {
		t.Helper()
		held, err := r.lock()
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		if _, err := r.lock(); err == nil {
			t.Errorf("%s: locked twice", what)
		}
		held.Close()
	}
	refused("a claim of another", (&record{Dir: t.TempDir(), Mark: "second"}).claim())
	if now, err := loadRecord(); err != nil || now.Mark != r.Mark {
		t.Errorf("the record is %+v, %v", now, err)
	}
	if files, _ := filepath.Glob(recordPath + "*"); len(files) != 1 {
		t.Errorf("there are %q", files)
	}

	held, err := lock(s.Dir)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.lock()
	refused("while it starts", err)
	held.Close()

	if err := s.run(component(s, "worker")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.signal("worker", syscall.SIGKILL, proc.Ended) })
	taken("one that did not come up")
	s.Processes = append(s.Processes, proc.Process{Command: proc.Command{Name: "killed"}})
	s.Up = true
	if err := s.save(); err != nil {
		t.Fatal(err)
	}
	_, err = r.lock()
	refused("while some of it is up", err)
	if err := s.signal("worker", syscall.SIGKILL, proc.Ended); err != nil {
		t.Fatal(err)
	}
	taken("one that has crashed")
	if err := os.RemoveAll(s.Dir); err != nil {
		t.Fatal(err)
	}
	taken("one without a folder")
}

// The end of a component is reported at once, with the end of its log.
func TestAwait(t *testing.T) {
	s := newState(t, Config{Kwok: 1})
	if err := s.run(component(s, "worker")); err != nil {
		t.Fatal(err)
	}
	p, _ := s.process("worker")
	t.Cleanup(func() { p.Signal(syscall.SIGKILL) })
	asked := 0
	err := s.await(t.Context(), "it", []string{"worker"}, func(context.Context) error {
		if asked++; asked == 3 {
			return nil
		}
		return errors.New("not yet")
	})
	if err != nil || asked != 3 {
		t.Errorf("asked %d times: %v", asked, err)
	}
	err = s.await(t.Context(), "it", []string{"worker"}, func(context.Context) error {
		if log, _ := os.ReadFile(p.Log); len(log) > 0 {
			p.Signal(syscall.SIGKILL)
		}
		return errors.New("never")
	})
	if err == nil || !strings.Contains(err.Error(), "worker has ended") ||
		!strings.Contains(err.Error(), "component [x]") {
		t.Errorf("error is %v, want one with the log", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.await(ctx, "it", []string{"worker"}, func(context.Context) error { return nil }); err != nil {
		t.Errorf("what is so already is waited for: %v", err)
	}
	s.Processes = nil
	if err := s.await(ctx, "it", []string{"worker"}, func(context.Context) error {
		return errors.New("not yet")
	}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
}

func TestLogEnd(t *testing.T) {
	file := filepath.Join(t.TempDir(), "log")
	var log strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&log, "line %d %s\n", i, strings.Repeat("x", 50))
	}
	log.WriteString(strings.Repeat("y", 1000) + "\n")
	if err := os.WriteFile(file, []byte(log.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimRight(logEnd(file), "\n"), "\n")
	if len(lines) != 15 || !strings.HasPrefix(lines[0], "  line 4986 ") || lines[14] != "  "+strings.Repeat("y", 300) {
		t.Errorf("%d lines, from %.20q to %.20q", len(lines), lines[0], lines[len(lines)-1])
	}
	if got := logEnd(file + "-not"); !strings.Contains(got, "no such file") {
		t.Errorf("of no file: %q", got)
	}
}

// Each client of the API server has a kubeconfig, which only its owner can read.
func TestWritePKI(t *testing.T) {
	s := newState(t, Config{Nodes: 2})
	if err := s.writePKI(time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"admin.kubeconfig", "pki/scheduler.kubeconfig",
		"pki/proxy.kubeconfig", "pki/node-0.kubeconfig", "pki/node-1.kubeconfig"} {
		config, err := clientcmd.LoadFromFile(s.path(file))
		if err != nil {
			t.Fatal(err)
		}
		if got := config.Clusters["elasticdl"].Server; got != s.Server {
			t.Errorf("%s is for %q", file, got)
		}
		if info, err := os.Stat(s.path(file)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file, info.Mode(), err)
		}
	}
}

// etcd and the API server never get the same port.
func TestPrepare(t *testing.T) {
	s := newState(t, Config{Kwok: 1})
	if err := s.prepare(); err != nil {
		t.Fatal(err)
	}
	_, store, _ := strings.Cut(s.Store, "//")
	_, peer, _ := strings.Cut(s.Peer, "//")
	_, server, _ := strings.Cut(s.Server, "//")
	if store == peer || peer == server || server == store {
		t.Errorf("addresses are %s, %s, %s", store, peer, server)
	}
	for _, want := range []string{"--listen-client-url=http://" + store, "--listen-peer-url=http://" + peer} {
		if args := s.etcd().Args; !slices.Contains(args, want) {
			t.Errorf("etcd has %q, not %s", args, want)
		}
	}
}

// Addresses differ, and no connection of another program gets one, so that a component can end and
// start again.
func TestFreeAddresses(t *testing.T) {
	addresses, err := freeAddresses(3)
	if err != nil || len(addresses) != 3 || addresses[0] == addresses[1] || addresses[1] == addresses[2] {
		t.Errorf("%v, %v", addresses, err)
	}
	for _, address := range addresses {
		_, port, _ := net.SplitHostPort(address)
		if n, err := strconv.Atoi(port); err != nil || n < leastPort || n >= firstEphemeral() {
			t.Errorf("%s, and the kernel gives ports from %d", address, firstEphemeral())
		}
	}
}
