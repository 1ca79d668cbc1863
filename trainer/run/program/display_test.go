package program

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/trainer/console"
)

// display is a display that a test reads.
type display struct {
	Display
	out, err output
}

// newDisplay returns a display whose streams are terminals or not.
func newDisplay(out, err bool) *display {
	d := &display{}
	d.Stdout, d.Stderr = console.New(&d.out, out), console.New(&d.err, err)
	if out && err {
		d.Stderr = d.Stdout
	}
	return d
}

// byBoth runs a test with forked and with executed processes of a script.
func byBoth(t *testing.T, script string, o Options, test func(*testing.T, *bench)) {
	for _, method := range []StartMethod{Fork, Exec} {
		t.Run(method.String(), func(t *testing.T) {
			o := o
			o.Command, o.StartMethod = []string{"main.py"}, method
			b := newForkBench(t, o, map[string]string{"main.py": script})
			test(t, b)
		})
	}
}

// Each stream is a terminal where the command's is one, and comes byte for byte. The log has lines.
func TestStreamsOfTheCommand(t *testing.T) {
	const script = `
import os, sys
os.write(1, b"out %d %d\n" % (os.isatty(1), sys.stdout.isatty()))
os.write(2, b"err %d %d\n" % (os.isatty(2), sys.stderr.isatty()))
os.write(1, b"\r 1%\r 2%")
`
	for name, c := range map[string]struct {
		out, err       bool
		stdout, stderr string
	}{
		"no terminal":     {false, false, "out 0 0\n\r 1%\r 2%", "err 0 0\n"},
		"standard output": {true, false, "out 1 1\n\r 1%\r 2%\n", "err 0 0\n"},
		"standard error":  {false, true, "out 0 0\n\r 1%\r 2%", "err 1 1\n"},
		"one for both":    {true, true, "out 1 1\nerr 1 1\n\r 1%\r 2%\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, method := range []StartMethod{Fork, Exec} {
				d := newDisplay(c.out, c.err)
				b := newForkBench(t, Options{Command: []string{"main.py"}, StartMethod: method,
					Display: &d.Display}, map[string]string{"main.py": script})
				g := b.start(1)
				if b.ends(g); g.Method() != method || d.out.String() != c.stdout || d.err.String() != c.stderr {
					t.Errorf("by %v: %q and %q, want %q and %q", g.Method(), &d.out, &d.err, c.stdout, c.stderr)
				}
				log := b.out.String() + b.err.String()
				for _, line := range []string{"out ", "err ", " 2%\n"} {
					if strings.Count(log, line) != 1 || strings.Contains(log, "\r") {
						t.Errorf("the log has not one line %q: %q", line, log)
					}
				}
			}
		})
	}
}

// A stream that goes to a file is not a terminal, whatever the command has; what is teed is shown
// in lines with a prefix.
func TestStreamsOfTheCommandAndFiles(t *testing.T) {
	d := newDisplay(true, true)
	b := newBench(t, Options{
		Command: []string{"sh", "-c", "test -t 1 || test -t 2 || echo no terminal; echo err >&2"}, Display: &d.Display,
		Tee: Streams{all: Stdout}, Redirects: Streams{all: Stderr},
	}, nil)
	b.ends(b.start(1))
	if d.out.String() != "[default0]:no terminal\n" || b.out.String() != d.out.String() {
		t.Errorf("shown %q, logged %q", &d.out, &b.out)
	}
	if text, err := os.ReadFile(filepath.Join(b.LogDir(), "attempt_0", "0", "stderr.log")); string(text) != "err\n" {
		t.Errorf("%q, %v", text, err)
	}
}

// Terminals have the size of the command's, also when that changes.
func TestSizeOfTheTerminal(t *testing.T) {
	like, err := openTerminal(nil, true)
	if err != nil {
		t.Fatal(err)
	}
	defer like.master.Close()
	defer like.slave.Close()
	size := func(rows, columns uint16) {
		if err := unix.IoctlSetWinsize(int(like.slave.Fd()), unix.TIOCSWINSZ,
			&unix.Winsize{Row: rows, Col: columns}); err != nil {
			t.Fatal(err)
		}
	}
	size(33, 111)
	d := newDisplay(true, true)
	d.Terminal = like.slave
	b := newForkBench(t, Options{Command: []string{"main.py"}, Display: &d.Display}, map[string]string{"main.py": `
import os, time
before = None
while before is None or before.lines != 44:
    now = os.get_terminal_size()
    if now != before: print(now.lines, now.columns)
    before = now
    time.sleep(0.01)
`})
	g := b.start(1)
	await(t, "the first size", func() bool { return strings.Contains(d.out.String(), "33 111") })
	size(44, 80)
	if err := unix.Kill(os.Getpid(), unix.SIGWINCH); err != nil {
		t.Fatal(err)
	}
	b.ends(g)
	if !strings.Contains(d.out.String(), "44 80") {
		t.Errorf("%q", &d.out)
	}
}

// A program reads the file that the command has as its standard input, and a process that follows
// another reads on.
func TestStandardInput(t *testing.T) {
	byBoth(t, "import os, sys; print(os.read(0, 6), sys.stdin.isatty()); os.environ['RANK'] == '0' "+
		"and sys.exit()", Options{}, func(t *testing.T, b *bench) {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		write.WriteString("first\nsecond")
		write.Close()
		d := newDisplay(false, false)
		d.Stdin = read
		b.options.Display = &d.Display
		for range 3 {
			b.ends(b.start(1))
		}
		if want := "b'first\\n' False\nb'second' False\nb'' False\n"; d.out.String() != want {
			t.Errorf("%q, want %q", &d.out, want)
		}
	})
}

// Typed text is the input of the running process, whose terminal shows it, unless standard output
// is no terminal: then the command's does.
func TestKeyboard(t *testing.T) {
	const script = `
import os, sys
name = input("name? ")
print("hello", name, sys.stdin.isatty(), os.tcgetpgrp(os.open("/dev/tty", os.O_RDONLY)) == os.getpgrp())
`
	for _, screen := range []bool{true, false} {
		read, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		d := newDisplay(screen, screen)
		d.Stdin, d.Keyboard = read, true
		byBoth(t, script, Options{Display: &d.Display}, func(t *testing.T, b *bench) {
			for _, name := range []string{"Bob", "Eve"} { // a process, and the next
				d.out = output{}
				g := b.start(1)
				await(t, "the question", func() bool { return strings.Contains(d.out.String(), "name? ") })
				write.WriteString(name + "\n")
				if e := b.ends(g)[0]; e.Failed() {
					t.Errorf("%+v", e)
				}
				want := "name? " + name + "\nhello " + name + " True True\n"
				if !screen {
					want = "name? hello " + name + " True True\n"
				}
				if got := d.out.String(); got != want {
					t.Errorf("%q, want %q", got, want)
				}
			}
		})
		write.Close() // ends the reader
	}
}

// Several processes of one terminal draw their bars in turns, each with whole lines.
func TestBarsOfSeveralProcesses(t *testing.T) {
	d := newDisplay(true, true)
	b := newBench(t, Options{Command: []string{"sh", "-c",
		`for i in 1 2 3 4 5; do printf '\r%s of %s' $i $RANK; done; echo`}, Display: &d.Display}, nil)
	b.ends(b.start(3))
	for _, rank := range []string{"0", "1", "2"} {
		if n := len(regexp.MustCompile(`\d of `+rank).FindAllString(d.out.String(), -1)); n < 1 {
			t.Errorf("rank %s is not shown: %q", rank, &d.out)
		}
		if n := bytes.Count([]byte(b.out.String()), []byte("5 of "+rank+"\n")); n != 1 {
			t.Errorf("rank %s has %d lines in the log: %q", rank, n, &b.out)
		}
	}
}
