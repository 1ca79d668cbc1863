package plan

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Shell previews and updates stacks.
type Shell struct {
	// Settings returns the text of the file with a stack's settings.
	Settings func(stack string) ([]byte, error)
	// Pulumi runs Pulumi with arguments, and writes its standard output to out.
	Pulumi func(ctx context.Context, out io.Writer, args ...string) error
	// Out gets the standard output of an update.
	Out io.Writer
	// Problems gets the result of the comparison.
	Problems io.Writer
}

// ErrDiffers is the error of an update that would do something else than was reviewed.
var ErrDiffers = errors.New("the update would do something else than the plan: make the plan again, and review it")

// Make previews an update of a stack, and returns its plan. It changes nothing.
func (s Shell) Make(ctx context.Context, stack string, refresh bool) (*Plan, error) {
	if stack == "" || strings.ContainsAny(stack, `/\`) {
		return nil, fmt.Errorf("-stack=%s: expected the name of a file stacks/Pulumi.<stack>.yaml", stack)
	}
	file, err := s.Settings(stack)
	if err != nil {
		return nil, fmt.Errorf("-stack=%s: %w", stack, err)
	}
	var shown bytes.Buffer
	failed := s.Pulumi(ctx, &shown, "preview", "--json", "--stack="+stack, fmt.Sprintf("--refresh=%t", refresh))
	if failed != nil && shown.Len() == 0 {
		return nil, fmt.Errorf("preview of %s: %w", stack, failed)
	}
	p, err := Read(stack, refresh, file, shown.Bytes())
	if err = errors.Join(failed, err); err != nil {
		return nil, fmt.Errorf("preview of %s: %w", stack, err)
	}
	return p, nil
}

// Apply previews an update of a stack again, compares it with a reviewed plan, and makes the update
// if nothing differs. It returns [ErrDiffers] after it has printed the lines that differ.
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
	if err := s.Pulumi(ctx, s.Out, "up", "--yes", "--skip-preview", "--stack="+stack,
		fmt.Sprintf("--refresh=%t", reviewed.Refresh)); err != nil {
		return fmt.Errorf("update of %s: %w", stack, err)
	}
	return nil
}
