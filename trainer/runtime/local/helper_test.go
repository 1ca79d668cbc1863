package local

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

const (
	// makes the test program what the variable says
	helperEnv = "LOCAL_TEST_HELPER"
	// a FIFO that a helper holds open for writing while it lives
	lifeEnv  = "LOCAL_TEST_LIFE"
	childEnv = "LOCAL_TEST_CHILD" // what a parent starts
)

func TestMain(m *testing.M) {
	if what := os.Getenv(helperEnv); what != "" {
		os.Exit(helper(what))
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // of the helpers
	os.Exit(m.Run())
}

// helper is the main of the test program as another program.
func helper(what string) int {
	if len(os.Args) > 1 && what == "job" {
		what = os.Args[1]
	}
	switch what {
	case "exit": // with --index as its code
		_, index, _ := strings.Cut(os.Args[3], "=")
		code, _ := strconv.Atoi(index)
		fmt.Fprintln(os.Stderr, "the last word")
		return code
	case "who": // prints its arguments, and fails
		return sayWho()
	case "parent": // of a child with a lifeline
		_, err := command{binary: os.Args[0], log: os.DevNull,
			env: map[string]string{helperEnv: os.Getenv(childEnv)}}.start()
		if err != nil {
			panic(err)
		}
		select {}
	case "family", "leaver":
		// a child in the same group; the leaver leaves it behind
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), helperEnv+"=hang")
		out, err := child.StdoutPipe()
		if err != nil {
			panic(err)
		}
		if err := child.Start(); err != nil {
			panic(err)
		}
		out.Read(make([]byte, 1)) // it lives
		if what == "leaver" {
			return 0
		}
		select {}
	case "starter":
		// the job's name is that of its child
		j := job.Default()
		j.Name, _ = strings.CutPrefix(os.Getenv(childEnv), "detached ")
		if j.Name == "killed" { // the others cannot be resumed
			j.CheckpointDir = "checkpoints"
		}
		os.Setenv(helperEnv, "job") // of the processes of the job
		h, err := Start(context.Background(), j, StartOptions{Detach: j.Name != os.Getenv(childEnv)})
		if err != nil {
			panic(err)
		}
		h.Wait(context.Background())
		return 0
	case "launcher":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := RunLauncher(ctx, nil, strings.TrimPrefix(os.Args[2], "--job_dir="), false); err != nil {
			panic(err)
		}
		return 0
	case "worker": // of a job of the fake master
		what = "stubborn"
	case "master":
		_, text, _ := strings.Cut(os.Args[3], "=")
		incarnation, _ := strconv.Atoi(text)
		return fakeMaster(dir(strings.TrimPrefix(os.Args[2], "--job_dir=")), incarnation)
	}
	if what == "deaf" {
		signal.Ignore(syscall.SIGTERM)
	}
	life := holdLife()
	switch what {
	case "orphan": // leaves in good order
		ctx, stop := Lifeline(context.Background(), nil)
		defer stop()
		<-ctx.Done()
		fmt.Fprintln(life, context.Cause(ctx))
		return 0
	case "stubborn":
		Lifeline(context.Background(), nil)
	}
	fmt.Fprintln(life, "alive")
	fmt.Println("alive")
	select {}
}

// sayWho prints the identity of a process, and checks that its credentials are not visible to
// others, its own children among them.
func sayWho() int {
	seen := strings.Join(append(os.Environ(), os.Args...), " ")
	pipe := os.Getenv(cardEnv)
	text, err := Card()
	if err != nil {
		panic(err)
	}
	card, err := credential.ParseCard(text)
	if err != nil {
		panic(err)
	}
	c, err := credential.Of(card)
	if err != nil {
		panic(err)
	}
	for line := range strings.SplitSeq(string(text), "\n") {
		if len(line) > 20 && !strings.HasPrefix(line, "-----") && strings.Contains(seen, line) {
			fmt.Fprint(os.Stderr, "not alone, ")
		}
	}
	if out, err := exec.Command("/bin/sh", "-c", "echo \"$"+cardEnv+
		"\"; ls -l /proc/self/fd").CombinedOutput(); err != nil ||
		strings.Contains(string(out), "/proc/self/fd/"+pipe) ||
		strings.TrimSpace(string(out[:1])) != "" || strings.Contains(string(out), " "+pipe+" -> pipe") {
		fmt.Fprintf(os.Stderr, "with a child that has %q of %s, ", out, pipe)
	}
	if again, err := Card(); again != nil || err != nil {
		fmt.Fprint(os.Stderr, "twice, ")
	}
	fmt.Fprintln(os.Stderr, strings.Join(os.Args[1:], " "), "as", c.Name())
	return 1
}

func holdLife() *os.File {
	file, err := os.OpenFile(os.Getenv(lifeEnv), os.O_WRONLY, 0)
	if err != nil {
		panic(err)
	}
	return file
}

// fakeMaster does what RunMaster does, as its job's name says, but for the job. Two workers are all
// that the first incarnation of a master has, and the next ones continue with them.
func fakeMaster(d dir, incarnation int) int {
	lock.Store(inherited(lockEnv))
	endWithParent()
	switch {
	case d.name() == "broken":
		d.store(&wire.JobStatus{Name: d.name(), State: "Failed", Reason: "no such file: /data"})
		return 1
	case d.name() == "panics", d.name() == "crashes" && incarnation > 1:
		panic("no kernels")
	}
	holdLife()
	h, err := inherit(d, incarnation)
	if err != nil {
		panic(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if d.name() == "hung" {
		signal.Ignore(syscall.SIGTERM)
	}
	if strings.HasPrefix(d.name(), "full") {
		return masterOnFullDisk(ctx, d, h, incarnation)
	}
	m := &masterService{dir: d, stop: make(chan string, 1)}
	server := rpc.NewServer(h.self, false)
	wire.RegisterJobServer(server, m)
	go server.Serve(h.listener)
	if d.name() != "vanished" {
		d.store(&wire.JobStatus{Name: d.name(), State: "Running", Pods: []*wire.PodStatus{{State: "Running"}}})
	}
	h.ready()
	fmt.Fprintln(os.Stderr, "listening")
	final := &wire.JobStatus{Name: d.name(), State: "Stopped"}
	switch d.name() {
	case "quick":
		final.State = "Succeeded"
		d.store(final)
		return 0
	case "crashes":
		fmt.Fprintln(os.Stderr, "no luck")
		return 3
	case "steady":
		go m.keep(h)
	}
	select {
	case <-ctx.Done():
		final.Reason = "terminated"
	case final.Reason = <-m.stop:
	}
	// it has reported how the job has ended, and writes nothing
	if d.name() == "lags" {
		select {}
	}
	d.store(final)
	return 0
}

// masterOnFullDisk does what a master does whose disk becomes full as soon as it listens.
func masterOnFullDisk(ctx context.Context, d dir, h *heir, incarnation int) int {
	m := &masterService{dir: d, stop: make(chan string, 1)}
	server := rpc.NewServer(h.self, false)
	wire.RegisterJobServer(server, m)
	go server.Serve(h.listener)
	if err := h.ready(); err != nil {
		panic(err)
	}
	fill(d)
	if want := fmt.Sprint("of incarnation ", incarnation-1); incarnation > 1 && string(h.former) != want {
		panic(fmt.Sprintf("the record is %q, want %q", h.former, want))
	}
	status := &wire.JobStatus{Name: d.name(), State: "Running"}
	if err := errors.Join(memory{h.state}.Write(ctx, fmt.Append(nil, "of incarnation ", incarnation)),
		h.state.store(status)); err != nil {
		panic(err)
	}
	switch {
	case d.name() == "fulldying" && incarnation <= 12:
		return 3
	case d.name() == "fulldying", d.name() == "fullquick":
		status.State = "Succeeded"
	default:
		select {
		case <-ctx.Done():
		case status.Reason = <-m.stop:
		}
		status.State = "Stopped"
	}
	if err := h.state.store(status); err != nil {
		panic(err)
	}
	return 0
}

// keep does what a master does with its pods, and notes what it learns of them.
func (m *masterService) keep(h *heir) {
	m.learn(fmt.Sprintf("incarnation %d after %q", h.self.Header().Incarnation, h.former))
	ctx := context.Background()
	if h.former == nil {
		if err := (memory{h.state}).Write(ctx,
			fmt.Appendf(nil, "of incarnation %d", h.self.Header().Incarnation)); err != nil {
			panic(err)
		}
		for i := range 2 {
			if err := h.pods.Create(ctx, master.Pod{ID: pod.ID{Role: pod.Worker, Index: i},
				Incarnation: 1}); err != nil {
				panic(err)
			}
		}
	} else {
		all, err := h.pods.Adopt(ctx)
		if err != nil {
			panic(err)
		}
		for _, e := range all {
			m.learn("there is " + describe(e))
		}
	}
	for e := range h.pods.Events() {
		m.learn(describe(e))
	}
}

func describe(e pod.Event) string {
	text := fmt.Sprintf("%v.%d %v", e.ID, e.Incarnation, e.Phase)
	if e.Phase.Ended() || e.Phase == pod.Leaving {
		text += ": " + e.Exit.String()
	}
	return text
}

type masterService struct {
	wire.UnimplementedJobServer
	dir  dir
	stop chan string

	workers atomic.Int32
	over    atomic.Bool

	mu      sync.Mutex
	learned []string
}

func (m *masterService) learn(what string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.learned = append(m.learned, what)
}

func (m *masterService) Status(context.Context, *wire.StatusRequest) (*wire.JobStatus, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	state := job.Running
	if m.over.Load() {
		state = job.Stopped
	}
	return &wire.JobStatus{Name: m.dir.name(), State: string(state), Reason: "says the master",
		Waiting: strings.Join(m.learned, "\n")}, nil
}

func (m *masterService) Scale(_ context.Context, r *wire.ScaleRequest) (*wire.ScaleReply, error) {
	if r.Workers > 8 {
		return nil, status.Errorf(codes.InvalidArgument, "--num_workers=%d: more than --max_workers=8", r.Workers)
	}
	before := m.workers.Swap(r.Workers)
	return &wire.ScaleReply{Before: before}, nil
}

func (m *masterService) Stop(_ context.Context, r *wire.StopRequest) (*wire.StopReply, error) {
	if m.dir.name() == "hung" {
		return nil, errors.New("not now")
	}
	m.over.Store(m.dir.name() == "lags")
	m.stop <- r.Reason
	return &wire.StopReply{}, nil
}

// life is a FIFO that the helpers started from now on hold open while they live.
type life struct {
	path string
	end  *os.File // which lets them open it
}

func newLife(t *testing.T) life {
	t.Helper()
	path := filepath.Join(t.TempDir(), "life")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv(lifeEnv, path)
	return life{path, openLife(t, path, syscall.O_NONBLOCK)}
}

func openLife(t *testing.T, path string, flags int) *os.File {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDONLY|flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}

// begun returns when a helper lives.
func (l life) begun(t *testing.T) {
	t.Helper()
	openLife(t, l.path, 0)
}

// ended returns the output of the helpers until the last of them ended. One of them has begun.
func (l life) ended(t *testing.T) string {
	t.Helper()
	text, err := io.ReadAll(l.end)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
