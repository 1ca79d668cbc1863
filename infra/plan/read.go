package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Operations of Pulumi that have a meaning here; others are steps under their own names.
const (
	opSame              = "same"
	opRead              = "read"
	opRefresh           = "refresh"
	opCreate            = "create"
	opReplace           = "replace"
	opCreateReplacement = "create-replacement"
	opDeleteReplaced    = "delete-replaced"
)

// rootType is the type of the stack itself, whose only properties are its outputs.
const rootType = "pulumi:pulumi:Stack"

// preview is the output of `pulumi preview --json`.
type preview struct {
	Steps       []step `json:"steps"`
	Diagnostics []struct {
		Message  string `json:"message"`
		Severity string `json:"severity"`
	} `json:"diagnostics"`
}

type step struct {
	Op             string   `json:"op"`
	URN            string   `json:"urn"`
	Old            *state   `json:"oldState"`
	New            *state   `json:"newState"`
	ReplaceReasons []string `json:"replaceReasons"`
	DetailedDiff   map[string]struct {
		Kind string `json:"kind"`
	} `json:"detailedDiff"`
}

type state struct {
	Inputs map[string]any `json:"inputs"`
}

// decode keeps all digits of numbers.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	if err := d.Decode(into); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more after the JSON value")
	}
	return nil
}

// Read returns the plan of a stack: the settings in the file Pulumi.<stack>.yaml, and the steps
// that `pulumi preview --json` has printed. It returns an error if the preview has reported one, or
// if either text cannot be read.
func Read(stack string, refresh bool, file, shown []byte) (*Plan, error) {
	var seen preview
	if err := decode(shown, &seen); err != nil {
		return nil, fmt.Errorf("read the preview: %w: expected what `pulumi preview --json` prints", err)
	}
	var wrong []string
	for _, d := range seen.Diagnostics {
		if d.Severity == "error" {
			wrong = append(wrong, strings.TrimSpace(d.Message))
		}
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("the preview failed: %s", strings.Join(wrong, "\n"))
	}
	set, err := settings(file)
	if err != nil {
		return nil, err
	}
	parts, err := steps(seen.Steps)
	if err != nil {
		return nil, err
	}
	return &Plan{Stack: clean(stack), Refresh: refresh, Parts: append([]Part{set}, parts...)}, nil
}

// settings returns the part with the settings of a stack's file.
func settings(text []byte) (Part, error) {
	asJSON, err := yaml.YAMLToJSON(text)
	var file struct {
		Config map[string]any `json:"config"`
	}
	if err == nil {
		err = decode(asJSON, &file)
	}
	if err != nil {
		return Part{}, fmt.Errorf("read the stack's file: %w", err)
	}
	values := map[string]string{}
	flatten("", file.Config, values, func(text string) string {
		return quote(text)
	})
	return Part{Name: settingsPart, Lines: assigned(values)}, nil
}

// kept says which steps do something.
func kept(s step) bool {
	_, kind, _ := split(s.URN)
	return !slices.Contains([]string{opSame, opRead, opRefresh, opCreateReplacement, opDeleteReplaced}, s.Op) &&
		kind != rootType
}

// steps returns the parts of a preview's steps, in the order of their names.
func steps(all []step) ([]Part, error) {
	first := deletedFirst(all)
	same := map[string]map[string]bool{}
	for _, s := range all {
		if _, _, ok := split(s.URN); !ok || s.Op == "" {
			return nil, fmt.Errorf("read the preview: a step %.40q of %.200q: expected an operation "+
				"of a resource", s.Op, s.URN)
		}
		if kept(s) {
			name := s.name(false)
			if same[name] == nil {
				same[name] = map[string]bool{}
			}
			same[name][s.URN] = true
		}
	}
	lines := map[string][]string{}
	times := map[string]int{}
	for _, s := range all {
		if !kept(s) {
			continue
		}
		name := s.name(len(same[s.name(false)]) > 1)
		times[name]++
		lines[name] = append(lines[name], s.lines()...)
		if s.Op == opReplace && first[s.URN] {
			lines[name] = append(lines[name], "(deleted before the other is made)")
		}
	}
	var parts []Part
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		if times[name] > 1 { // earlier updates could not delete them
			lines[name] = append(lines[name], fmt.Sprintf("(%d times)", times[name]))
		}
		slices.Sort(lines[name])
		parts = append(parts, Part{Name: name, Lines: lines[name]})
	}
	return parts, nil
}

// deletedFirst returns the resources that are deleted before their replacements are made.
func deletedFirst(all []step) map[string]bool {
	first, made := map[string]bool{}, map[string]bool{}
	for _, s := range all {
		switch s.Op {
		case opCreateReplacement:
			made[s.URN] = true
		case opDeleteReplaced:
			first[s.URN] = !made[s.URN]
		}
	}
	return first
}

// name returns the operation, type and name of a step's resource. Resources of the same type and
// name have the types of their parents, too.
func (s step) name(parents bool) string {
	name, kind, _ := split(s.URN)
	if !parents {
		kind = kind[strings.LastIndexByte(kind, '$')+1:]
	}
	return clean(s.Op) + " " + clean(kind) + " " + clean(name)
}

// split returns the name of a resource, and its type after those of its parents.
func split(urn string) (name, kind string, ok bool) {
	parts := strings.SplitN(urn, "::", 4)
	if len(parts) < 4 || !strings.HasPrefix(urn, "urn:pulumi:") {
		return "", "", false
	}
	return parts[3], parts[2], true
}

// lines returns the properties that a step sets or changes.
func (s step) lines() []string {
	name, _, _ := split(s.URN)
	text := quote
	if s.Old == nil || s.Op == opReplace {
		text = func(v string) string {
			if named(v, name) {
				return "[named by Pulumi]"
			}
			return quote(v)
		}
	}
	is := map[string]string{}
	if s.New != nil {
		flatten("", own(s.New.Inputs), is, text)
	}
	switch {
	case s.New == nil: // nothing is left
		return nil
	case s.Old == nil:
		return assigned(is)
	}
	was := map[string]string{}
	flatten("", own(s.Old.Inputs), was, quote)
	return s.changed(was, is)
}

// changed returns the differences of inputs, and what else the provider will change: values that
// are secret, and those that others have changed.
func (s step) changed(was, is map[string]string) (lines []string) {
	const none = "(none)"
	value := func(values map[string]string, path string) string {
		if v, ok := values[path]; ok {
			return v
		}
		return none
	}
	found := map[string]bool{}
	paths := maps.Clone(was)
	maps.Copy(paths, is)
	for path := range paths {
		if before, after := value(was, path), value(is, path); before != after {
			found[path] = true
			lines = append(lines, fmt.Sprintf("%s: %s -> %s", path, before, after))
		}
	}
	for path, diff := range s.DetailedDiff {
		if !found[clean(path)] {
			lines = append(lines, fmt.Sprintf("%s: (%s)", clean(path), clean(diff.Kind)))
		}
	}
	if s.Op == opReplace {
		reasons := slices.Sorted(slices.Values(s.ReplaceReasons))
		lines = append(lines, clean("(because of "+strings.Join(reasons, ", ")+")"))
	}
	return lines
}

func assigned(values map[string]string) (lines []string) {
	for path, v := range values {
		lines = append(lines, path+": "+v)
	}
	slices.Sort(lines)
	return lines
}

// own returns inputs without the keys of Pulumi's own bookkeeping.
func own(v any) any {
	switch v := v.(type) {
	case map[string]any:
		kept := map[string]any{}
		for key, below := range v {
			if !strings.HasPrefix(key, "__") {
				kept[key] = own(below)
			}
		}
		return kept
	case []any:
		kept := slices.Clone(v)
		for i := range kept {
			kept[i] = own(kept[i])
		}
		return kept
	}
	return v
}

// flatten adds the values below a path.
func flatten(path string, v any, into map[string]string, text func(string) string) {
	switch v := v.(type) {
	case map[string]any:
		if secure, ok := v["secure"].(string); ok && len(v) == 1 {
			into[path] = "[secret " + sum(secure)[:len("sha256:")+16] + "]"
			return
		}
		for key, below := range v {
			switch {
			case !simple.MatchString(key):
				key = path + "[" + quoted(key) + "]"
			case path != "":
				key = path + "." + key
			}
			flatten(key, below, into, text)
		}
		if len(v) == 0 && path != "" {
			into[path] = "{}"
		}
	case []any:
		for i, below := range v {
			flatten(fmt.Sprintf("%s[%d]", path, i), below, into, text)
		}
		if len(v) == 0 {
			into[path] = "[]"
		}
	case string:
		into[path] = text(v)
	case nil:
		into[path] = "null"
	default: // a number or a truth value
		into[path] = fmt.Sprint(v)
	}
}

// simple matches keys that need no quotes.
var simple = regexp.MustCompile(`^[\w:/-]+$`)

// Values that stand for others in what Pulumi prints.
const (
	unknown = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
	hidden  = "[secret]"
)

// longest is the length of the longest text that is in a plan; of longer ones it has a hash.
const longest = 100

// quote returns a value as text on one line.
func quote(v string) string {
	switch {
	case v == unknown:
		return "[unknown]"
	case v == hidden:
		return hidden
	case len(v) > longest:
		return fmt.Sprintf("%s… (%d bytes, %s)", quoted(v[:40]), len(v), sum(v)[:len("sha256:")+16])
	}
	return quoted(v)
}

// quoted returns a text in quotes, as JSON has it.
func quoted(v string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Sprintf("%q", v)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// clean returns a word, in quotes if a line could not hold it otherwise.
func clean(word string) string {
	if word == "" || word != strings.TrimSpace(word) || strings.ContainsFunc(word, func(r rune) bool {
		return r < ' ' || r == 0x7f
	}) {
		return quoted(word)
	}
	return word
}

// random is the end of a name that Pulumi makes up, for a resource that the program gives none. It
// differs from preview to preview.
var random = regexp.MustCompile(`^-?[0-9a-f]{7,8}$`)

func named(v, resource string) bool {
	end, ok := strings.CutPrefix(v, resource)
	return ok && random.MatchString(end)
}
