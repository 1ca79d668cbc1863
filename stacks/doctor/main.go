// Command doctor lists what a stack still lacks before its first `pulumi up`: `make doctor
// STACK=gke`. It links no SDK of a cloud, so it compiles in seconds.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/infra/doctor"
	"github.com/elasticdl/elasticdl/infra/settings"
)

// patience is the time limit of one question.
const patience = time.Minute

func main() {
	stack := flag.String("stack", "", "name of the stack, whose file is stacks/Pulumi.<stack>.yaml")
	flag.Parse()
	s, wrong, err := load(*stack)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	found := doctor.Examine(doctor.Machine{Find: exec.LookPath, Run: run, Env: os.Getenv, MemoryGB: freeGB()},
		*stack, s, wrong)
	if !show(os.Stdout, found) {
		os.Exit(1)
	}
}

// show prints the findings, and reports whether nothing is missing.
func show(out io.Writer, found []doctor.Finding) bool {
	missing := 0
	for _, f := range found {
		fmt.Fprintln(out, f)
		if f.State == doctor.Missing {
			missing++
		}
	}
	if missing > 0 {
		fmt.Fprintf(out, "%d missing: `pulumi up` would fail\n", missing)
	}
	return missing == 0
}

// load returns the settings of a stack, or why they cannot be used.
func load(stack string) (s *settings.Settings, wrong, err error) {
	files, err := filepath.Glob("stacks/Pulumi.*.yaml")
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile("stacks/Pulumi." + stack + ".yaml")
	if err != nil {
		return nil, nil, fmt.Errorf("--stack=%s: %w; there are %s", stack, err, strings.Join(files, ", "))
	}
	config, secret, err := settings.FromFile(text)
	if err != nil {
		return nil, nil, fmt.Errorf("stacks/Pulumi.%s.yaml: %w", stack, err)
	}
	root, err := os.Getwd()
	if err != nil {
		return nil, nil, err
	}
	s, wrong = settings.Read(settings.Input{Project: "elasticdl", Stack: stack, Root: root, Now: time.Now(),
		Arch: runtime.GOARCH, Config: config, Secret: secret, Stat: func(path string) (bool, error) {
			info, err := os.Stat(path)
			return err == nil && info.IsDir(), err
		}})
	return s, wrong, nil
}

// run returns the output of a program; its error says the cause that the program gives.
func run(program string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c := exec.CommandContext(ctx, program, args...)
	var out, problems bytes.Buffer
	c.Stdout, c.Stderr = &out, &problems
	err := c.Run()
	if ctx.Err() != nil {
		return out.String(), fmt.Errorf("%s gave no answer in %v", program, patience)
	}
	if why := doctor.Cause(problems.String()); err != nil && why != "" {
		err = errors.New(why)
	}
	return out.String(), err
}

// freeGB returns the free memory in GiB, or 0 where the system does not say.
func freeGB() float64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kb float64
		if _, err := fmt.Sscanf(line, "MemAvailable: %f kB", &kb); err == nil {
			return kb / (1 << 20)
		}
	}
	return 0
}
