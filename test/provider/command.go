package provider

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// commands has the types of pulumi-command 1.2.1. Commands are run, with tools.sh for minikube and
// others. An update runs `update`, or `create` again if there is none; a deletion runs the last
// `delete` that was requested. In a preview nothing runs, and the output of an update is unknown.
// Before 1.2 that provider took a path of ignoreChanges for the name of a property: each update
// with "triggers[1]" among them failed.
var commands = map[string]Type{
	"command:local:Command": {Replace: []string{"triggers"}, Make: makeCommand, Delete: deleteCommand},
}

func makeCommand(ctx context.Context, r *Resource, op Op) (Props, error) {
	switch op {
	case Preview:
		return Props{"stdout": Unknown, "stderr": Unknown}, nil
	case Update:
		return run(ctx, r, cmp.Or(text(r.In, "update"), text(r.In, "create")))
	}
	return run(ctx, r, text(r.In, "create"))
}

func deleteCommand(ctx context.Context, r *Resource) error {
	_, err := run(ctx, r, text(r.In, "delete"))
	return err
}

func run(ctx context.Context, r *Resource, line string) (Props, error) {
	was := r.Is
	if line == "" {
		return Props{"stdout": text(was, "stdout"), "stderr": text(was, "stderr")}, nil
	}
	words := []string{"/bin/sh", "-c"}
	if given := list(r.In, "interpreter"); len(given) > 0 {
		words = nil
		for _, w := range given {
			words = append(words, w.(string))
		}
	}
	c := exec.CommandContext(ctx, words[0], append(words[1:], line)...)
	c.Env = slices.Concat(os.Environ(), []string{"PATH=" + r.cloud.path, "FAKE_MINIKUBE=" + r.cloud.profiles})
	for name, output := range map[string]string{"PULUMI_COMMAND_STDOUT": "stdout", "PULUMI_COMMAND_STDERR": "stderr"} {
		if said := text(was, output); said != "" && r.In["addPreviousOutputInEnv"] != false {
			c.Env = append(c.Env, name+"="+said)
		}
	}
	environment, _ := r.In["environment"].(map[string]any)
	for k, v := range environment {
		c.Env = append(c.Env, fmt.Sprintf("%s=%v", k, v))
	}
	c.Dir = text(r.In, "dir")
	c.Stdin = strings.NewReader(text(r.In, "stdin"))
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		return nil, fmt.Errorf("%w: running %q: %s%s", err, line, stdout.String(), stderr.String())
	}
	return Props{"stdout": strings.TrimSuffix(stdout.String(), "\n"),
		"stderr": strings.TrimSuffix(stderr.String(), "\n")}, nil
}
