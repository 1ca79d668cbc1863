// Package flags reads the flags of a job's command in tests, as elasticdl does: with pflag.
package flags

import (
	"github.com/spf13/pflag"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Job returns the command for a type of job that was given a command line: flags as --name=value,
// and a program after "--" or its first word. The error has all problems.
func Job(t job.Type, args ...string) (*job.Command, error) {
	c, set := job.NewCommand(t), pflag.NewFlagSet(string(t), pflag.ContinueOnError)
	set.SetInterspersed(t != job.Run)
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if f := job.Find(name); f != nil {
			name = f.Name
		}
		return pflag.NormalizedName(name)
	})
	for _, f := range job.Flags() {
		v := set.VarPF(c.Value(f.Name), f.Name, f.Short, f.Usage)
		if !f.TakesValue() {
			v.NoOptDefVal = "true"
		}
	}
	if err := set.Parse(args); err != nil {
		return c, err
	}
	c.Words(set.Args())
	return c, c.Settle()
}
