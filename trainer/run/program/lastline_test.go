package program

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/elasticdl/elasticdl/trainer/logline"
)

// The last line is that of a terminal: progress bars, colours, invalid text and very long lines
// among them. It is short, and has no secret.
func TestLastLine(t *testing.T) {
	for _, c := range []struct {
		name, text string
		cut        bool
		want       string
	}{
		{"nothing", "", false, ""},
		{"blank lines", "\n \r\n\t\n", false, ""},
		{"a line", "step 1\nstep 2\n", false, "step 2"},
		{"a line without an end", "step 1\nstep", false, "step"},
		{"blank lines behind it", "step 1\n\n   \n", false, "step 1"},
		{"line ends of Windows", "step 1\r\nstep 2\r\n", false, "step 2"},
		{"a progress bar", "\r 10%|#   |\r 20%|##  |", false, "20%|## |"},
		{"a progress bar that ends its states", " 10%\r 20%\r", false, "20%"},
		{"a bar that goes up a line", "outer 1\n\rinner 5\x1b[A", false, "inner 5"},
		{"a sequence alone behind it", "inner 5\n\x1b[A\x1b[2K", false, "inner 5"},
		{"a bar of backspaces", "1/9 [>...]\b\b\b\b\b\b\b\b\b\b2/9 [=>..]", false, "2/9 [=>..]"},
		{"more backspaces than text", "ab\b\b\b\bstep 3", false, "step 3"},
		{"colours", "\x1b[31mloss\x1b[0m 0.5\n", false, "loss 0.5"},
		{"a title and a clipboard", "\x1b]0;title\x07ok\x1b]52;c;aGk=\x07\n", false, "ok"},
		{"a control sequence in 8 bits", "\xc2\x9b2Jok\n", false, `\u009b2Jok`},
		{"invalid UTF-8", "loss \xff\xfe 0.5\n", false, `loss \xff\xfe 0.5`},
		{"invisible characters", "a\u202eb\n", false, `a\u202eb`},
		{"tabs and zeros", "a\tb\x00\x00c\n", false, "a bc"},
		{"wide characters", "损失 0.5 🙂\n", false, "损失 0.5 🙂"},
		{"a long line", strings.Repeat("x", 10<<20), false, strings.Repeat("x", lineMost) + "…"},
		{"the end of a long line", strings.Repeat("x", 10<<20) + "end", true,
			"…" + strings.Repeat("x", lineMost-3) + "end"},
		{"a cut text whose last line is whole", "xxx\nstep 7\n", true, "step 7"},
		{"a secret", "token hunter2hunter2 is used\n", false, "token *** is used"},
		{"a secret at the cut of a long line", strings.Repeat("x", lineMost-8) + "hunter2hunter2\n",
			false, strings.Repeat("x", lineMost-8) + "***"},
		{"a secret in colours", "\x1b[1mhunter2\x1b[0mhunter2\n", false, "***"},
	} {
		got := lastLine([]byte(c.text), c.cut, []string{"", "hunter2hunter2"})
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// The newest stream tells the time, and the line if it has one.
func TestNewestOutput(t *testing.T) {
	at := func(seconds int) time.Time { return time.Unix(int64(seconds), 0) }
	for _, c := range []struct {
		name    string
		streams []written
		want    Output
	}{
		{"none", nil, Output{}},
		{"never written to", []written{{}, {}}, Output{}},
		{"the newer", []written{{text: []byte("out\n"), at: at(1)}, {text: []byte("err\n"), at: at(2)}},
			Output{"err", at(2)}},
		{"the newer is first", []written{{text: []byte("out\n"), at: at(3)},
			{text: []byte("err\n"), at: at(2)}}, Output{"out", at(3)}},
		{"the newer is blank", []written{{text: []byte("out\n"), at: at(1)},
			{text: []byte("\n\n"), at: at(2)}}, Output{"out", at(2)}},
	} {
		if got := newest(c.streams, nil); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// FuzzLastLine: the line is valid, harmless, short, and one.
func FuzzLastLine(f *testing.F) {
	f.Add([]byte("step 1\r\nstep 2\b\x1b[A\xff"), true)
	f.Add([]byte("\x1b]0;t\x07\r"), false)
	f.Fuzz(func(t *testing.T, text []byte, cut bool) {
		line := lastLine(text, cut, []string{"secret"})
		if !utf8.ValidString(line) || logline.Escape(line) != line ||
			strings.ContainsAny(line, "\n\t\r") || utf8.RuneCountInString(line) > lineMost+1 {
			t.Errorf("%q: %q", text, line)
		}
		if strings.Contains(line, "secret") {
			t.Errorf("%q: %q has a secret", text, line)
		}
	})
}

// The output of real processes is known while they run: by a pipe, in a file, of a rank that is not
// shown, of a process that a wrapper has started.
func TestOutputOfProcesses(t *testing.T) {
	const says = `echo begins; while :; do printf 'loss \033[31m0.%s\033[0m\r\n' $RANK >&2; sleep 0.1; done`
	for _, c := range []struct {
		name    string
		options Options
		want    string
	}{
		{"shown", Options{}, "loss 0.1"},
		{"redirected", Options{Redirects: Streams{all: Both}}, "loss 0.1"},
		{"to a file, too", Options{Tee: Streams{all: Both}}, "loss 0.1"},
		{"not shown", Options{LocalRanksFilter: []int{0}}, "loss 0.1"},
		{"standard output that is not shown",
			Options{LocalRanksFilter: []int{0},
				Command: []string{"/bin/sh", "-c", "echo step $RANK; sleep 1000"}}, "step 1"},
		{"of a child", Options{Command: []string{"/bin/sh", "-c", "(sh -c 'echo step $RANK; sleep 1000')"}}, "step 1"},
		{"without a line end", Options{Command: []string{"/bin/sh", "-c", "head -c 10000000 " +
			"/dev/zero | tr '\\0' x; printf end; sleep 1000"}}, "…" + strings.Repeat("x", lineMost-3) + "end"},
		{"of a process that is silent", Options{Command: []string{"/bin/sh", "-c", "sleep 1000"}}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			if c.options.Command == nil {
				c.options.Command = []string{"/bin/sh", "-c", says}
			}
			c.options.NoPython = true
			b := newBench(t, c.options, nil)
			g := b.start(2)
			var got Output
			eventually(t, func() error {
				if got = g.Output(1, nil); got.Line != c.want {
					return fmt.Errorf("%q, want %q", got.Line, c.want)
				}
				return nil
			})
			if got.At.IsZero() != (c.want == "") {
				t.Errorf("written at %v", got.At)
			}
			if other := g.Output(7, nil); other != (Output{}) {
				t.Errorf("of a rank that is not there: %v", other)
			}
		})
	}
}

// eventually repeats a check until it succeeds.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatal(err)
}
