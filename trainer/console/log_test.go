package console

import (
	"bytes"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A log has whole lines, as a terminal would show them, however they come.
func TestLog(t *testing.T) {
	for _, c := range []struct {
		terminal   bool
		text, want string
	}{
		{false, "one\ntwo\n\nno end", "one|two||no end|"},
		{false, "bar 1%\rbar 2%\rbar 3%\nnext\r\n", "bar 3%|next|"},
		{false, "\r 1%\r 2%\r 3%", " 3%|"},
		{false, "1%\r2%\r", "2%|"},
		{false, "\x1b[31mred\x1b[0m\n", "\x1b[31mred\x1b[0m|"}, // forced by the program
		{true, "\x1b[31mred\x1b[0m\r\n", "red|"},
		{true, "\x1b]0;title\x07\x1b[2K\r\x1b[1A 5%\x1b[K\x1b(B\tx\x08\r\n", " 5%\tx|"},
		{true, "\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\r\n", "link|"},
		{false, "", ""},
	} {
		for _, size := range []int{1, 3, 1000} {
			var out bytes.Buffer
			l := NewLog(new(sync.Mutex), &out, "", c.terminal)
			for rest := []byte(c.text); len(rest) > 0; {
				n := min(size, len(rest))
				l.Write(rest[:n])
				rest = rest[n:]
			}
			l.Close()
			if got := strings.ReplaceAll(out.String(), "\n", "|"); got != c.want {
				t.Errorf("%q in pieces of %d: %q, want %q", c.text, size, got, c.want)
			}
		}
	}
}

// A progress bar that is drawn many times a second is a line every ten seconds.
func TestLogOfABar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := NewLog(new(sync.Mutex), &out, "[rank 0] ", true)
		for i := range 251 {
			fmt.Fprintf(l, "\r%d of 250", i)
			time.Sleep(100 * time.Millisecond)
		}
		l.Write([]byte("\nend\n"))
		want := "[rank 0] 100 of 250\n[rank 0] 200 of 250\n[rank 0] 250 of 250\n[rank 0] end\n"
		if out.String() != want {
			t.Errorf("%q, want %q", &out, want)
		}
	})
}

// A line without an end is not kept without limit.
func TestLogOfALongLine(t *testing.T) {
	var out bytes.Buffer
	l := NewLog(new(sync.Mutex), &out, "", false)
	l.Write(bytes.Repeat([]byte("x"), longest+1))
	l.Write([]byte("y\n"))
	if out.Len() != longest+4 {
		t.Errorf("%d bytes", out.Len())
	}
}

// A line in many pieces, such as dots that are written one by one, is not copied for each of them.
func TestLineInManyPieces(t *testing.T) {
	for name, end := range map[string]string{"no end": "", "line feed": "\n", "carriage return": "\rx"} {
		var out bytes.Buffer
		l := NewLog(new(sync.Mutex), &out, "", false)
		const pieces = 20_000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range pieces {
			l.Write([]byte("........"))
		}
		runtime.ReadMemStats(&after)
		l.Write([]byte(end))
		l.Close()
		if took := after.TotalAlloc - before.TotalAlloc; took > 100*8*pieces {
			t.Errorf("%s: %d bytes are allocated for %d", name, took, 8*pieces)
		}
		want := strings.Repeat("........", pieces) + "\n"
		if end == "\rx" {
			want = "x\n"
		}
		if out.String() != want {
			t.Errorf("%s: %d bytes", name, out.Len())
		}
	}
}
