package plan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Shell runs Pulumi in the directory of Pulumi.yaml.
type Shell struct {
	Dir string
	Env []string // nil = that of this process
	Out io.Writer
	// Problems gets messages, and what Pulumi writes to its standard error.
	Problems io.Writer
}

// ErrDiffers is the error of an update that would do something else than was reviewed.
var ErrDiffers = errors.New("the update would do something else than the plan: review it again")

// Make previews an update of a stack, and returns its plan. It changes nothing.
func (s Shell) Make(ctx context.Context, stack string, refresh bool) (*Plan, error) {
	if stack == "" || strings.ContainsAny(stack, `/\`) {
		return nil, fmt.Errorf("-stack=%s: expected the name of a file stacks/Pulumi.<stack>.yaml", stack)
	}
	file, err := os.ReadFile(filepath.Join(s.Dir, "stacks", "Pulumi."+stack+".yaml"))
	if err != nil {
		return nil, fmt.Errorf("-stack=%s: %w", stack, err)
	}
	var shown bytes.Buffer
	err = s.pulumi(ctx, &shown, "preview", "--json", "--stack="+stack, fmt.Sprintf("--refresh=%t", refresh))
	p, wrong := Read(stack, refresh, file, shown.Bytes())
	if err != nil {
		if shown.Len() == 0 || wrong == nil {
			return nil, fmt.Errorf("preview of %s: %w", stack, err)
		}
		return nil, fmt.Errorf("preview of %s: %w: %w", stack, err, wrong)
	}
	if wrong != nil {
		return nil, fmt.Errorf("preview of %s: %w", stack, wrong)
	}
	return p, nil
}

// Apply previews an update of a stack again, compares it with a reviewed plan, and makes the update
// if nothing differs. It returns [ErrDiffers] after it has printed what does.
func (s Shell) Apply(ctx context.Context, stack string, reviewed *Plan) error {
	now, err := s.Make(ctx, stack, reviewed.Refresh)
	if err != nil {
		return err
	}
	if lines := reviewed.Differences(now); len(lines) > 0 {
		fmt.Fprintf(s.Problems, "- only in the plan %s\n+ only in the update now, %s\n%s\n",
			reviewed.Digest(), now.Digest(), strings.Join(lines, "\n"))
		return ErrDiffers
	}
	fmt.Fprintf(s.Problems, "the update is as planned: %s\n", now.Digest())
	if err := s.pulumi(ctx, s.Out, "up", "--yes", "--skip-preview", "--stack="+stack,
		fmt.Sprintf("--refresh=%t", reviewed.Refresh)); err != nil {
		return fmt.Errorf("update of %s: %w", stack, err)
	}
	return nil
}

func (s Shell) pulumi(ctx context.Context, out io.Writer, args ...string) error {
	c := exec.CommandContext(ctx, "pulumi", append(args, "--non-interactive")...)
	c.Dir, c.Env, c.Stdout, c.Stderr = s.Dir, s.Env, out, s.Problems
	return c.Run()
}
