//go:build e2e

package scale

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/incluster"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

var (
	cluster = flag.String("cluster", "",
		"directory of a cluster with 200 fake nodes of 8 CPUs and no real ones; without it one is made, and removed")
	elasticdl = flag.String("elasticdl", "../../../build/elasticdl", "the program")
	program   = flag.String("program", "../../../build/tools/cluster", "the program that makes clusters")
)

func kubeconfig() string { return filepath.Join(*cluster, "admin.kubeconfig") }

func TestMain(m *testing.M) {
	if os.Getenv(envMaster) != "" {
		os.Exit(beMaster())
	}
	flag.Parse()
	// experiments wait most of the time, so the number of processors does not matter
	flag.Set("test.parallel", "3")
	code, err := stageAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		code = 1
	}
	os.Exit(code)
}

// Variables of a process of this binary that is a master.
const (
	envMaster = "SCALE_MASTER" // name of the master's job
	envListen = "SCALE_LISTEN"
)

// beMaster runs what `elasticdl master` runs in a pod, with another way to find the cluster and
// another address. It returns the exit code.
func beMaster() int {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	err := func() error {
		config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
		if err != nil {
			return err
		}
		config.QPS = -1 // as in a pod: the runtime limits the rate
		set, err := clientset.New(config)
		if err != nil {
			return err
		}
		return incluster.RunMaster(ctx, incluster.MasterConfig{
			Job: os.Getenv(envMaster), Namespace: os.Getenv(manifest.EnvPodNamespace), Client: set,
			Environ: os.Environ(), Listen: os.Getenv(envListen), Output: os.Stdout,
		})
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// stageAndRun runs the tests, on the given cluster or on one that it creates and removes.
func stageAndRun(m *testing.M) (int, error) {
	for _, path := range []*string{elasticdl, program, cluster} {
		if *path == "" {
			continue
		}
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return 1, err
		}
	}
	if *cluster != "" {
		return m.Run(), nil
	}
	*cluster = filepath.Join(filepath.Dir(filepath.Dir(*program)), "scale")
	// remove what an interrupted run has left
	if err := operate("down", "--dir="+*cluster); err != nil {
		return 1, err
	}
	defer operate("down", "--dir="+*cluster)
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		<-interrupted
		operate("down", "--dir="+*cluster)
		os.Exit(130)
	}()
	if err := operate("up", "--dir="+*cluster, "--bin="+filepath.Dir(*program), "--nodes=0",
		"--kwok=200", "--kwok-cpu=8"); err != nil {
		return 1, err
	}
	return m.Run(), nil
}

func operate(args ...string) error {
	cmd := exec.CommandContext(context.Background(), *program, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}
