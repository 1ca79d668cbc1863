package main

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/logline"
)

// TestParseStep parses what a worker's logger writes.
func TestParseStep(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(logline.New(&out, slog.LevelDebug))
	before := time.Now().Truncate(time.Millisecond)
	log.Debug("Step applied", "version", 12, "records", 250, "workers", 4, "world", 3)
	s, ok := parseStep(out.Bytes())
	if !ok || s.version != 12 || s.records != 250 || s.size != 4 || s.world != 3 {
		t.Errorf("%s: %+v, %t", out.Bytes(), s, ok)
	}
	if s.at.Before(before) || s.at.After(time.Now()) {
		t.Errorf("%s: at %v", out.Bytes(), s.at)
	}
	out.Reset()
	log.Info("World 3: rank 1 of 4", "version", 12)
	if s, ok := parseStep(out.Bytes()); ok {
		t.Errorf("%s: %+v", out.Bytes(), s)
	}
}

// TestResumed checks that a step which the survivors had begun with the lost process does not
// count, that the last survivor determines the time, and that an incomplete line does not count.
func TestResumed(t *testing.T) {
	paths := []string{filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")}
	var logs []*stepLog
	start := time.Now()
	write := func(i int, text string) {
		file, err := os.OpenFile(paths[i], os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	line := func(world int, after time.Duration) string {
		return fmt.Sprintf("STEP 3 %d %.6f\n", world, float64(start.Add(after).UnixMicro())/1e6)
	}
	for i, path := range paths {
		logs = append(logs, &stepLog{path: path, parse: parseScriptStep})
		write(i, line(1, 0))
	}
	took, err := resumed(t.Context(), logs, time.Minute, func() error {
		write(0, line(1, time.Second)+line(2, 3*time.Second)+line(2, 9*time.Second))
		late := line(2, 5*time.Second)
		write(1, line(1, time.Second)+late[:10])
		if err := readAll(logs); err != nil {
			return err
		}
		if n := len(logs[1].steps); n != 2 {
			t.Errorf("%d steps before the end of the third line, want 2", n)
		}
		write(1, late[10:])
		return nil
	})
	if err != nil || took > 5*time.Second || took < 4*time.Second {
		t.Errorf("resumed after %v, %v; want 5s less what the test took", took, err)
	}
	if _, err := resumed(t.Context(), logs, 0, func() error { return nil }); err == nil {
		t.Error("resumed without a step")
	}
}
