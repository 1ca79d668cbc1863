package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is a problem with a setting of a job or of its command. The text of the error names
// flags: "--min_workers=3: more than --max_workers=2". [Problem.ByField] names the fields of a
// stack's configuration instead: elasticdl:job.minWorkers.
type Problem struct {
	about mention
	// the setting was not given
	missing bool
	// text of the problem, with the flags of settings
	flags string
	// text of the problem, with the fields of settings
	fields string
}

// NewProblem returns a problem with the setting of a flag, whose value is not shown.
func NewProblem(flag, text string) *Problem { return newProblem(setting(flag), "%s", text) }

func newProblem(about mention, format string, args ...any) *Problem {
	flags := fmt.Sprintf(format, args...)
	byField := slices.Clone(args)
	for i, arg := range args {
		if s, ok := arg.(interface{ inFields() string }); ok {
			byField[i] = s.inFields()
		}
	}
	return &Problem{about: about, flags: flags, fields: fmt.Sprintf(format, byField...)}
}

// Error names settings by their flags.
func (p *Problem) Error() string { return p.withSubject(p.flags) }

// withSubject returns the text after the flag of the setting.
func (p *Problem) withSubject(text string) string {
	switch about := p.about.String(); {
	case about == "":
		return text
	case p.missing && p.about.title != "":
		return "the " + about + " is missing: " + text
	case p.missing:
		return about + " is missing: " + text
	default:
		return about + ": " + text
	}
}

// ByField returns the field of the setting, as a path in JSON, and the text of the problem with the
// fields of other settings: "minWorkers" and "3: more than maxWorkers=2". The field is "" if the
// problem is not about a field.
func (p *Problem) ByField() (field, text string) {
	switch field = p.about.path(); {
	case field == "":
		return "", p.withSubject(p.fields)
	case p.missing:
		return field, "missing: " + p.fields
	case p.about.value != "":
		return field, p.about.value + ": " + p.fields
	default:
		return field, p.fields
	}
}

// ProblemsIn returns the problems that are joined in an error. Other errors in it become problems
// without a setting.
func ProblemsIn(err error) []*Problem {
	if err == nil {
		return nil
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var all []*Problem
		for _, e := range joined.Unwrap() {
			all = append(all, ProblemsIn(e)...)
		}
		return all
	}
	if p, ok := errors.AsType[*Problem](err); ok {
		return []*Problem{p}
	}
	return []*Problem{newProblem(mention{}, "%v", err)}
}

// mention is a setting of a job, and its value, in the text of a problem. String names it by its
// flag.
type mention struct {
	// name of the flag; "" if no flag sets it
	flag string
	// without a flag: path in JSON
	field string
	// without a flag: name for users of the command line; "" = the field
	title string
	value string
	// the text contains the value
	shown bool
}

// setting mentions the setting of a flag, with its value if it is given.
func setting(flag string, value ...any) mention {
	return mention{flag: flag, value: fmt.Sprint(value...), shown: len(value) > 0}
}

// fieldOf mentions a field of the job that no flag sets.
func fieldOf(path string, value any) mention {
	return mention{field: path, value: fmt.Sprint(value), shown: true}
}

// theProgram mentions the program of a job: the words of `elasticdl run` that are no flags.
func theProgram(value ...any) mention {
	return mention{field: "command", title: "program", value: fmt.Sprint(value...), shown: len(value) > 0}
}

func (s mention) String() string {
	switch {
	case s.flag != "":
		return s.named("--"+s.flag, "=")
	case s.title != "":
		return s.named(s.title, " ")
	}
	return s.named(s.field, "=")
}

// inFields names the setting by its field, if it has one.
func (s mention) inFields() string {
	if path := s.path(); path != "" {
		return s.named(path, "=")
	}
	return s.String()
}

// path returns the path of the setting's field in JSON; "" if it is no field of the Job.
func (s mention) path() string {
	if f := Find(s.flag); f != nil {
		return f.Field()
	}
	return s.field
}

// same reports whether two mentions are of the same setting.
func (s mention) same(o mention) bool {
	if s.path() != "" {
		return s.path() == o.path()
	}
	f := Find(s.flag)
	return f != nil && f == Find(o.flag)
}

// named returns a name, with the value if it is shown.
func (s mention) named(name, sep string) string {
	if !s.shown {
		return name
	}
	return name + sep + s.value
}

// either is a part of a text that differs between flags and fields.
type either struct{ flags, fields string }

func (e either) String() string   { return e.flags }
func (e either) inFields() string { return e.fields }

// theClusterSpec is the name of the cluster spec: a file of a flag, or a field.
var theClusterSpec = either{"--cluster_spec", "clusterSpecJSON"}

// problems gathers what is wrong.
type problems []*Problem

// check adds a problem with a setting if ok is false. The text says what is expected. Arguments may
// be other settings.
func (p *problems) check(ok bool, about mention, format string, args ...any) {
	if !ok {
		*p = append(*p, newProblem(about, format, args...))
	}
}

// given adds a problem if ok is false: a required setting is missing. The text says what to give.
func (p *problems) given(ok bool, about mention, format string, args ...any) {
	if !ok {
		o := newProblem(about, format, args...)
		o.missing = true
		*p = append(*p, o)
	}
}

func (p *problems) atLeast(low, n int, flag string) {
	p.check(n >= low, setting(flag, n), "expected %d or more", low)
}

func (p *problems) oneOf(value, flag string, choices ...string) {
	p.check(slices.Contains(choices, value), setting(flag, value), "expected %s", strings.Join(choices, ", "))
}

// has reports whether there is a problem with a setting already.
func (p problems) has(about mention) bool {
	return slices.ContainsFunc(p, func(o *Problem) bool { return o.about.same(about) })
}

// err returns all of them, joined; nil if there are none.
func (p problems) err() error {
	var all []error
	for _, o := range p {
		all = append(all, o)
	}
	return errors.Join(all...)
}
