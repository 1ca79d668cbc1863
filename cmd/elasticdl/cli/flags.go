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

// Every command has its flags in cobra's sets. This file adds: dashes are as good as underscores,
// booleans have ElasticDL's values, mistyped flags get a suggestion, and all mistakes of a command
// line are reported at once.

// spelling returns how the flags of a command line are spelled: with underscores, by their newest
// names. A completion that is asked for with dashes is answered with dashes.
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

// completes reports whether a shell asks for completions.
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

// jobOf returns the command that the flags of a job set, nil for flags of anything else.
func jobOf(fs *pflag.FlagSet) *job.Command {
	if f := fs.Lookup("job_name"); f != nil {
		if v, ok := f.Value.(*job.Value); ok {
			return v.Command()
		}
	}
	return nil
}

// checked is a flag that takes nothing wrong: what it refuses is reported with all else that is
// wrong.
type checked struct {
	pflag.Value
	name    string
	problem error
}

// expected says what values of a type are, for those who gave another.
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

// mistyped is a flag that a command does not have.
type mistyped struct{ problem error }

// String implements pflag.Value.
func (m *mistyped) String() string { return "" }

// Type implements pflag.Value.
func (m *mistyped) Type() string { return "string" }

// Set implements pflag.Value.
func (m *mistyped) Set(string) error { return nil }

// misread returns what is wrong with the flags that a command was given.
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

// prepared returns a command line as pflag reads it, and readies the command that it names to
// report all that is wrong with it.
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
	cmd.Args = cobra.ArbitraryArgs // which is checked with the flags
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		// what a slip of the hand has left out is no second problem
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

// readied returns a command's arguments as pflag reads them: a boolean of a job has its value
// behind a '=', and a flag without the value that it needs is left out. Flags that the command does
// not have are defined as mistyped.
func readied(cmd *cobra.Command, args []string) (ready []string) {
	flags := cmd.Flags()
	of := jobOf(flags)
	for len(args) > 0 {
		arg := args[0]
		name, long := strings.CutPrefix(arg, "--")
		switch {
		case arg == "--", of != nil && runs(cmd) && !strings.HasPrefix(arg, "-"):
			return append(ready, args...) // a program's
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

// runs reports whether a command's words are a program of the user's, with flags of its own.
func runs(cmd *cobra.Command) bool { return cmd.Name() == string(job.Run) }

func isBool(word string) bool {
	_, err := job.ParseBool(word)
	return err == nil
}

// undefined defines a flag that a command does not have, so that it is reported with all else that
// is wrong. A job's takes the next word as its value, if there is one.
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

// instead returns "; did you mean --x?" for the flag of a command that is nearest to an unknown
// one, or where to look.
func instead(cmd *cobra.Command, name string) string {
	if cmd.Name() == "resume" && spelling(nil)(nil, name) == "num_workers" {
		return "; a job is resumed as it was: resume it, and then: elasticdl scale JOB --num_workers=N"
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

// lacking notes that a flag has no value.
func lacking(f *pflag.Flag) {
	switch v := f.Value.(type) {
	case *job.Value:
		v.Lacks()
	case *checked:
		v.problem = fmt.Errorf("--%s: needs a value", v.name)
	}
}

// flagProblem says what is wrong with a flag that pflag cannot read.
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

// words returns a check that a command has as many arguments as its usage names: least of them have
// to be there, most (negative: any number) may.
func words(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		usage := "expected " + cmd.CommandPath() + strings.TrimPrefix(cmd.Use, cmd.Name())
		switch named := strings.Fields(cmd.Use)[1:]; {
		case len(args) < least:
			return fmt.Errorf("%s is missing: %s", strings.TrimSuffix(named[len(args)], "..."), usage)
		case most >= 0 && len(args) > most:
			return fmt.Errorf("unexpected argument %q: %s", args[most], usage)
		}
		return nil
	}
}

// subcommand checks the words of a command that does nothing on its own: the first is a command's
// name that it does not know.
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
