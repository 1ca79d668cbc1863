package program

import (
	"bytes"
	"log/slog"
	"strings"
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
				t.Errorf("an import of %v is said %d times, want %d", c.takes, got, c.said)
			}
		})
	}
}
