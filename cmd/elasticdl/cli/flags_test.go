package cli

import (
	"io"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// However the flags of a job are written, they are set to the same, and the arguments of a program
// are left unchanged.
func TestJobSettings(t *testing.T) {
	for args, want := range map[string]struct{ flags, words, problems string }{
		"train --num-workers 7 --num_worker=8": {"--num_workers=8", "", ""},
		"train --train_data_dir d --shuffle":   {"--training_data=d --shuffle=true", "", ""},
		"train --shuffle False --use_async yes --detach -n x": {
			"--detach=true --shuffle=false --use_async=true --namespace=x", "", ""},
		"train --shuffle d":                   {"--shuffle=true", "d", `unexpected argument "d": expected --name=value`},
		"train --envs=A=--b":                  {"--envs=A=--b", "", ""},
		"train --seed -1":                     {"--seed=0", "", "--seed=-1: expected a whole number of 0 or more"},
		"train --num_epochs 4 --num_epochs x": {"--num_epochs=4", "", "--num_epochs=x: expected a whole number"},
		"train --envs --num_wrkers 3 --frob": {"", "", "--envs: needs a value|--num_wrkers: unknown flag; " +
			"did you mean --num_workers?|--frob: unknown flag; see elasticdl train --help"},
		"train --frob --seed 3 -ojson stray": {"--format=json --seed=3", "stray",
			`--frob: unknown flag; see elasticdl train --help|unexpected argument "stray": expected --name=value`},
		"run -- main.py --epochs=2":           {"", "main.py --epochs=2", ""},
		"run main.py --num_workers=5 -- -m":   {"", "main.py --num_workers=5 -- -m", ""},
		"run --num-workers 3 main.py 4":       {"--num_workers=3", "main.py 4", ""},
		"run --no_python true":                {"--no_python=true", "true", ""},
		"run -m pkg.train --lr=1":             {"--module=true", "pkg.train --lr=1", ""},
		"run --frob 3 main.py --frob":         {"", "main.py --frob", "--frob: unknown flag"},
		"run --monitor_interval 5 -- a -- b":  {"--monitor_interval=", "a -- b", ""},
		"run --log_dir=l -t 0:1,1:2 main -t":  {"--log_dir=l --tee=0:1,1:2", "main -t", ""},
		"run --nproc-per-node 4 -r 3 main.py": {"--nproc_per_node=4 --redirects=3", "main.py", ""},
	} {
		root := newRoot()
		given := strings.Fields(args)
		root.SetGlobalNormalizationFunc(spelling(given))
		cmd, _, err := root.Find(given)
		if err != nil {
			t.Fatal(err)
		}
		var c *job.Command
		var words []string
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			c, words = jobOf(cmd.Flags()), args
			c.Words(words)
			return nil
		}
		root.SetArgs(prepared(root, given))
		root.SetOut(io.Discard)
		if err := root.Execute(); err != nil {
			t.Fatal(err)
		}
		var flags []string
		for _, f := range job.Flags() {
			if c.Given(f.Name) {
				flags = append(flags, "--"+f.Name+"="+c.Value(f.Name).String())
			}
		}
		if !sameWords(flags, want.flags) || !slices.Equal(words, strings.Fields(want.words)) {
			t.Errorf("%s: %q, %q; want %+v", args, flags, words, want)
		}
		err = c.Settle()
		for problem := range strings.SplitSeq(want.problems, "|") {
			if problem != "" && (err == nil || !strings.Contains(err.Error(), problem)) {
				t.Errorf("%s: %v, want %s", args, err, problem)
			}
		}
	}
}

// sameWords reports whether a list has the words of a text, in any order.
func sameWords(list []string, text string) bool {
	want := strings.Fields(text)
	slices.Sort(want)
	return slices.Equal(slices.Sorted(slices.Values(list)), want)
}

// Help is read on terminals: no line of its texts is wider than helpWidth.
func TestHelpIsNarrow(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Long) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpWidth {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
}
