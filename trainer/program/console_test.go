package program

import (
	"bytes"
	"strings"
	"sync"
	"testing"
)

func TestLines(t *testing.T) {
	for name, c := range map[string]struct {
		writes []string
		want   string
	}{
		"halves":       {[]string{"on", "e\ntw", "o\n"}, "[0]:one\n[0]:two\n"},
		"no end":       {[]string{"one\nlast"}, "[0]:one\n[0]:last\n"},
		"progress bar": {[]string{"\r10%", "\r20%", "\r30%\n"}, "[0]:\r[0]:10%\r[0]:20%\r[0]:30%\n"},
		"Windows":      {[]string{"one\r", "\ntwo\r\n"}, "[0]:one\r\n[0]:two\r\n"},
		"empty":        {[]string{"", "\n"}, "[0]:\n"},
	} {
		var out bytes.Buffer
		w := (&console{}).lines(&out, "[0]:")
		for _, text := range c.writes {
			w.Write([]byte(text))
		}
		w.finish()
		if out.String() != c.want {
			t.Errorf("%s: %q, want %q", name, out.String(), c.want)
		}
	}
}

// A line that does not end is passed on in parts, and no more than longestLine of it is kept in memory.
func TestLongLine(t *testing.T) {
	var out bytes.Buffer
	w := (&console{}).lines(&out, "")
	for range 40 {
		w.Write(bytes.Repeat([]byte("x"), 32<<10))
	}
	if out.Len() < longestLine || len(w.rest) > longestLine {
		t.Errorf("%d passed on, %d kept", out.Len(), len(w.rest))
	}
}

func TestLinesOfRanksAreWhole(t *testing.T) {
	var out bytes.Buffer
	c := &console{}
	var writers sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		w := c.lines(&out, "")
		line := strings.Repeat(name, 50) + "\n"
		writers.Go(func() {
			for range 200 {
				w.Write([]byte(line[:17]))
				w.Write([]byte(line[17:]))
			}
		})
	}
	writers.Wait()
	for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\n"), "\n") {
		if line != strings.Repeat(line[:1], 50) {
			t.Fatalf("torn: %q", line)
		}
	}
}
