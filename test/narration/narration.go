// Package narration runs narrated scripts: files that tell stories of a machine, as commands to it
// and what it answers. They are tests, and the documentation of a protocol.
//
//	== a worker is lost
//	# The others meet again without it.
//	expect 3
//	join 0
//	join 1
//	join 2
//	    form 1.1 worker-0, worker-1, worker-2
//	leave 1 reason="killed (signal 9)"
//	    abort worker-0, worker-2 from 1: worker-1 left: killed (signal 9)
//	deadline
//	    none
//
// A line that begins with "==" starts a story, which has a machine of its own and is a subtest with
// that name. A line at the margin is a command to the machine. The indented lines below a command
// are its narration: what the machine did. Empty lines and lines that begin with "#" are for the
// reader.
//
// A command has a name, arguments, and named values: "join 3/2 round=7 reason=\"a text\"". A text
// with spaces stands in double quotes, as in Go. An argument or value that the test does not ask
// for is an error, so that every word of a script reaches the machine.
//
// A test runs files like this:
//
//	func TestNarration(t *testing.T) {
//		narration.Play(t, "testdata/*.txt", func(t *testing.T) narration.Perform {
//			m := New()
//			return func(c *narration.Command) []string {
//				switch c.Name {
//				case "join":
//					return narration.Lines(m.Join(c.Int(0), c.IntOf("round", -1)))
//				}
//				return c.Unknown()
//			}
//		})
//	}
//
// "go test ./trainer/elastic/rendezvous -run TestNarration -rewrite" replaces the narration by what
// the machine does now. Read the diff: it shows how the protocol has changed.
package narration

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "replace the narration of scripts by what the machines do now")

// Perform performs a command, and returns one line for each thing that the machine did.
type Perform func(*Command) []string

// Lines returns the text of each item.
func Lines[T fmt.Stringer](items []T) []string {
	var lines []string
	for _, item := range items {
		lines = append(lines, item.String())
	}
	return lines
}

// Play runs all stories of the files that match a pattern, and fails where the narration differs.
// It calls begin for each story.
func Play(t *testing.T, pattern string, begin func(t *testing.T) Perform) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("no script matches %q: %v", pattern, err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), filepath.Ext(file)), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			s, err := parse(string(text))
			if err != nil {
				t.Fatalf("%s:%v", file, err)
			}
			for _, story := range s.stories {
				t.Run(story.name, func(t *testing.T) {
					if err := story.play(begin(t)); err != nil && !*rewrite {
						t.Errorf("%s:%v", file, err)
					}
				})
			}
			if after := s.String(); *rewrite && !t.Failed() && after != string(text) {
				if err := os.WriteFile(file, []byte(after), 0o666); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// script is a parsed file.
type script struct {
	// the lines before the first story
	head    []string
	stories []*story
}

// story is the part of a script for one machine.
type story struct {
	name string
	// the line with the name
	title string
	steps []*step
}

// step is a command with its narration, or a line for the reader.
type step struct {
	text string
	// number of the line in the file
	line int
	// nil: the line is for the reader
	command   *Command
	narration []string
}

// parse reads a script. An error begins with the number of the line.
func parse(text string) (*script, error) {
	s := new(script)
	var now *story
	var last *step // the command whose narration may follow
	for i, line := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		line = strings.TrimRight(line, " \t\r")
		name, title := strings.CutPrefix(line, "==")
		name = strings.TrimSpace(name)
		switch {
		case title && (name == "" || slices.ContainsFunc(s.stories, func(o *story) bool { return o.name == name })):
			return nil, fmt.Errorf("%d: expected a name that no other story of the file has, found %q", i+1, line)
		case title:
			now, last = &story{name: name, title: line}, nil
			s.stories = append(s.stories, now)
		case line == "" || line[0] == '#':
			last = nil
			if now == nil {
				s.head = append(s.head, line)
			} else {
				now.steps = append(now.steps, &step{text: line})
			}
		case line[0] == ' ' || line[0] == '\t':
			if last == nil {
				return nil, fmt.Errorf("%d: expected a command above the narration %q", i+1, strings.TrimSpace(line))
			}
			last.narration = append(last.narration, strings.TrimSpace(line))
		case now == nil:
			return nil, fmt.Errorf("%d: expected \"== NAME\" above the first command, found %q", i+1, line)
		default:
			c, err := command(line)
			if err != nil {
				return nil, fmt.Errorf("%d: %w", i+1, err)
			}
			last = &step{text: line, line: i + 1, command: c}
			now.steps = append(now.steps, last)
		}
	}
	if len(s.stories) == 0 {
		return nil, errors.New("1: expected \"== NAME\" and commands, found no story")
	}
	return s, nil
}

// play performs the commands of a story, and replaces their narration. It returns all differences;
// after a wrong command it stops. An error begins with the number of the line.
func (s *story) play(perform Perform) error {
	var differences []error
	for _, step := range s.steps {
		if step.command == nil {
			continue
		}
		did := perform(step.command)
		if err := step.command.problem(); err != nil {
			return errors.Join(append(differences, fmt.Errorf("%d: %s: %w", step.line, step.text, err))...)
		}
		if !slices.Equal(did, step.narration) {
			differences = append(differences, fmt.Errorf("%d: %s\n%s\nexpected\n%s", step.line, step.text,
				narrate(did), narrate(step.narration)))
		}
		step.narration = did
	}
	return errors.Join(differences...)
}

// String returns the text of the script with its present narration.
func (s *script) String() string {
	var b strings.Builder
	for _, line := range s.head {
		b.WriteString(line + "\n")
	}
	for _, story := range s.stories {
		b.WriteString(story.title + "\n")
		for _, step := range story.steps {
			b.WriteString(step.text + "\n")
			if len(step.narration) > 0 {
				b.WriteString(narrate(step.narration) + "\n")
			}
		}
	}
	return b.String()
}

// narrate returns indented lines.
func narrate(lines []string) string {
	const indent = "    "
	if len(lines) == 0 {
		return indent + "(nothing)"
	}
	return indent + strings.Join(lines, "\n"+indent)
}
