package command

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The exit code of a program is that of the failure, that of an interruption if it might have
// succeeded without one, and otherwise that of a wrong command line. A reason has no control
// sequences, and what was printed before is not printed again.
func TestExecute(t *testing.T) {
	interrupted, interrupt := context.WithCancel(t.Context())
	interrupt()
	sentence := errors.New("get job: \x1b]0;title\x07")
	for _, test := range []struct {
		ctx  context.Context
		err  error
		code int
		says string
	}{
		{t.Context(), nil, 0, ""},
		{t.Context(), sentence, ExitFailure, "x: get job: \\x1b]0;title\\a\n"},
		{t.Context(), errors.Join(errors.New("a"), errors.New("b")), ExitFailure, "x:\n  a\n  b\n"},
		{t.Context(), Usage(errors.New("a")), ExitUsage, "x: a\n"},
		{t.Context(), Usage(nil), 0, ""},
		{t.Context(), Fail(errors.New("a"), ExitLeft), ExitLeft, "x: a\n"},
		{t.Context(), Fail(ErrSilent, ExitTimeout), ExitTimeout, ""},
		{interrupted, sentence, ExitInterrupted, "x: interrupted\n"},
		{interrupted, Usage(errors.New("a")), ExitUsage, "x: a\n"},
	} {
		root := &cobra.Command{Use: "x", SilenceErrors: true, SilenceUsage: true,
			RunE: Does(func(*cobra.Command, []string) error { return test.err })}
		root.SetArgs([]string{})
		var said strings.Builder
		if code := Execute(test.ctx, root, &said); code != test.code || said.String() != test.says {
			t.Errorf("%v: exit code %d, %q; want %d, %q", test.err, code, &said, test.code, test.says)
		}
	}
	root := &cobra.Command{Use: "x", Args: Words(0, 0), SilenceErrors: true, SilenceUsage: true,
		RunE: func(*cobra.Command, []string) error { return nil }}
	root.SetArgs([]string{"more"})
	var said strings.Builder
	if code := Execute(t.Context(), root, &said); code != ExitUsage ||
		said.String() != "x: unexpected argument \"more\": expected x\n" {
		t.Errorf("a wrong command line: exit code %d, %q", code, &said)
	}
}
