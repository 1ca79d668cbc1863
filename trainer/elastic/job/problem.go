package job

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Problem is one thing that is wrong with a job, or with the command that asks for one. As an error
// it speaks to users of flags: "--min_workers=3: more than --max_workers=2". To those who wrote
// fields [Problem.ByField] says the same: a stack's elasticdl:job.minWorkers.
type Problem struct {
	about mention
	// about was not given at all
	missing bool
	// what is wrong, and what is expected, in which settings are named by their flags
	flags string
	// likewise, by their fields
	fields string
}

// NewProblem returns a problem with what a flag sets: the value is not shown, the text says what is
// wrong with it.
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

// withSubject puts a text behind the flag that the problem is about.
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

// ByField returns the field that the problem is with, as a path in JSON, and what is wrong with it,
// which names other settings by their fields, too: "minWorkers" and "3: more than maxWorkers=2".
// The field is "" if the problem is with none.
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

// ProblemsIn returns the problems that are joined in an error. Other errors among them are problems
// with no setting.
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

// mention is a setting of a job, and its value, as a problem mentions it. Its String is that of the
// command line.
type mention struct {
	// as its user spells it; "" if no flag sets it
	flag string
	// without a flag: its path in JSON
	field string
	// without a flag: what users of the command line know it by; "" = by its field
	title string
	// what it is set to
	value string
	// the value is to be shown
	shown bool
}

// setting mentions what a flag sets, with its value if that is to be shown.
func setting(flag string, value ...any) mention {
	return mention{flag: flag, value: fmt.Sprint(value...), shown: len(value) > 0}
}

// fieldOf mentions a field of the job that no flag sets.
func fieldOf(path string, value any) mention {
	return mention{field: path, value: fmt.Sprint(value), shown: true}
}

// theProgram mentions what workers run: the words of `elasticdl run` that are no flags.
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

// path returns that of the setting's field in JSON; "" if it is none of the Job.
func (s mention) path() string {
	if f := Find(s.flag); f != nil {
		return f.Field()
	}
	return s.field
}

// same reports whether two names are those of one setting.
func (s mention) same(o mention) bool {
	if s.path() != "" {
		return s.path() == o.path()
	}
	f := Find(s.flag)
	return f != nil && f == Find(o.flag)
}

// named puts the value behind a name, if it is to be shown.
func (s mention) named(name, sep string) string {
	if !s.shown {
		return name
	}
	return name + sep + s.value
}

// either is a part of a text that differs for users of flags and of fields.
type either struct{ flags, fields string }

func (e either) String() string   { return e.flags }
func (e either) inFields() string { return e.fields }

// theClusterSpec completes manifests: a file for who gives flags.
var theClusterSpec = either{"--cluster_spec", "clusterSpecJSON"}

// problems gathers what is wrong.
type problems []*Problem

// check adds a problem with a setting if ok is false: what is wrong, and what is expected. Among
// the arguments may be other settings.
func (p *problems) check(ok bool, about mention, format string, args ...any) {
	if !ok {
		*p = append(*p, newProblem(about, format, args...))
	}
}

// given adds a problem if a setting that there must be is missing; the text says what to give.
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
