package logline_test

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/logline"
)

// The lines of this format lose their source, whatever pod they are of; those of programs are kept.
func TestWithoutSource(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(logline.New(&out, slog.LevelDebug))
	log.Info("The world changes", "joins", true)
	line := out.String()
	if !strings.Contains(line, "[logline_test.go:") {
		t.Fatalf("%q has no source", line)
	}
	const others = "Loss [main.go:12:f] = 1\n[worker-0] [main.go:12:f] x\n[2020-04-14 02:46:21,836] " +
		"[INFO] [train.py:3:main] y\n"
	got := string(logline.WithoutSource([]byte("[worker-0] " + line + others + line)))
	for _, word := range []string{"] [INFO] The world changes joins=true\n", others} {
		if !strings.Contains(got, word) {
			t.Errorf("no %q in %q", word, got)
		}
	}
	if strings.Contains(got, "logline_test.go") || strings.Count(got, "The world changes") != 2 {
		t.Errorf("%q", got)
	}
}

func TestFormat(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(logline.New(&out, slog.LevelInfo))
	log.Debug("not written")
	log.With("worker", 3).WithGroup("lease").Error("task failed", "id", 7, "err",
		errors.New("read shard: bad"), "took", 1500*time.Millisecond)
	want := regexp.MustCompile(
		`^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] \[ERROR\] \[logline_test\.go:\d+:TestFormat\] ` +
			`task failed worker=3 lease\.id=7 lease\.err="read shard: bad" lease\.took=1\.5s\n$`)
	if !want.Match(out.Bytes()) {
		t.Errorf("got %q\nwant a match of %v", out.String(), want)
	}
}

func TestOneLinePerRecord(t *testing.T) {
	var out bytes.Buffer
	slog.New(logline.New(&out, slog.LevelInfo)).Info("two\nlines", "value", "a\nb")
	if n := strings.Count(out.String(), "\n"); n != 1 {
		t.Errorf("a record took %d lines: %q", n, out.String())
	}
}

// The standard library's own rules for handlers.
func TestHandlerRules(t *testing.T) {
	var out bytes.Buffer
	slogtest.Run(t, func(*testing.T) slog.Handler {
		out.Reset()
		return logline.New(&out, slog.LevelInfo)
	}, func(t *testing.T) map[string]any { return parse(t, out.String()) })
}

// parse reads a line back: time, level, message, and attributes by their groups.
func parse(t *testing.T, line string) map[string]any {
	t.Helper()
	m := regexp.MustCompile(`^(\[\d[^\]]*\] )?\[(\w+)\] (\[[^\]]*\] )?(\S+)(.*)\n$`).FindStringSubmatch(line)
	if m == nil {
		t.Fatalf("cannot read %q", line)
	}
	fields := map[string]any{slog.LevelKey: m[2], slog.MessageKey: m[4]}
	if m[1] != "" {
		fields[slog.TimeKey] = m[1]
	}
	for pair := range strings.FieldsSeq(m[5]) {
		key, value, _ := strings.Cut(pair, "=")
		at := fields
		for {
			group, rest, nested := strings.Cut(key, ".")
			if !nested {
				break
			}
			if at[group] == nil {
				at[group] = map[string]any{}
			}
			at, key = at[group].(map[string]any), rest
		}
		at[key] = value
	}
	return fields
}
