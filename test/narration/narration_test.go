package narration

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const tale = `# Of a counter.

== it counts
# up
add 2 by=3 why="a text = \"quoted\""
    6 for a text = "quoted"
wait 2s
    later
wait 1s at=500ms only=1,2 loud=yes

# The end.
== it starts over
add 1
    1
`

// counter counts, as an example of a machine.
func counter() Perform {
	n := 0
	return func(c *Command) []string {
		switch c.Name {
		case "add":
			n += c.Int(0) * c.IntOf("by", 1)
			if why := c.Of("why", ""); why != "" {
				return []string{fmt.Sprintf("%d for %s", n, why)}
			}
			return []string{fmt.Sprint(n)}
		case "wait":
			if c.Duration(0)-c.DurationOf("at") >= 2*time.Second || len(c.IntsOf("only")) == 1 ||
				c.Is("loud") != (c.Of("at", "") != "") {
				return []string{"later"}
			}
			return nil
		}
		return c.Unknown()
	}
}

func play(text string) (string, error) {
	s, err := parse(text)
	if err != nil {
		return "", err
	}
	var all []string
	for _, story := range s.stories {
		if err := story.play(counter()); err != nil {
			all = append(all, err.Error())
		}
	}
	if len(all) > 0 {
		err = fmt.Errorf("%s", strings.Join(all, "\n"))
	}
	return s.String(), err
}

// A script whose narration is right is unchanged.
func TestPlay(t *testing.T) {
	if after, err := play(tale); err != nil || after != tale {
		t.Errorf("%v\n%s", err, after)
	}
}

// A wrong narration is reported, and put right, whether it says too much, too little or another
// thing.
func TestRewrite(t *testing.T) {
	for old, new := range map[string]string{
		"    6 for": "    7 for", "    later\n": "", "    1\n": "    1\n    2\n",
		"loud=yes\n": "loud=yes\n    later\n",
	} {
		wrong := strings.Replace(tale, old, new, 1)
		after, err := play(wrong)
		if err == nil || !strings.Contains(err.Error(), "expected") || after != tale {
			t.Errorf("%q instead of %q: %v\n%s", new, old, err, after)
		}
	}
}

func TestMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 `1: expected "== NAME" and commands, found no story`,
		"add 1":                            `1: expected "== NAME" above the first command, found "add 1"`,
		"==":                               `1: expected a name that no other story of the file has, found "=="`,
		"== a\nadd 1\n    1\n== a\n":       `4: expected a name that no other story of the file has, found "== a"`,
		"== a\n# x\n  no\n":                `3: expected a command above the narration "no"`,
		"== a\nadd \"x\n":                  `2: expected a text in double quotes, found "x`,
		"== a\nadd \"x\"y\n":               `2: expected a space after "x", found y`,
		"== a\nby=3\n":                     `2: expected a command, found by=`,
		"== a\nadd 1 by=1 by=2\n":          `2: add 1 by=1 by=2: expected one value of by`,
		"== a\nsub 1\n":                    `2: sub 1: unknown command "sub"`,
		"== a\nadd\n":                      `2: add: expected 1 arguments, found 0`,
		"== a\nadd 1 2\n    1\n":           `2: add 1 2: expected 1 arguments, found 2`,
		"== a\nadd x\n":                    `2: add x: expected a number, found "x"`,
		"== a\nadd 1 to=2\n    1\n":        `2: add 1 to=2: to=: unknown value of add`,
		"== a\nwait 1\n":                   `2: wait 1: expected a duration, found "1"`,
		"== a\nwait 1s at=1\n":             `2: wait 1s at=1: expected a duration, found "1"`,
		"== a\nwait 1s loud=ja\n    later": `2: wait 1s loud=ja: expected loud=yes or loud=no, found ja`,
		"== a\nwait 1s only=1,x\n":         `2: wait 1s only=1,x: expected a number, found "x"`,
	} {
		if _, err := play(text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
