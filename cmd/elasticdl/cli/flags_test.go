package cli

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// However the flags of a job are written, job.Parse gets them in one form, in order, and the
// arguments of a program unchanged.
func TestJobSettings(t *testing.T) {
	for args, want := range map[string]string{
		"train --num-workers 7 --num_worker=8": "--num_workers=7 --num_workers=8",
		"train --train_data_dir d --shuffle":   "--training_data=d --shuffle=true",
		"train --shuffle False --use_async yes --detach -n x": "--shuffle=False --use_async=yes " +
			"--detach=true --namespace=x",
		"train --shuffle d":                               "--shuffle=true d",
		"train --envs=A=--b --seed -1":                    "--envs=A=--b --seed=-1",
		"train --envs --num_wrkers 3 --frob":              "--envs --num_wrkers=3 --frob=true",
		"train --frob --seed 3 -ojson stray":              "--frob=true --seed=3 --format=json stray",
		"run -- main.py --epochs=2":                       "-- main.py --epochs=2",
		"run main.py --num_workers=5 -- -m":               "-- main.py --num_workers=5 -- -m",
		"run --num-workers 3 main.py 4":                   "--num_workers=3 -- main.py 4",
		"run --nproc-per-node 4 --max-restarts=3 main.py": "--nproc_per_node=4 --max_restarts=3 -- main.py",
		"run --no_python true":                            "--no_python=true -- true",
		"run -m pkg.train --lr=1":                         "--module=true -- pkg.train --lr=1",
		"run --log_dir=logs -r 3 -t 0:1,1:2 main.py -r": "--log_dir=logs --redirects=3 " +
			"--tee=0:1,1:2 -- main.py -r",
		"run --frob 3 main.py --frob":        "--frob=3 -- main.py --frob",
		"run --monitor_interval 5 -- a -- b": "--monitor_interval=5 -- a -- b",
	} {
		root := newRoot()
		words := strings.Fields(args)
		root.SetGlobalNormalizationFunc(spelling(words))
		cmd, _, err := root.Find(words)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		cmd.RunE = func(cmd *cobra.Command, words []string) error {
			got = *cmd.Flags().Lookup("job_name").Value.(*setting).to
			if runs(cmd) {
				got = append(got, "--")
			}
			got = append(got, words...)
			return nil
		}
		root.SetArgs(prepared(root, words))
		root.SetOut(io.Discard)
		if err := root.Execute(); err != nil || !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%s: %q, %v; want %s", args, got, err, want)
		}
	}
}
