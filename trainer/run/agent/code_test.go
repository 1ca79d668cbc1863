package agent

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// A program that a URL names is fetched into the agent's directory, and runs with its own
// arguments; any other command stays unchanged.
func TestBringCode(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/main.py" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, "print(1)")
	}))
	defer server.Close()
	a := &local{Config: Config{Job: new(job.Job), Log: slog.New(slog.NewTextHandler(io.Discard, nil))},
		dir: t.TempDir()}
	bring := func(sum string, command ...string) ([]string, error) {
		a.Job.Program = job.Program{Command: command, SHA256: sum}
		command, dir, err := a.bringCode(t.Context())
		if dir != "" {
			t.Errorf("%q starts in %s", command, dir)
		}
		return command, err
	}
	got, err := bring("", server.URL+"/main.py", "--epochs=2", "s3://data")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(got[0])
	if string(text) != "print(1)" || !strings.HasPrefix(got[0], a.dir+"/") ||
		filepath.Base(got[0]) != "main.py" || !slices.Equal(got[1:], []string{"--epochs=2", "s3://data"}) {
		t.Errorf("%q has %q", got, text)
	}
	local := []string{"python3", "main.py", "https://host/data"}
	if got, err := bring("", local...); err != nil || !slices.Equal(got, local) {
		t.Errorf("%q, %v", got, err)
	}
	for _, wrong := range [][2]string{{"", server.URL + "/other.py"},
		{strings.Repeat("0", 64), server.URL + "/main.py"}, {"", "s3://bucket/main.py"}} {
		if got, err := bring(wrong[0], wrong[1]); err == nil {
			t.Errorf("%s with checksum %q: %q", wrong[1], wrong[0], got)
		}
	}
}

// Uploaded code is unpacked for this worker alone, whose processes start there, wherever the script
// comes from.
func TestBringUploadedCode(t *testing.T) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	if err := errors.Join(w.WriteHeader(&tar.Header{Name: "main.py", Size: 8, Mode: 0o644}), func() error {
		_, err := w.Write([]byte("print(1)"))
		return err
	}(), w.Close()); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "code.tar")
	if err := os.WriteFile(file, archive.Bytes(), 0o444); err != nil {
		t.Fatal(err)
	}
	g := job.Program{Command: []string{"main.py", "--epochs=2"}, Code: file,
		CodeSHA256: fmt.Sprintf("%x", sha256.Sum256(archive.Bytes()))}
	bring := func(g job.Program) (*local, []string, string, error) {
		a := &local{Config: Config{Job: &job.Job{Program: g}, Log: slog.New(slog.DiscardHandler)}, dir: t.TempDir()}
		command, dir, err := a.bringCode(t.Context())
		return a, command, dir, err
	}
	checked := g
	checked.SHA256 = fmt.Sprintf("%x", sha256.Sum256([]byte("print(1)")))
	for _, g := range []job.Program{g, checked} {
		a, command, dir, err := bring(g)
		if err != nil || filepath.Dir(dir) != a.dir || command[1] != "--epochs=2" {
			t.Fatalf("%q in %s, %v", command, dir, err)
		}
		script := command[0]
		if !filepath.IsAbs(script) {
			script = filepath.Join(dir, script)
		}
		if err := os.WriteFile(script, nil, 0o644); err != nil { // the copy belongs to this worker
			t.Error(err)
		}
	}
	g.CodeSHA256 = strings.Repeat("0", 64)
	if _, command, dir, err := bring(g); err == nil {
		t.Errorf("other code than was uploaded: %q in %s", command, dir)
	}
	if _, _, dir, err := bring(job.Program{Command: []string{"main.py"},
		Workdir: "/app"}); err != nil || dir != "/app" {
		t.Errorf("starts in %s, %v", dir, err)
	}
}

// A worker that waits for space on a full disk before its program starts leaves at once when it is
// asked to: no process has state to save yet.
func TestLeavesWhileItWaitsForRoom(t *testing.T) {
	for name, full := range map[string]error{"full": syscall.ENOSPC, "quota": syscall.EDQUOT} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leave := make(chan struct{})
				a := Config{Log: slog.New(slog.DiscardHandler), Leave: leave}
				tries := 0
				ended := make(chan error, 1)
				go func() {
					ended <- a.withRoom(t.Context(), func() error {
						tries++
						return &os.PathError{Op: "write", Path: "/f", Err: full}
					})
				}()
				time.Sleep(20 * time.Second)
				synctest.Wait()
				if tries < 2 {
					t.Errorf("%d tries", tries)
				}
				close(leave)
				synctest.Wait()
				select {
				case err := <-ended:
					if !errors.Is(err, membership.ErrLeft) {
						t.Error(err)
					}
				default:
					t.Error("it waits on")
				}
			})
		})
	}
	a := Config{Log: slog.New(slog.DiscardHandler), Leave: make(chan struct{})}
	if err := a.withRoom(t.Context(), func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := a.withRoom(t.Context(), func() error { return fs.ErrPermission }); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
}

// Checkpoints are looked for where the script writes them.
func TestCheckpointOfAScript(t *testing.T) {
	for _, test := range [][3]string{{"", "c/*.pt", "c/*.pt"}, {"/tmp/w", "c/*.pt", "/tmp/w/c/*.pt"},
		{"/tmp/w", "/data/*.pt", "/data/*.pt"}, {"/tmp/w", "", ""}} {
		l := &local{Config: Config{Job: &job.Job{Program: job.Program{Checkpoint: test[1]}}}, workdir: test[0]}
		if got := l.checkpoint(); got != test[2] {
			t.Errorf("in %q %s: %s, want %s", test[0], test[1], got, test[2])
		}
	}
}

// hearing is a fake master that only receives heartbeats.
type hearing struct {
	wire.MasterClient
	once  sync.Once
	heard chan struct{}
	reply *wire.HeartbeatReply
}

func (h *hearing) Heartbeat(context.Context, *wire.HeartbeatRequest, ...grpc.CallOption) (*wire.HeartbeatReply, error) {
	h.once.Do(func() { close(h.heard) })
	return h.reply, nil
}

// A worker sends heartbeats while it fetches its program. It cancels the fetch when it is asked to
// leave, is replaced, or the job has ended.
func TestFetchesForLong(t *testing.T) {
	for name, test := range map[string]struct {
		reply *wire.HeartbeatReply
		leave bool
		want  error
	}{
		"asked to leave": {reply: new(wire.HeartbeatReply), leave: true, want: membership.ErrLeft},
		"replaced":       {reply: &wire.HeartbeatReply{Unknown: true}, want: membership.ErrReplaced},
		"over":           {reply: &wire.HeartbeatReply{Over: true}},
	} {
		t.Run(name, func(t *testing.T) {
			master := &hearing{heard: make(chan struct{}), reply: test.reply}
			leave := make(chan struct{})
			open := func(ctx context.Context, _ string) (checkpoint.Files, error) {
				<-master.heard
				if test.leave {
					close(leave)
				}
				<-ctx.Done() // the bucket does not answer
				return nil, ctx.Err()
			}
			j := &job.Job{StateSettings: job.StateSettings{HeartbeatTimeout: job.Duration{Duration: timing.Silence}},
				Program: job.Program{Command: []string{"s3://bucket/main.py"}, Processes: "1"}}
			err := Run(t.Context(), Config{
				Job: j, Self: rpc.NewSelf(identity.Header{Role: pod.Worker}, nil), Master: master,
				Host: "127.0.0.1", Leave: leave, Open: open, Log: slog.New(slog.DiscardHandler),
			})
			if !errors.Is(err, test.want) || (err == nil) != (test.want == nil) {
				t.Errorf("%v, want %v", err, test.want)
			}
		})
	}
}
