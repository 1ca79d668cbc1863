//go:build e2e

// Package e2e runs the tutorials and fault-injection tests on a real Kubernetes: real API server,
// scheduler, kubelets and containers. `make e2e` creates the cluster, runs these tests, and removes
// the cluster.
//
// Jobs are submitted by the elasticdl program, in an image that it has built, as a user would; the
// tests watch their objects in the cluster. Each test has a namespace of its own, which is deleted
// afterwards. Tests that disturb the control plane or check time limits run first, one after the
// other. The others run in parallel, those that disturb nodes on nodes of their own (pair_test.go).
// The measurements of the tests are printed at the end.
package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

var (
	cluster   = flag.String("cluster", "../../build/cluster", "directory of the cluster, as made by make cluster-up")
	keep      = flag.Bool("keep", false, "leave namespaces of failed tests")
	elasticdl = flag.String("elasticdl", "../../build/elasticdl", "the program")
	program   = flag.String("program", "../../build/tools/cluster", "the program that made the cluster")
)

// Values that all tests share.
var (
	// directory of this machine, which every node shares: RecordIO of the shipped digits,
	// mnist/train and mnist/test
	digits string
	// image of the jobs, built by elasticdl zoo build
	image    string
	registry string // registry of the image, host:port
)

// Numbers of the shipped digits.
const trainingDigits, testDigits = 10_000, 2_000

func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "100") // they wait for nodes; see pair_test.go
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "elasticdl-e2e-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil { // pods must be able to read it
		panic(err)
	}
	stop, err := prepare(dir)
	defer stop()
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-interrupted
		removeNamespaces()
		stop()
		os.RemoveAll(dir)
		os.Exit(130)
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "e2e:", err)
		return 1
	}
	code := m.Run()
	printFigures(os.Stdout)
	return code
}

// prepare finds the cluster and creates what all tests need. The returned function undoes that,
// also after an error.
func prepare(dir string) (stop func(), err error) {
	var undo []func()
	stop = func() {
		for _, f := range undo {
			f()
		}
	}
	for _, path := range []*string{cluster, elasticdl, program} {
		if *path, err = filepath.Abs(*path); err != nil {
			return stop, err
		}
	}
	if err := os.Setenv("KUBECONFIG", filepath.Join(*cluster, "admin.kubeconfig")); err != nil {
		return stop, err
	}
	os.Setenv("PATH", filepath.Join(*cluster, "bin")+":"+os.Getenv("PATH"))
	address, err := os.ReadFile(filepath.Join(*cluster, "registry"))
	if err != nil {
		return stop, fmt.Errorf("no cluster (make cluster-up): %w", err)
	}
	registry = strings.TrimSpace(string(address))

	parallel, err := findPairs()
	if err != nil {
		return stop, err
	}
	if !parallel {
		flag.Set("test.parallel", "1")
	}

	digits = filepath.Join(dir, "data")
	if err := command(*elasticdl, "dataset", "mnist", filepath.Join(digits, "mnist"), "--source",
		"../../examples/mnist/data"); err != nil {
		return stop, err
	}
	if err := zoo(filepath.Join(dir, "zoo")); err != nil {
		return stop, err
	}
	if err := command("kubectl", "create", "-f", "testdata/priorities.yaml"); err == nil {
		undo = append(undo, func() { command("kubectl", "delete", "-f", "testdata/priorities.yaml") })
	} else if command("kubectl", "get", "-f", "testdata/priorities.yaml") != nil {
		// the cluster may have them already
		return stop, err
	}
	proxy, err := startProxy(filepath.Join(dir, "proxy"))
	if err != nil {
		return stop, err
	}
	undo = append(undo, proxy, stopKueue)
	return stop, nil
}

// zoo builds and pushes the image of all jobs, from a module like that of a user.
func zoo(dir string) error {
	repository, err := filepath.Abs("../..")
	if err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	image = registry + "/elasticdl:mnist"
	for _, args := range [][]string{
		{"zoo", "init", "--model_zoo=model_zoo", "--local_pkg_dir=" + repository},
		{"zoo", "build", "--image=" + image, "."},
		{"zoo", "push", image},
	} {
		began := time.Now()
		cmd := exec.Command(*elasticdl, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%v: %w\n%s", cmd, err, out)
		}
		note("elasticdl zoo "+args[1], rounded(time.Since(began)), "")
	}
	return nil
}

// command runs a program until it ends.
func command(name string, args ...string) error {
	cmd := exec.CommandContext(context.Background(), name, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}
