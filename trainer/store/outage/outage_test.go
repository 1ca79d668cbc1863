package outage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

func TestWhichErrorsAreOfOf(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.EIO: true, syscall.ESTALE: true, syscall.ENOSPC: true, syscall.EDQUOT: true,
		syscall.ETIMEDOUT: true, syscall.ENOENT: true,
		syscall.EHOSTDOWN: true, syscall.ENOTCONN: true, syscall.EMFILE: true, syscall.EINTR: true,
		os.ErrDeadlineExceeded: true,
		syscall.EACCES:         false, syscall.EROFS: false, syscall.ENOTDIR: false, io.ErrUnexpectedEOF: false,
		errors.New("bad"): false,
	} {
		if got := Is(fmt.Errorf("read x: %w", Of(&os.PathError{Op: "read", Path: "x", Err: err}))); got != want {
			t.Errorf("%v is a storage error: %t", err, got)
		}
	}
	if Is(Of(nil)) || Of(nil) != nil {
		t.Error("nil is a storage error")
	}
}

// Patience repeats a call until the storage answers or the limit is reached. It does not repeat a
// call that fails for another reason.
func TestTrouble(t *testing.T) {
	at := func(err error) error {
		return fmt.Errorf("export: %w", &Error{&fs.PathError{Op: "write", Path: "/out/model.tmp", Err: err}})
	}
	for _, c := range []struct {
		err  error
		want string
	}{
		{at(syscall.ENOSPC), "no space left on /out"},
		{at(syscall.EDQUOT), "disk quota exceeded on /out"},
		{at(syscall.EIO), "export: write /out/model.tmp: input/output error"},
		{fmt.Errorf("upload: %w", syscall.ENOSPC), "upload: no space left on device"},
	} {
		if got := Trouble(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}

func TestPatience(t *testing.T) {
	away := fmt.Errorf("read /data/x: %w", &Error{syscall.EIO})
	bad := errors.New("bad record")
	for name, c := range map[string]struct {
		fails time.Duration // how long the storage fails
		then  error
		ctx   time.Duration // when the context ends; 0: never
		need  time.Duration // when the result becomes futile; 0: never
		err   error
		least time.Duration
		most  time.Duration
		log   string
	}{
		"never":    {0, nil, 0, 0, nil, 0, 0, ""},
		"bad data": {0, bad, 0, 0, bad, 0, 0, ""},
		"a moment": {time.Second, nil, 0, 0, nil, time.Second, 2 * time.Second, ""},
		"a minute": {time.Minute, nil, 0, 0, nil, time.Minute, time.Minute + timing.StoragePause, "answers again"},
		"and bad":  {time.Minute, bad, 0, 0, bad, time.Minute, time.Minute + timing.StoragePause, "answers again"},
		"for ever": {time.Hour, nil, 0, 0, away, timing.Storage, timing.Storage, "EIO"},
		"cut off": {time.Hour, nil, 31 * time.Second, 0, away, 31 * time.Second, 31 * time.Second,
			"Waiting for the storage"},
		"futile": {time.Hour, nil, 0, 31 * time.Second, away, 31 * time.Second,
			31*time.Second + timing.StoragePause, "Waiting for the storage"},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, tries, resting := time.Now(), 0, 0
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if c.ctx > 0 {
				defer time.AfterFunc(c.ctx, cancel).Stop()
			}
			var log bytes.Buffer
			p := Patience{Log: slog.New(slog.NewTextHandler(&log, nil)), Resting: func(begins bool) {
				if begins {
					resting++
				} else {
					resting--
				}
			}}
			if c.need > 0 {
				p.Futile = func() bool { return time.Since(began) >= c.need }
			}
			err := p.Reach(ctx, func() error {
				if tries++; resting != 0 {
					t.Errorf("%s: an attempt during a pause", name)
				}
				if time.Since(began) < c.fails {
					return away
				}
				return c.then
			})
			took := time.Since(began)
			if err != c.err || took < c.least || took > c.most || resting != 0 {
				t.Errorf("%s: %v after %v", name, err, took)
			}
			if most := 10 + int(took/timing.StoragePause); tries > most || c.fails > 0 && tries < 5 {
				t.Errorf("%s: %d attempts in %v", name, tries, took)
			}
			want := strings.ReplaceAll(c.log, "EIO", syscall.EIO.Error())
			if !strings.Contains(log.String(), want) || want == "" && log.Len() > 0 ||
				strings.Count(log.String(), "Waiting") > 1 {
				t.Errorf("%s: log %q", name, log.String())
			}
		})
	}
}

// A worker waits for room for its files, and for nothing else.
func TestWithRoom(t *testing.T) {
	for name, c := range map[string]struct {
		fails error
		away  time.Duration
		want  error
		took  time.Duration
	}{
		"room":        {nil, 0, nil, 0},
		"room comes":  {syscall.ENOSPC, time.Minute, nil, time.Minute},
		"quota":       {syscall.EDQUOT, time.Minute, nil, time.Minute},
		"for good":    {syscall.ENOSPC, time.Hour, syscall.ENOSPC, timing.Storage},
		"not allowed": {syscall.EACCES, time.Hour, syscall.EACCES, 0},
		"missing":     {syscall.ENOENT, time.Hour, syscall.ENOENT, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			err := WithRoom(t.Context(), slog.New(slog.DiscardHandler), func() error {
				if time.Since(began) < c.away {
					return fmt.Errorf("unpack: %w", &fs.PathError{Op: "write", Path: "/tmp/x", Err: c.fails})
				}
				return nil
			})
			if took := time.Since(began); !errors.Is(err, c.want) || took < c.took ||
				took > c.took+timing.StoragePause {
				t.Errorf("%s: %v after %v", name, err, took)
			}
		})
	}
}
