// Package plan writes what an update of a stack would do as text with a digest, and compares two of
// these texts: so an update can be refused unless it does what was reviewed.
//
// Pulumi's own plans (`pulumi preview --save-plan`) do not fit these stacks: they fail half way,
// because values that a preview does not know yet bring dependencies that the plan lacks.
//
// Laws:
//
//  1. Two previews of the same program, settings and state have the same plan: no order, time, name
//     that Pulumi makes up, or value that is not known yet counts.
//  2. A plan has no secret. Of a setting that is a secret it has a hash of what is encrypted.
//  3. Whatever changes in steps, in properties that are known, or in settings, changes the digest.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Plan has the steps of an update that was previewed.
type Plan struct {
	Stack string
	// Refresh says that the clouds were asked for every resource before.
	Refresh bool
	// Parts are the settings, and then the steps, in the order of their names.
	Parts []Part
}

// Part is a step, or the settings.
type Part struct {
	// Name is the operation, the type and the name of a resource.
	Name string
	// Lines are properties with their values, in the order of their paths.
	Lines []string
}

// settingsPart is the name of the part with the settings.
const settingsPart = "settings"

// Steps returns the number of steps.
func (p *Plan) Steps() int {
	n := 0
	for _, part := range p.Parts {
		if part.Name != settingsPart {
			n++
		}
	}
	return n
}

// Digest returns the SHA-256 of the plan, as "sha256:" and hexadecimal digits.
func (p *Plan) Digest() string { return sum(p.body()) }

func sum(text string) string {
	h := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(h[:])
}

// Indentation of properties, and the beginnings of the first lines.
const (
	indent      = "    "
	digestLine  = "digest "
	stackLine   = "stack "
	refreshLine = "refresh "
)

func (p *Plan) body() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s%s\n%s%t\n", stackLine, p.Stack, refreshLine, p.Refresh)
	for _, part := range p.Parts {
		b.WriteString(part.Name + "\n")
		for _, line := range part.Lines {
			b.WriteString(indent + line + "\n")
		}
	}
	return b.String()
}

// String returns the plan as text, which [Parse] reads. Its first line has the digest.
func (p *Plan) String() string {
	body := p.body()
	return digestLine + sum(body) + "\n" + body
}

// Parse reads a plan that [Plan.String] wrote. It returns an error if the text is no plan, or was
// edited.
func Parse(text string) (*Plan, error) {
	first, body, _ := strings.Cut(text, "\n")
	digest, ok := strings.CutPrefix(first, digestLine)
	if !ok {
		return nil, fmt.Errorf("the first line is %.80q: expected the digest of a plan that "+
			"`make plan` has printed", first)
	}
	if is := sum(body); digest != is {
		return nil, fmt.Errorf("the digest is %s, and that of the lines below it %s: the plan was "+
			"edited or cut; make it again", digest, is)
	}
	p := &Plan{}
	lines := strings.Split(strings.TrimSuffix(body, "\n"), "\n")
	var stack, refresh bool
	if len(lines) >= 2 {
		p.Stack, stack = strings.CutPrefix(lines[0], stackLine)
		var value string
		value, refresh = strings.CutPrefix(lines[1], refreshLine)
		p.Refresh = value == "true"
	}
	if !stack || !refresh {
		return nil, errors.New("the plan names no stack: make it again")
	}
	for _, line := range lines[2:] {
		property, ok := strings.CutPrefix(line, indent)
		switch {
		case !ok:
			p.Parts = append(p.Parts, Part{Name: line})
		case len(p.Parts) == 0:
			return nil, fmt.Errorf("%.80q belongs to no step: make the plan again", line)
		default:
			last := &p.Parts[len(p.Parts)-1]
			last.Lines = append(last.Lines, property)
		}
	}
	if p.String() != text || !p.ordered() {
		return nil, errors.New("this is not as `make plan` writes it: make the plan again")
	}
	return p, nil
}

// ordered says whether parts and lines are in the order in which [Read] returns them, and each part
// is there once.
func (p *Plan) ordered() bool {
	for i, part := range p.Parts {
		if part.Name == "" || (part.Name == settingsPart) != (i == 0) ||
			i > 1 && part.Name <= p.Parts[i-1].Name || !slices.IsSorted(part.Lines) {
			return false
		}
	}
	return true
}

// Differences returns what another plan has not ("-"), and what only the other has ("+"): whole
// steps, or lines of a step. It returns nothing if, and only if, the digests are equal.
func (p *Plan) Differences(other *Plan) []string {
	var lines []string
	for _, head := range []struct{ was, is string }{
		{stackLine + p.Stack, stackLine + other.Stack},
		{refreshLine + fmt.Sprint(p.Refresh), refreshLine + fmt.Sprint(other.Refresh)},
	} {
		if head.was != head.is {
			lines = append(lines, "- "+head.was, "+ "+head.is)
		}
	}
	was, is := p.named(), other.named()
	var names []string
	for _, part := range slices.Concat(p.Parts, other.Parts) {
		if !slices.Contains(names, part.Name) {
			names = append(names, part.Name)
		}
	}
	for _, name := range names {
		before, had := was[name]
		after, has := is[name]
		switch {
		case !has:
			lines = append(lines, "- "+name)
		case !had:
			lines = append(lines, "+ "+name)
		case !slices.Equal(before, after):
			lines = append(lines, "  "+name)
			lines = append(lines, only("- ", before, after)...)
			lines = append(lines, only("+ ", after, before)...)
		}
	}
	return lines
}

func (p *Plan) named() map[string][]string {
	named := map[string][]string{}
	for _, part := range p.Parts {
		named[part.Name] = part.Lines
	}
	return named
}

// only returns the lines that are not among others, which may be as many times in both.
func only(sign string, lines, others []string) (those []string) {
	left := slices.Clone(others)
	for _, line := range lines {
		if i := slices.Index(left, line); i >= 0 {
			left = slices.Delete(left, i, i+1)
			continue
		}
		those = append(those, sign+indent+line)
	}
	return those
}
