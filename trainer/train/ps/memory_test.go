//go:build linux && !race

package ps

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
)

const memoryElements = 16 << 20 // 64 MiB

// TestMemory: the peak of a server process's own memory over that of its parameters,
// while four workers push and pull at once, in one model generation and in the next.
func TestMemory(t *testing.T) {
	const n = memoryElements
	for _, c := range []struct {
		optimizer string
		limit     float64
	}{{optim.SGD, 2.2}, {optim.Adam, 4.2}} {
		authority, err := prove.Authority(uid).Encode()
		if err != nil {
			t.Fatal(err)
		}
		server := exec.Command(os.Args[0], "-test.run=TestMemoryServer$")
		server.Env = append(os.Environ(), "ELASTICDL_TEST_SERVER="+c.optimizer,
			"ELASTICDL_TEST_AUTHORITY="+string(authority))
		end, err := server.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := server.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewReader(out)
		addr, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		pushAll(t, strings.TrimSpace(addr), n, 1)
		fmt.Fprintln(end, "anew")
		if _, err := lines.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
		pushAll(t, strings.TrimSpace(addr), n, 2)
		peak := peakMemory(t, server.Process.Pid)
		end.Close()
		server.Wait()
		ratio := float64(peak) / (4 * n)
		t.Logf("%s: %.2f of the parameters' memory", c.optimizer, ratio)
		if ratio > c.limit {
			t.Errorf("%s: a server takes %.2f of its parameters' memory, want at most %v", c.optimizer, ratio, c.limit)
		}
	}
}

// TestMemoryServer is the other process of TestMemory: it serves until its input ends, and begins
// the model again at each line.
func TestMemoryServer(t *testing.T) {
	optimizer := os.Getenv("ELASTICDL_TEST_SERVER")
	if optimizer == "" {
		return
	}
	if err := prove.Share(uid, []byte(os.Getenv("ELASTICDL_TEST_AUTHORITY"))); err != nil {
		t.Fatal(err)
	}
	s, err := NewServer(ServerConfig{
		Optimizer: optim.Config{Name: optimizer},
		Self:      speak.Self(identity.Header{Role: pod.PS, ModelGeneration: 1}),
		Initial: func(int, int) (param.Layout, []float32, error) {
			// memory that is written to
			return dense(memoryElements, 0), filled(memoryElements, 1), nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(lis)
	fmt.Println(lis.Addr())
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		if err := s.beginModelGeneration(t.Context(), s.self.ModelGeneration()+1, custody.Base{}); err != nil {
			t.Fatal(err)
		}
		fmt.Println(s.self.ModelGeneration())
	}
	s.Stop()
}

func pushAll(t *testing.T, addr string, n int, modelGeneration int64) {
	grads, values := make([]float32, n), make([]float32, n)
	pull := new(sync.Mutex) // one array for all
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			c, err := Dial(t.Context(), ClientConfig{
				Self:    speak.Self(identity.Header{Role: pod.Worker, Index: worker, ModelGeneration: modelGeneration}),
				Servers: []Address{{Address: addr}}, Layout: dense(n, 0)})
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for range 4 {
				if _, err := c.Push(t.Context(), grads, Gradient{Versions: Versions{0}}); err != nil {
					t.Error(err)
				}
				pull.Lock()
				if _, err := c.Pull(t.Context(), values, PullOptions{}); err != nil {
					t.Error(err)
				}
				pull.Unlock()
			}
		})
	}
	wg.Wait()
}

// peakMemory is the most that the process has had in memory, in bytes, without the pages of its
// program, which are in the page cache.
func peakMemory(t *testing.T, pid int) (peak int64) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	signs := map[string]int64{"VmHWM:": 1, "RssFile:": -1, "RssShmem:": -1}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); signs[fields[0]] != 0 {
			kb, err := strconv.ParseInt(fields[1], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			peak += signs[fields[0]] * kb << 10
			delete(signs, fields[0])
		}
	}
	if len(signs) > 0 {
		t.Fatalf("the status of a process has no %v", signs)
	}
	return peak
}
