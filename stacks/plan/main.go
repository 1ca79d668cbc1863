// Command plan prints what an update of a stack would do, with a digest, and makes an update only
// if it does what was reviewed: `make plan STACK=gke` and `make apply STACK=gke PLAN=file`. It
// links no SDK of a cloud, so it compiles in seconds.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"

	"github.com/elasticdl/elasticdl/infra/plan"
)

func main() {
	stack := flag.String("stack", "", "name of the stack, whose file is stacks/Pulumi.<stack>.yaml")
	refresh := flag.Bool("refresh", false, "ask the clouds for every resource first")
	apply := flag.String("apply", "", "file of a plan: make the update if it is as planned")
	compare := flag.String("compare", "", "file of a plan: print what differs from the plan in the file that is "+
		"the argument, and run nothing")
	flag.Parse()
	// Ctrl-C is for Pulumi, which gets it, too, and then ends after the step that it is at.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	ctx := context.Background()
	s := plan.Shell{Settings: settings, Pulumi: pulumi, Out: os.Stdout, Problems: os.Stderr}
	var err error
	switch {
	case *compare != "":
		err = differences(*compare, flag.Arg(0))
	case *apply != "":
		var reviewed *plan.Plan
		if reviewed, err = load(*apply); err == nil {
			err = s.Apply(ctx, *stack, reviewed)
		}
	default:
		var p *plan.Plan
		if p, err = s.Make(ctx, *stack, *refresh); err == nil {
			fmt.Print(p)
			fmt.Fprintf(os.Stderr, "%d steps, %s\n", p.Steps(), p.Digest())
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func settings(stack string) ([]byte, error) {
	return os.ReadFile("stacks/Pulumi." + stack + ".yaml")
}

func pulumi(ctx context.Context, out io.Writer, args ...string) error {
	c := exec.CommandContext(ctx, "pulumi", append(args, "--non-interactive")...)
	c.Stdout, c.Stderr = out, os.Stderr
	return c.Run()
}

func load(file string) (*plan.Plan, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p, err := plan.Parse(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

func differences(file, other string) error {
	was, err := load(file)
	if err != nil {
		return err
	}
	is, err := load(other)
	if err != nil {
		return err
	}
	if lines := was.Differences(is); len(lines) > 0 {
		fmt.Println(strings.Join(lines, "\n"))
		return plan.ErrDiffers
	}
	return nil
}
