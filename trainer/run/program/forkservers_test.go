package program

import (
	"bytes"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The log reports a long import once, and a short one not at all.
func TestImportIsSaid(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration
		said  int
	}{{time.Second, 0}, {longImport + time.Second, 1}} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			s := &forkServers{p: &Program{options: Options{Log: slog.New(slog.NewTextHandler(&log, nil))}}}
			f := &forkServer{ready: make(chan struct{})}
			time.AfterFunc(c.takes, func() { close(f.ready) })
			if err := s.attend(t.Context(), f); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if got := strings.Count(log.String(), "Importing torch"); got != c.said {
				t.Errorf("an import of %v is reported %d times, want %d", c.takes, got, c.said)
			}
		})
	}
}

// A fork may be the cause of a crash that nothing else explains, soon after it.
func TestBlamesFork(t *testing.T) {
	for name, c := range map[string]struct {
		method StartMethod
		exit   Exit
		age    time.Duration
		want   bool
	}{
		"segmentation fault":  {Fork, Exit{Signal: int(syscall.SIGSEGV)}, time.Second, true},
		"bus error":           {Fork, Exit{Signal: int(syscall.SIGBUS)}, time.Second, true},
		"illegal instruction": {Fork, Exit{Signal: int(syscall.SIGILL)}, time.Second, true},
		"abort":               {Fork, Exit{Signal: int(syscall.SIGABRT)}, crashLimit - 1, true},
		"later":               {Fork, Exit{Signal: int(syscall.SIGSEGV)}, crashLimit, false},
		"by exec":             {Exec, Exit{Signal: int(syscall.SIGSEGV)}, time.Second, false},
		"killed":              {Fork, Exit{Signal: int(syscall.SIGKILL)}, time.Second, false},
		"exit code":           {Fork, Exit{Code: 1}, time.Second, false},
		"asked to end":        {Fork, Exit{Signal: int(syscall.SIGABRT), Stopped: true}, time.Second, false},
		"after an exception":  {Fork, Exit{Signal: int(syscall.SIGABRT), Failure: &Failure{}}, time.Second, false},
	} {
		if got := blamesFork(c.method, c.exit, c.age); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
