package console

import (
	"bytes"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// The only source of a stream is passed on byte for byte, and at once.
func TestOnlySource(t *testing.T) {
	for _, terminal := range []bool{false, true} {
		var out bytes.Buffer
		s := New(&out, terminal)
		source := s.Source("")
		want := ""
		for _, piece := range []string{"loss ", "0.5\n", "\r 10%", "\r 20%", "\n", "name? ", "\x1b[2J",
			"a\r\nb\r", "\n\x00\xff"} {
			source.Write([]byte(piece))
			if want += piece; out.String() != want {
				t.Errorf("after %q: %q, want %q", piece, out.String(), want)
			}
		}
		source.Close()
		if terminal {
			want += "\n" // for the prompt of a shell
		}
		if out.String() != want {
			t.Errorf("at the end %q, want %q", out.String(), want)
		}
	}
}

// Lines of several sources are whole. On a terminal the beginning of a line waits for a moment
// only.
func TestSeveralSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			terminal bool
			// what is shown while the end of the line is awaited
			waits string
			want  string
		}{
			{false, "[b] other\n", "[b] other\n[a] loss 0.5\n[a] \n"},
			{true, "[b] other\n[a] loss ", "[b] other\n[a] loss \n[b] more\n[a] 0.5\n[a] \n"},
		} {
			var out shared
			s := New(&out, c.terminal)
			a, b := s.Source("[a] "), s.Source("[b] ")
			a.Write([]byte("lo"))
			a.Write([]byte("ss "))
			b.Write([]byte("other\n"))
			if out.String() != "[b] other\n" {
				t.Errorf("before the moment has passed: %q", &out)
			}
			time.Sleep(2 * pause)
			synctest.Wait()
			if out.String() != c.waits {
				t.Errorf("terminal %v: %q, want %q", c.terminal, &out, c.waits)
			}
			if c.terminal {
				b.Write([]byte("more\n"))
			}
			a.Write([]byte("0.5\n\n"))
			if out.String() != c.want {
				t.Errorf("terminal %v: %q, want %q", c.terminal, &out, c.want)
			}
		}
	})
}

// shared is a buffer that a timer may write to while the test reads it.
type shared struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *shared) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *shared) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// On a terminal a progress bar of one source frees space for lines of others and of ElasticDL's
// own, and is drawn again.
func TestBarAmongLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		s := New(&out, true)
		a, b := s.Source("[a] "), s.Source("[b] ")
		draw := func(source *Source, text string) {
			source.Write([]byte(text))
			time.Sleep(2 * pause)
			synctest.Wait()
		}
		draw(a, "\r 1%")
		draw(a, "\r 2%")
		draw(b, "line\n")
		draw(a, "\r 3%")
		s.Write([]byte("own\n"))
		draw(b, "\r 5%")
		draw(a, "\r 4%\n")
		const clear = "\r\x1b[K"
		want := "\r[a]  1%\r[a]  2%" + clear + "[b] line\n" + "\r[a]  3%" + clear + "own\n" +
			"\r[b]  5%" + clear + "\r[a]  4%\n"
		if out.String() != want {
			t.Errorf("%q, want %q", &out, want)
		}
	})
}

// Once others have ended, the last source is passed on at once again.
func TestSourceAloneAgain(t *testing.T) {
	var out bytes.Buffer
	s := New(&out, false)
	a, b := s.Source(""), s.Source("")
	a.Write([]byte("half"))
	b.Write([]byte("no end"))
	b.Close()
	if a.Write([]byte(" of it")); out.String() != "no end\nhalf of it" {
		t.Errorf("%q", &out)
	}
	if b.Close(); s.sources != 1 {
		t.Errorf("%d sources", s.sources)
	}
}

// A line without an end is not kept without limit.
func TestLongLine(t *testing.T) {
	var out bytes.Buffer
	s := New(&out, false)
	a := s.Source("")
	s.Source("")
	a.Write(bytes.Repeat([]byte("x"), longest-1))
	if out.Len() != 0 {
		t.Error("the beginning of a line was written")
	}
	if a.Write([]byte("yz")); out.Len() != longest+1 {
		t.Errorf("%d bytes", out.Len())
	}
}

// Lines of sources that write at the same time are not mixed.
func TestLinesAreWhole(t *testing.T) {
	var out bytes.Buffer
	s := New(&out, false)
	// All sources are there before one writes: what the only source of a stream writes does not
	// wait for the end of its line.
	sources := map[string]*Source{"a": s.Source(""), "b": s.Source(""), "c": s.Source("")}
	var all sync.WaitGroup
	for name, source := range sources {
		line := strings.Repeat(name, 50) + "\n"
		all.Go(func() {
			for range 200 {
				source.Write([]byte(line[:20]))
				source.Write([]byte(line[20:]))
			}
		})
	}
	all.Wait()
	for line := range strings.Lines(out.String()) {
		if len(line) != 51 || strings.Trim(line, line[:1]+"\n") != "" {
			t.Fatalf("%q", line)
		}
	}
}

// closedWriter fails.
type closedWriter struct{ calls int }

func (w *closedWriter) Write([]byte) (int, error) {
	w.calls++
	return 0, errors.New("closed")
}

// A display that is closed is no error of who writes.
func TestClosedDisplay(t *testing.T) {
	out := &closedWriter{}
	s := New(out, false)
	a := s.Source("")
	for range 2 {
		if n, err := a.Write([]byte("text\n")); n != 5 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		if n, err := s.Write([]byte("own\n")); n != 4 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if s.Err() == nil || out.calls != 1 {
		t.Errorf("%v after %d writes", s.Err(), out.calls)
	}
}
