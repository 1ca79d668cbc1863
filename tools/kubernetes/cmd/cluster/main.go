// Command cluster runs a Kubernetes cluster on this machine: it starts and ends it, and changes it
// as tests require in between.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/elasticdl/elasticdl/tools/kubernetes/cluster"
)

const usage = `usage: cluster COMMAND [--dir DIR] [flags]

  up        make the cluster, or say that it is there; --help lists the flags
  down      end it, also if it is broken, and undo what it changed on this machine; its logs stay
  status    list its processes; exit code 1 if it is not whole
  env       print how to use it

  kill COMPONENT      end a component at once; or a real node with its pods: node-0; or all that decides: control
  start COMPONENT     start it again, and wait until it serves
  pause COMPONENT     stop it where it is
  resume COMPONENT    let it continue
  add kueue [--fair-sharing]    start Kueue, which admits pods of namespaces labelled elastic.dev/queued=true
  remove kueue        end it, and delete its webhooks
  add karpenter [--spot=N]      start Karpenter, which makes fake nodes by its NodePools; N spot instances at most
  remove karpenter    end it; delete its NodePools before, because only Karpenter deletes their nodes
  slots N             give each real node N of the resource elastic.dev/slot, which means nothing and can be scarce
  kill-kubelet NODE, start-kubelet NODE, kill-apiserver, start-apiserver    the same by other names

DIR is $ELASTICDL_CLUSTER or build/cluster. Its files: admin.kubeconfig, registry (its address), bin/kubectl, logs.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		os.Exit(2)
	}
	command, args := args[0], args[1:]
	flags := flag.NewFlagSet("cluster "+command, flag.ExitOnError)
	var c cluster.Config
	var listen string
	var fair bool
	var spot int
	flags.StringVar(&c.Dir, "dir",
		cmp.Or(os.Getenv("ELASTICDL_CLUSTER"), filepath.Join("build", "cluster")), "folder of the cluster")
	switch command {
	case "up":
		flags.StringVar(&c.Bin, "bin", besides(), "folder with the programs kube, coredns, kwok, pause")
		flags.IntVar(&c.Nodes, "nodes", 2, "real nodes, with kubelet and containerd; they need root")
		flags.IntVar(&c.Slots, "slots", 0, "how many elastic.dev/slot each real node has")
		flags.IntVar(&c.Kwok, "kwok", 0, "fake nodes, whose pods do nothing")
		flags.StringVar(&c.KwokCPU, "kwok-cpu", "8", "CPUs of each fake node")
		flags.StringVar(&c.KwokMemory, "kwok-memory", "32Gi", "memory of each fake node")
	case "add":
		flags.BoolVar(&fair, "fair-sharing", false, "kueue: preempt by the shares of queues in their cohort")
		flags.IntVar(&spot, "spot", -1, "karpenter: spot instances that its cloud has; -1 for any number")
	case "registry":
		flags.StringVar(&listen, "listen", "", "address")
	case "help", "-h", "--help":
		fmt.Print(usage)
		return nil
	}
	names := parse(flags, args)
	switch command {
	case "kill-apiserver", "start-apiserver":
		command, names = command[:len(command)-len("-apiserver")], append(names, "apiserver")
	case "kill-kubelet", "start-kubelet":
		command = command[:len(command)-len("-kubelet")]
		for i := range names {
			names[i] = cluster.Kubelet(names[i])
		}
	}
	about := map[string]func(dir, component string) error{
		"kill": cluster.Kill, "pause": cluster.Pause, "resume": cluster.Resume,
		"start": func(dir, component string) error { return cluster.Start(ctx, dir, component) },
		"add": func(dir, component string) error {
			return optional(component, map[string]func() error{
				cluster.Kueue:     func() error { return cluster.AddKueue(ctx, dir, fair) },
				cluster.Karpenter: func() error { return cluster.AddKarpenter(ctx, dir, spot) },
			})
		},
		"remove": func(dir, component string) error {
			return optional(component, map[string]func() error{
				cluster.Kueue:     func() error { return cluster.RemoveKueue(ctx, dir) },
				cluster.Karpenter: func() error { return cluster.RemoveKarpenter(dir) },
			})
		},
	}[command]
	if about != nil {
		if len(names) != 1 {
			return fmt.Errorf("%s is given %d names, expected one", command, len(names))
		}
		return about(c.Dir, names[0])
	}
	if command == "slots" {
		n, err := strconv.Atoi(strings.Join(names, " "))
		if err != nil {
			return fmt.Errorf("slots is given %q, expected a number", names)
		}
		return cluster.Slots(ctx, c.Dir, n)
	}
	if len(names) > 0 {
		return fmt.Errorf("%s is given %q, expected only flags", command, names)
	}
	switch command {
	case "up":
		if err := cluster.Up(ctx, c, os.Stdout); err != nil {
			return err
		}
		return cluster.Usage(c.Dir, os.Stdout)
	case "down":
		return cluster.Down(c.Dir, os.Stdout)
	case "status":
		return cluster.Status(c.Dir, os.Stdout)
	case "env":
		return cluster.Usage(c.Dir, os.Stdout)
	case "registry":
		return cluster.ServeRegistry(ctx, listen, c.Dir)
	}
	return fmt.Errorf("%q is no command\n%s", command, usage)
}

// optional calls the function of a component that can be added and removed.
func optional(component string, do map[string]func() error) error {
	if do[component] == nil {
		return fmt.Errorf("%q is no optional component, expected one of: %s", component,
			strings.Join(slices.Sorted(maps.Keys(do)), ", "))
	}
	return do[component]()
}

// parse parses flags before and after names, and returns the names.
func parse(flags *flag.FlagSet, args []string) (names []string) {
	for flags.Parse(args); flags.NArg() > 0; flags.Parse(args) {
		names = append(names, flags.Arg(0))
		args = flags.Args()[1:]
	}
	return names
}

// besides returns the directory of this program.
func besides() string {
	program, err := os.Executable()
	if err != nil {
		return "."
	}
	return filepath.Dir(program)
}
