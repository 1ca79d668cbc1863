package narration

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Command is a line of a script. Its methods return what the line says. If that is missing or
// wrong, they return a zero value, and the story fails at this line.
type Command struct {
	Name string
	args []string
	// by name
	values   map[string]string
	used     map[string]bool
	taken    int
	problems []error
}

// command parses a line.
func command(line string) (*Command, error) {
	words, err := split(line)
	if err != nil {
		return nil, err
	}
	c := &Command{Name: words[0].text, values: make(map[string]string), used: make(map[string]bool)}
	for _, w := range words[1:] {
		_, twice := c.values[w.name]
		switch {
		case w.name == "":
			c.args = append(c.args, w.text)
		case twice:
			return nil, fmt.Errorf("%s: expected one value of %s", line, w.name)
		default:
			c.values[w.name] = w.text
		}
	}
	return c, nil
}

// word is an argument, or a value with its name.
type word struct{ name, text string }

// split returns the words of a line that is not empty.
func split(line string) ([]word, error) {
	var words []word
	for rest := strings.TrimSpace(line); rest != ""; rest = strings.TrimLeft(rest, " \t") {
		var w word
		if i := strings.IndexAny(rest, "= \t\""); i > 0 && rest[i] == '=' {
			w.name, rest = rest[:i], rest[i+1:]
		}
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil, fmt.Errorf("expected a text in double quotes, found %s", rest)
			}
			if w.text, err = strconv.Unquote(quoted); err != nil {
				return nil, fmt.Errorf("expected a text in double quotes, found %s: %w", quoted, err)
			}
			rest = rest[len(quoted):]
			if rest != "" && rest[0] != ' ' && rest[0] != '\t' {
				return nil, fmt.Errorf("expected a space after %s, found %s", quoted, rest)
			}
		} else if i := strings.IndexAny(rest, " \t"); i >= 0 {
			w.text, rest = rest[:i], rest[i:]
		} else {
			w.text, rest = rest, ""
		}
		words = append(words, w)
	}
	if words[0].name != "" {
		return nil, fmt.Errorf("expected a command, found %s=", words[0].name)
	}
	return words, nil
}

// Len returns the number of arguments.
func (c *Command) Len() int { return len(c.args) }

// Arg returns the i-th argument, from 0.
func (c *Command) Arg(i int) string {
	c.taken = max(c.taken, i+1)
	if i >= len(c.args) {
		c.Fail("expected %d arguments, found %d", i+1, len(c.args))
		return ""
	}
	return c.args[i]
}

// Int returns the i-th argument as a number.
func (c *Command) Int(i int) int { return parsed(c, c.Arg(i), strconv.Atoi, "a number") }

// Duration returns the i-th argument as a duration.
func (c *Command) Duration(i int) time.Duration {
	return parsed(c, c.Arg(i), time.ParseDuration, "a duration")
}

// Of returns a named value, or other if the line has none.
func (c *Command) Of(name, other string) string {
	c.used[name] = true
	if v, ok := c.values[name]; ok {
		return v
	}
	return other
}

// IntOf returns a named value as a number, or other if the line has none.
func (c *Command) IntOf(name string, other int) int {
	if v := c.Of(name, ""); v != "" {
		return parsed(c, v, strconv.Atoi, "a number")
	}
	return other
}

// IntsOf returns a named value as numbers, which are separated by commas.
func (c *Command) IntsOf(name string) (all []int) {
	for v := range strings.SplitSeq(c.Of(name, ""), ",") {
		if v != "" {
			all = append(all, parsed(c, v, strconv.Atoi, "a number"))
		}
	}
	return all
}

// DurationOf returns a named value as a duration, 0 if the line has none.
func (c *Command) DurationOf(name string) time.Duration {
	if v := c.Of(name, ""); v != "" {
		return parsed(c, v, time.ParseDuration, "a duration")
	}
	return 0
}

// Is reports whether a named value is "true" or "yes".
func (c *Command) Is(name string) bool {
	switch v := c.Of(name, "no"); v {
	case "true", "yes":
		return true
	case "false", "no":
	default:
		c.Fail("expected %s=yes or %s=no, found %s", name, name, v)
	}
	return false
}

func parsed[T any](c *Command, text string, parse func(string) (T, error), what string) T {
	v, err := parse(text)
	if err != nil {
		c.Fail("expected %s, found %q", what, text)
	}
	return v
}

// Fail notes that the command is wrong.
func (c *Command) Fail(format string, args ...any) {
	c.problems = append(c.problems, fmt.Errorf(format, args...))
}

// Unknown notes that the test does not know the command, and returns nil.
func (c *Command) Unknown() []string {
	c.Fail("unknown command %q", c.Name)
	return nil
}

// problem returns what is wrong with the command, after it was performed.
func (c *Command) problem() error {
	if len(c.problems) > 0 {
		return errors.Join(c.problems...)
	}
	if c.taken < len(c.args) {
		return fmt.Errorf("expected %d arguments, found %d", c.taken, len(c.args))
	}
	for _, name := range slices.Sorted(maps.Keys(c.values)) {
		if !c.used[name] {
			return fmt.Errorf("%s=: unknown value of %s", name, c.Name)
		}
	}
	return nil
}
