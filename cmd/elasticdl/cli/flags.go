package cli

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// This file adds to cobra's flags: dashes and underscores in names are equivalent, booleans have
// ElasticDL's values, mistyped flags get a suggestion, and all mistakes of a command line are
// reported at once.

// spelling returns the normalization of the names of flags: underscores, and the newest of several
// names. A completion that was started with dashes gets names with dashes.
func spelling(args []string) func(*pflag.FlagSet, string) pflag.NormalizedName {
	if last := len(args) - 1; completes(args) && strings.HasPrefix(args[last], "--") &&
		strings.Contains(args[last][2:], "-") {
		return func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
			return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
		}
	}
	return func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		if f := job.Find(name); f != nil {
			return pflag.NormalizedName(f.Name)
		}
		return pflag.NormalizedName(strings.ReplaceAll(name, "-", "_"))
	}
}

// completes reports whether a shell requests completions.
func completes(args []string) bool { return len(args) > 1 && strings.HasPrefix(args[0], "__complete") }

// jobFlags defines the flags of a type of job, and returns the command that they set.
func jobFlags(t job.Type, fs *pflag.FlagSet) *job.Command {
	c := job.NewCommand(t)
	for _, of := range job.Flags() {
		f := fs.VarPF(c.Value(of.Name), of.Name, of.Short, of.Usage)
		if !of.TakesValue() {
			f.NoOptDefVal = "true"
		}
		f.Hidden = of.Topic == job.Remnants || of.Effect == job.Later || !of.With(t)
	}
	return c
}

// jobOf returns the job's command that flags set; nil: they are not those of a job.
func jobOf(fs *pflag.FlagSet) *job.Command {
	if f := fs.Lookup("job_name"); f != nil {
		if v, ok := f.Value.(*job.Value); ok {
			return v.Command()
		}
	}
	return nil
}

// checked is a flag whose parsing never fails: a wrong value is reported together with all other
// problems of the command line.
type checked struct {
	pflag.Value
	name    string
	problem error
}

// expected describes the values of a type in error messages.
var expected = map[string]string{
	"int": "a whole number", "int32": "a whole number", "int64": "a whole number",
	"uint64": "a whole number of 0 or more", "stringSlice": "values with commas between",
}

// Set implements pflag.Value. Booleans and durations have the syntax of jobs' flags.
func (c *checked) Set(text string) error {
	value, err := text, error(nil)
	switch c.Type() {
	case "bool":
		var b bool
		b, err = job.ParseBool(text)
		value = strconv.FormatBool(b)
	case "duration":
		d, e := job.ParseDuration(text)
		value, err = d.String(), e
	}
	if err == nil {
		if err = c.Value.Set(value); err != nil && expected[c.Type()] != "" {
			err = errors.New("expected " + expected[c.Type()])
		}
	}
	if err != nil {
		c.problem = fmt.Errorf("--%s=%s: %w", c.name, text, err)
	}
	return nil
}

// mistyped is a flag that the command does not have.
type mistyped struct{ problem error }

// String implements pflag.Value.
func (m *mistyped) String() string { return "" }

// Type implements pflag.Value.
func (m *mistyped) Type() string { return "string" }

// Set implements pflag.Value.
func (m *mistyped) Set(string) error { return nil }

// misread returns the problems with the given flags of a command.
func misread(cmd *cobra.Command) (problems []error) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		switch v := f.Value.(type) {
		case *checked:
			if v.problem != nil {
				problems = append(problems, v.problem)
			}
		case *mistyped:
			problems = append(problems, v.problem)
		}
	})
	return problems
}

// prepared converts a command line for pflag, and changes the command that it names to report all
// problems at once.
func prepared(root *cobra.Command, args []string) []string {
	cmd, rest, err := root.Find(args)
	if err != nil || completes(args) {
		return args
	}
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultVersionFlag()
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if _, ok := f.Value.(*job.Value); !ok {
			f.Value = &checked{Value: f.Value, name: f.Name}
		}
	})
	positional, before := cmd.Args, cmd.PreRunE
	// PreRunE checks arguments together with flags
	cmd.Args = cobra.ArbitraryArgs
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		// a mistyped flag is not reported as a missing one, too
		if problems := misread(cmd); len(problems) > 0 {
			return errors.Join(problems...)
		}
		var problems []error
		for _, check := range []func(*cobra.Command, []string) error{positional, before} {
			if check != nil {
				problems = append(problems, check(cmd, args))
			}
		}
		return errors.Join(problems...)
	}
	return append(strings.Fields(cmd.CommandPath())[1:], readied(cmd, rest)...)
}

// readied converts a command's arguments for pflag: a boolean of a job gets its value after a '=',
// and a flag without the value that it needs is removed. Flags that the command does not have are
// defined as mistyped.
func readied(cmd *cobra.Command, args []string) (ready []string) {
	flags := cmd.Flags()
	of := jobOf(flags)
	for len(args) > 0 {
		arg := args[0]
		name, long := strings.CutPrefix(arg, "--")
		switch {
		case arg == "--", of != nil && runs(cmd) && !strings.HasPrefix(arg, "-"):
			return append(ready, args...) // the program's words
		case !long, strings.HasPrefix(name, "-"), strings.HasPrefix(name, "="):
			ready, args = append(ready, arg), args[1:]
			continue
		}
		args = args[1:]
		name, _, has := strings.Cut(name, "=")
		next := !has && len(args) > 0 && !strings.HasPrefix(args[0], "--")
		f := flags.Lookup(name)
		if f == nil {
			f = undefined(cmd, name, of, next)
		}
		switch takes := f.NoOptDefVal == ""; {
		case takes && next:
			ready, args = append(ready, arg, args[0]), args[1:]
		case takes && !has:
			lacking(f)
		case !takes && next && of != nil && !runs(cmd) && isBool(args[0]):
			ready, args = append(ready, arg+"="+args[0]), args[1:]
		default:
			ready = append(ready, arg)
		}
	}
	return ready
}

// runs reports whether a command's arguments are a user's program with its own flags.
func runs(cmd *cobra.Command) bool { return cmd.Name() == string(job.Run) }

func isBool(word string) bool {
	_, err := job.ParseBool(word)
	return err == nil
}

// undefined defines a flag that a command does not have, so that it is reported together with all
// other problems. For commands of jobs the next word, if there is one, is its value.
func undefined(cmd *cobra.Command, name string, of *job.Command, next bool) *pflag.Flag {
	var f *pflag.Flag
	if of != nil {
		f = cmd.Flags().VarPF(of.Value(name), name, "", "")
	} else {
		f = cmd.Flags().VarPF(&mistyped{fmt.Errorf("--%s: unknown flag%s", name, instead(cmd, name))}, name, "", "")
	}
	if of == nil || !next {
		f.NoOptDefVal = "true"
	}
	f.Hidden = true
	return f
}

// instead returns "; did you mean --x?" for the flag of a command whose name is most similar to an
// unknown one, or a reference to the help text.
func instead(cmd *cobra.Command, name string) string {
	if cmd.Name() == "resume" && spelling(nil)(nil, name) == "num_workers" {
		return "; resume the job, and then run: elasticdl scale JOB --num_workers=N"
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			known = append(known, f.Name)
		}
	})
	if nearest := job.Nearest(name, known); nearest != "" {
		return "; did you mean --" + nearest + "?"
	}
	return "; see " + cmd.CommandPath() + " --help"
}

// lacking records the problem that a flag was given without a value.
func lacking(f *pflag.Flag) {
	switch v := f.Value.(type) {
	case *job.Value:
		v.Lacks()
	case *checked:
		v.problem = fmt.Errorf("--%s: needs a value", v.name)
	}
}

// flagProblem rewrites pflag's error for a flag that it cannot parse.
func flagProblem(cmd *cobra.Command, err error) error {
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		return fmt.Errorf("-%s: unknown flag; see %s --help", unknown.GetSpecifiedName(), cmd.CommandPath())
	}
	if lacks, ok := errors.AsType[*pflag.ValueRequiredError](err); ok {
		return fmt.Errorf("-%s: needs a value", lacks.GetSpecifiedName())
	}
	if bad, ok := errors.AsType[*pflag.InvalidSyntaxError](err); ok {
		return fmt.Errorf("unexpected argument %q: expected --name=value", bad.GetSpecifiedFlag())
	}
	return err
}

// subcommand checks the arguments of a command that only has subcommands: an argument is the name
// of an unknown one.
func subcommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.SuggestionsMinimumDistance <= 0 {
		cmd.SuggestionsMinimumDistance = 2
	}
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		return fmt.Errorf("unknown command %q; did you mean %s?", args[0], strings.Join(near, " or "))
	}
	return fmt.Errorf("unknown command %q; see %s --help", args[0], cmd.CommandPath())
}
