//go:build torch

package tcpstore

import (
	"bufio"
	"bytes"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/torch"
)

// TestTorch has PyTorch's own clients use the server.
func TestTorch(t *testing.T) {
	for _, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			t.Run("basics", func(t *testing.T) {
				s := listen(t)
				finish(t, start(t, python, s, "basics"))
				s.Close()
			})
			t.Run("group", func(t *testing.T) {
				s := listen(t)
				var ranks []*process
				for rank := range 3 {
					ranks = append(ranks, start(t, python, s, "group", fmt.Sprint("RANK=", rank),
						"WORLD_SIZE=3", "TORCHELASTIC_USE_AGENT_STORE=True",
						"TORCHELASTIC_RESTART_COUNT=0", "GLOO_SOCKET_IFNAME=lo"))
				}
				for _, p := range ranks {
					finish(t, p)
				}
				s.Close()
			})
			t.Run("closed", func(t *testing.T) {
				s := listen(t)
				p := start(t, python, s, "closed")
				if line, err := p.out.ReadString('\n'); line != "waiting\n" {
					t.Fatalf("%q (%v): %s", line, err, p.errors)
				}
				for !waits(s) {
					time.Sleep(time.Millisecond) // the client is another process
				}
				s.Close()
				finish(t, p)
			})
		})
	}
}

// TestTorchMeets has clients of both generations and of this package use one store.
func TestTorchMeets(t *testing.T) {
	s := listen(t)
	defer s.Close()
	c, err := Dial(t.Context(), s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, python := range torch.Pythons(t) {
		p := start(t, python, s, "meet")
		if err := c.Set(t.Context(), "from Go", []byte(python.Version)); err != nil {
			t.Error(err)
		}
		if got, err := c.Get(t.Context(), python.Version); err != nil || string(got) != python.Version {
			t.Errorf("PyTorch %s sets %q (%v)", python.Name, got, err)
		}
		finish(t, p)
		if _, err := c.Delete(t.Context(), "from Go"); err != nil {
			t.Error(err)
		}
	}
}

func listen(t *testing.T) *Server {
	t.Helper()
	return serveLoopback(t,
		Options{Linger: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(t.Output(), nil))})
}

func waits(s *Server) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.store.missing) > 0
}

// process is a Python that runs testdata/client.py.
type process struct {
	*exec.Cmd
	out    *bufio.Reader
	errors *bytes.Buffer
}

func start(t *testing.T, python torch.Python, s *Server, what string, env ...string) *process {
	t.Helper()
	host, port, _ := net.SplitHostPort(s.Addr().String())
	cmd := exec.CommandContext(t.Context(), python.Path, "testdata/client.py", what)
	cmd.Env = append(append(os.Environ(), "MASTER_ADDR="+host, "MASTER_PORT="+port, "OMP_NUM_THREADS=1"), env...)
	p := &process{Cmd: cmd, errors: new(bytes.Buffer)}
	cmd.Stderr = p.errors
	out, err := cmd.StdoutPipe()
	if err == nil {
		p.out = bufio.NewReader(out)
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// finish checks that the process ends with 0.
func finish(t *testing.T, p *process) {
	t.Helper()
	var last string
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			break
		}
		last = line
	}
	if err := p.Wait(); err != nil || strings.TrimSpace(last) != "done" {
		t.Errorf("%s: it said %q, then %v: %s", p.Args, last, err, p.errors)
	}
}
