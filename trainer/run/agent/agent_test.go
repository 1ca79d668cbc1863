package agent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// limit is the time limit of each wait of a test.
const limit = time.Minute

const (
	// scriptEnv makes the test binary act as a process of the program.
	scriptEnv = "ELASTICDL_TEST_SCRIPT"
	// readEnv makes that process report that it has read its state from a checkpoint.
	readEnv = "ELASTICDL_TEST_READ"
	// roundEnv is the round of the state with which that process begins.
	roundEnv = "ELASTICDL_TEST_ROUND"
	// lateEnv names a directory that the process of local rank 1 creates. A later one, which finds
	// it, is never ready to join.
	lateEnv = "ELASTICDL_TEST_LATE"
)

func TestMain(m *testing.M) {
	if os.Getenv(scriptEnv) != "" {
		speak(os.Args[1:])
	}
	os.Setenv("GORACE", "atexit_sleep_ms=0") // of the scripts
	os.Exit(m.Run())
}

// speak acts as a process that keeps its state, by PROTOCOL.md. Each argument is a reaction to a
// message of the agent, such as recall=arrive, 1:recall=exit for local rank 1 only, or world 2=done
// for one world. It can arrive, declare a data set, complete a round, report that it is done, doubt
// its state, ask the store, or exit with 7 or another code. It reports the reply to a request as
// answer or refusal: then the agent has received all earlier messages. On SIGUSR1 it exits with 0,
// and with term=end also on SIGTERM.
func speak(does []string) {
	rank := os.Getenv("LOCAL_RANK")
	conn, err := net.Dial("unix", os.Getenv("ELASTICDL_SOCKET"))
	if err != nil {
		panic(err)
	}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGUSR1)
	if slices.Contains(does, "term=end") {
		signal.Notify(ends, syscall.SIGTERM)
	}
	go func() {
		<-ends
		os.Exit(0)
	}()
	generation, round, stands := int64(0), int64(-1), true
	if n, err := strconv.ParseInt(os.Getenv(roundEnv), 10, 64); err == nil {
		round = n
	}
	say := func(op string) {
		local, _ := strconv.Atoi(rank)
		line, _ := json.Marshal(map[string]any{"op": op, "pid": os.Getpid(), "local_rank": local,
			"survives": true, "formation": generation, "round": round, "ledger": [][3]int64{{1, 0, 3}},
			"settled": 1, "why": "no group", "path": "/c", "read": os.Getenv(readEnv) != ""})
		conn.Write(append(line, '\n'))
	}
	say("hello")
	if late := os.Getenv(lateEnv); late == "" || rank != "1" || os.Mkdir(late, 0o700) == nil {
		say("arrive")
	}
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		var w struct {
			Op, Why    string
			Q          *int64
			Generation int64 `json:"formation"`
		}
		json.Unmarshal(lines.Bytes(), &w)
		if w.Q != nil {
			w.Op = "answer"
			if bytes.Contains(lines.Bytes(), []byte(`"err"`)) {
				w.Op = "refusal"
			}
			w.Generation = *w.Q
		}
		switch {
		case w.Op == "world":
			generation, round, stands = w.Generation, w.Generation, false
			var at struct {
				Rank, Size int
				Env        map[string]string
			}
			json.Unmarshal(lines.Bytes(), &at)
			fmt.Printf("local %s pid %d hears rank %d of %d, restart %s of %s\n", rank, os.Getpid(),
				at.Rank, at.Size, at.Env["TORCHELASTIC_RESTART_COUNT"], at.Env["TORCHELASTIC_MAX_RESTARTS"])
		case w.Op == "end":
			fmt.Printf("local %s pid %d hears end: %s\n", rank, os.Getpid(), w.Why)
			os.Exit(1)
		case stands:
			continue // arrived already
		}
		fmt.Printf("local %s pid %d hears %s %d\n", rank, os.Getpid(), w.Op, w.Generation)
		for _, on := range does {
			switch strings.Replace(strings.TrimPrefix(on, rank+":"), fmt.Sprintf(" %d=", generation), "=", 1) {
			case w.Op + "=arrive":
				stands = true
				say("arrive")
			case w.Op + "=declare":
				fmt.Fprintf(conn, `{"op":"dataset","q":%d,"size":8,"epochs":1,"records_per_task":4}`+"\n", generation)
			case w.Op + "=round":
				say("met")
				say("round")
			case w.Op + "=done":
				say("done")
			case w.Op + "=rest":
				say("saved")
				say("rest")
			case w.Op + "=account":
				say("account")
			case w.Op + "=ask":
				fmt.Fprintf(conn, `{"op":"check","q":%d,"f":%d,"ks":["key"]}`+"\n", generation, generation)
			case w.Op + "=exit":
				os.Exit(7)
			case w.Op + "=doubt":
				say("doubt")
			default:
				if code, err := strconv.Atoi(strings.TrimPrefix(strings.TrimPrefix(on, rank+":"),
					w.Op+"=")); err == nil {
					os.Exit(code)
				}
			}
		}
	}
	os.Exit(supervise.CodeAgentLost)
}

// hall is a fake master of one agent. It receives arrivals, and sends the worlds of the test.
type hall struct {
	wire.MasterClient
	*testing.T
	job      *job.Job
	arrivals chan *wire.Arrival
	words    chan *wire.Assembly
	// lines that the processes write
	lines chan string
	// lines that the agent logs
	logs chan string

	// each element ends a stream
	cuts chan struct{}

	// closed when the worker is asked to leave
	leave chan struct{}
	// heartbeats, unless the channel is full
	beats chan *wire.HeartbeatRequest
	// heartbeats with the answer to ask
	ledgers chan *wire.HeartbeatRequest

	// reports in heartbeats of the states with which worlds begin
	origins chan *wire.Origin

	// closed when the agent has ended
	ended chan struct{}

	mu   sync.Mutex
	asks bool
	// the job has ended
	over bool
	// times in the master's replies at the end of the job
	grace, stop time.Duration
}

// stream is the stream between the agent and the master.
type stream struct {
	grpc.ClientStream
	*hall
	ctx context.Context
}

func (h *hall) Rendezvous(ctx context.Context,
	_ ...grpc.CallOption) (grpc.BidiStreamingClient[wire.Arrival, wire.Assembly], error) {
	return stream{hall: h, ctx: ctx}, nil
}

func (s stream) Send(a *wire.Arrival) error {
	if !a.Works {
		s.arrivals <- a
	}
	return nil
}

func (s stream) Recv() (*wire.Assembly, error) {
	select {
	case word := <-s.words:
		return word, nil
	case <-s.cuts:
		return nil, errors.New("the connection broke")
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (h *hall) Heartbeat(_ context.Context, r *wire.HeartbeatRequest,
	_ ...grpc.CallOption) (*wire.HeartbeatReply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	select {
	case h.beats <- r:
	default:
	}
	if r.Origin != nil {
		h.origins <- r.Origin
	}
	if len(r.Ledger) > 0 && h.asks {
		h.asks = false
		h.ledgers <- r
	}
	return &wire.HeartbeatReply{Ledger: h.asks, Over: h.over, GraceMs: h.grace.Milliseconds(),
		StopMs: h.stop.Milliseconds()}, nil
}

func (h *hall) GetTask(context.Context, *wire.GetTaskRequest, ...grpc.CallOption) (*wire.GetTaskReply, error) {
	return &wire.GetTaskReply{}, nil
}

// Write receives output of processes: one or several lines.
func (h *hall) Write(text []byte) (int, error) {
	for line := range strings.Lines(string(text)) {
		h.lines <- line
	}
	return len(text), nil
}

// logWriter receives the agent's log, line by line.
type logWriter chan string

func (w logWriter) Write(text []byte) (int, error) {
	w <- string(text)
	return len(text), nil
}

// open starts an agent with the given number of processes of a program, and waits for its first
// arrival.
func open(t *testing.T, processes int, program ...string) (*hall, *wire.Arrival) {
	t.Helper()
	return openFor(t, time.Second, processes, program...)
}

// openFor starts an agent with a grace period for processes when it is asked to leave.
func openFor(t *testing.T, grace time.Duration, processes int, program ...string) (*hall, *wire.Arrival) {
	t.Helper()
	return openWith(t, Config{Grace: grace}, processes, program...)
}

// openWith starts an agent with Grace, Keeps, --restart_on_join and --checkpoint_file of a
// configuration. A program without the name of a Python script runs unchanged.
func openWith(t *testing.T, c Config, processes int, program ...string) (*hall, *wire.Arrival) {
	t.Helper()
	t.Setenv(scriptEnv, "1")
	h := &hall{T: t, arrivals: make(chan *wire.Arrival, 10), words: make(chan *wire.Assembly, 10),
		lines: make(chan string, 1000), logs: make(chan string, 1000),
		ledgers: make(chan *wire.HeartbeatRequest, 10), beats: make(chan *wire.HeartbeatRequest),
		origins: make(chan *wire.Origin, 10), leave: make(chan struct{}), cuts: make(chan struct{})}
	j := job.DefaultOf(job.Run)
	j.Name, j.NumWorkers, j.Program.Command, j.Program.NoPython, j.Program.Processes = "j", 1, program,
		filepath.Ext(program[0]) != ".py", strconv.Itoa(processes)
	j.HeartbeatTimeout.Duration = time.Second
	if c.Job != nil {
		j.Program.RestartOnJoin, j.Program.Checkpoint = c.Job.Program.RestartOnJoin, c.Job.Program.Checkpoint
	}
	h.job = j
	ctx, cancel := context.WithCancel(t.Context())
	h.ended = make(chan struct{})
	go func() {
		defer close(h.ended)
		Run(ctx, Config{
			Job: j, Self: rpc.NewSelf(identity.Header{Role: pod.Worker, Incarnation: 1, ModelGeneration: 1}, nil),
			Master: h, Host: "127.0.0.1", Processors: 1,
			Grace: c.Grace, Keeps: c.Keeps, Leave: h.leave, Output: h,
			Log: slog.New(slog.NewTextHandler(logWriter(h.logs), nil)),
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-h.ended
	})
	return h, h.arrival()
}

// restarting returns the configuration of an agent with --restart_on_join and --checkpoint_file.
func restarting(when, checkpoint string) Config {
	j := job.DefaultOf(job.Run)
	j.Program.RestartOnJoin, j.Program.Checkpoint = when, checkpoint
	return Config{Job: j, Grace: time.Second}
}

// self returns the command that runs speak.
func self(does ...string) []string { return append([]string{os.Args[0]}, does...) }

func (h *hall) arrival() *wire.Arrival {
	h.Helper()
	return next(h, "an arrival", h.arrivals)
}

func next[T any](h *hall, what string, from <-chan T) (got T) {
	h.Helper()
	select {
	case got = <-from:
	case <-time.After(limit):
		h.Fatalf("timed out waiting for %s", what)
	}
	return got
}

// give sends the world that follows from an arrival, with this worker as its only member.
func (h *hall) give(a *wire.Arrival) { h.giveAfter(a, 0) }

// following returns the world that follows from an arrival, with this worker as its only member.
func following(a *wire.Arrival) *wire.World {
	w := &wire.World{Id: a.Generation + 1, Generation: a.Generation + 1,
		Members: []*wire.Member{{Worker: 0, Address: a.Address, Crew: a.Crew}}}
	if a.Round >= 0 {
		w.Sources = []int32{0}
	}
	return w
}

// recall asks the agent to leave a world: at once, or after a round because a worker joins.
func (h *hall) recall(generation int64, now bool) {
	h.words <- &wire.Assembly{Word: &wire.Assembly_Recall{Recall: &wire.Recall{Generation: generation,
		Now: now, Joins: !now}}}
}

var heard = regexp.MustCompile(`^local (\d) pid (\d+) hears (.*)\n$`)

// hear waits until each of these local ranks has received a message, and returns their pids.
func (h *hall) hear(what string, locals ...int) map[int]int {
	h.Helper()
	pids := make(map[int]int)
	for slices.ContainsFunc(locals, func(local int) bool { return pids[local] == 0 }) {
		line := next(h, fmt.Sprintf("%q of %v", what, locals), h.lines)
		if m := heard.FindStringSubmatch(line); m != nil && m[3] == what {
			local, _ := strconv.Atoi(m[1]) // digits
			pids[local], _ = strconv.Atoi(m[2])
		}
	}
	return pids
}

// ask makes the agent report which records are in the state of every rank, as a restored master
// does.
func (h *hall) ask() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.asks = true
}

// checkFailures checks which failures of processes an arrival reports.
func (h *hall) checkFailures(a *wire.Arrival, generation int64, processes int32, want ...*wire.Failure) {
	h.Helper()
	same := func(got, want *wire.Failure) bool {
		return got.Local == want.Local && got.Code == want.Code && got.Signal == want.Signal &&
			got.Excused == want.Excused && got.Doubt == want.Doubt
	}
	if a.Generation != generation || a.Crew.Processes != processes || !slices.EqualFunc(a.Failures, want, same) {
		h.Fatalf("it comes from world %d with %d processes and failures %v, want %d, %d and %v",
			a.Generation, a.Crew.Processes, a.Failures, generation, processes, want)
	}
}

// A process that fails while its world ends is reported. It is excused if no member is lost, as the
// failure may result from the world's end.
func TestFailsWhileAWorldIsLeft(t *testing.T) {
	for _, now := range []bool{false, true} {
		t.Run(fmt.Sprintf("now %v", now), func(t *testing.T) {
			h, a := open(t, 2, self("0:recall=arrive", "1:recall=exit")...)
			h.give(a)
			h.hear("world 1", 0, 1)
			h.recall(1, now)
			a = h.arrival()
			h.checkFailures(a, 1, 1, &wire.Failure{Local: 1, Code: 7, Excused: !now})
			h.give(a)
			h.hear("world 2", 0)
			h.hear("recall 2", 0) // the one that was started again is ready
			h.checkFailures(h.arrival(), 2, 2)
		})
	}
}

// An arrival reports whether the worker has left its world in the middle of a round. Then processes
// of other workers would wait in the round, even if all were recalled to leave after it.
func TestBreaksOff(t *testing.T) {
	left := func(h *hall, a *wire.Arrival, want bool) {
		h.Helper()
		if a.BrokeOff != want {
			h.Errorf("the arrival from world %d says that it broke off: %v, want %v", a.Generation, a.BrokeOff, want)
		}
	}
	t.Run("after the round", func(t *testing.T) {
		h, a := open(t, 2, self("recall=arrive")...)
		left(h, a, false)
		h.give(a)
		h.hear("world 1", 0, 1)
		h.recall(1, false)
		left(h, h.arrival(), false)
	})
	t.Run("a process fails", func(t *testing.T) {
		h, a := open(t, 2, self("0:recall=arrive", "1:recall=exit")...)
		h.give(a)
		h.hear("world 1", 0, 1)
		h.recall(1, false)
		left(h, h.arrival(), true)
	})
	t.Run("a process is stopped", func(t *testing.T) {
		h, a := open(t, 1, self()...)
		h.give(a)
		pids := h.hear("world 1", 0)
		if err := syscall.Kill(pids[0], syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		h.recall(1, false)
		a = h.arrival()
		h.checkFailures(a, 1, 0, &wire.Failure{Signal: int32(syscall.SIGKILL), Excused: true})
		left(h, a, true)
	})
	t.Run("a process that has said nothing yet", func(t *testing.T) {
		h, a := open(t, 1, "/bin/sh", "-c", `echo "local $LOCAL_RANK pid $$ hears it"; exec sleep 3600`)
		h.give(a)
		h.hear("it", 0)
		h.recall(1, false)
		left(h, h.arrival(), true)
	})
}

// A worker that is asked to leave does not restart processes. It waits in its world until the
// master releases it.
func TestLeavesAlone(t *testing.T) {
	h, a := open(t, 1, "/bin/sh", "-c", `echo "local $LOCAL_RANK pid $$ hears it"; exec sleep 3600`)
	h.give(a)
	h.hear("it", 0)
	close(h.leave)
	a = h.arrival()
	h.checkFailures(a, 1, 0)
	h.give(a)
	for range 3 {
		next(h, "a heartbeat", h.beats)
	}
	if len(h.arrivals) > 0 || len(h.lines) > 0 {
		t.Errorf("it has left the world, with %d arrivals, or its processes were started again: "+
			"%d lines", len(h.arrivals), len(h.lines))
	}
	h.recall(2, false)
	h.checkFailures(h.arrival(), 2, 0)
}

// Processes that keep their state continue when their worker is asked to leave, until the master
// recalls them.
func TestLeavesWithState(t *testing.T) {
	h, a := open(t, 1, self("recall=arrive")...)
	h.give(a)
	h.hear("world 1", 0)
	close(h.leave)
	h.hear("leave 0", 0)
	beat := next(h, "a heartbeat", h.beats)
	for beat.Leave != wire.Leave_ASKED {
		beat = next(h, "a heartbeat", h.beats)
	}
	if !beat.Keeps {
		t.Error("the master is not reported that processes keep their state")
	}
	if len(h.arrivals) > 0 {
		t.Error("it has left the world")
	}
	h.recall(1, false)
	a = h.arrival()
	h.checkFailures(a, 1, 1)
	if a.Round != 1 {
		t.Errorf("it brings round %d", a.Round)
	}
}

// A process that fails while it waits for a world is reported with the next arrival.
func TestFailsBetweenWorlds(t *testing.T) {
	h, a := open(t, 2, self("recall=arrive")...)
	h.give(a)
	pids := h.hear("world 1", 0, 1)
	h.recall(1, false)
	a = h.arrival()
	h.checkFailures(a, 1, 2)
	if err := syscall.Kill(pids[1], syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for syscall.Kill(pids[1], 0) == nil { // until the agent has seen it
		runtime.Gosched()
	}
	h.give(a)
	h.checkFailures(h.arrival(), 2, 1, &wire.Failure{Local: 1, Signal: int32(syscall.SIGKILL)})
}

// The agent ends processes that keep no state with their world, and does not report their ends. A
// process that fails on its own is reported once.
func TestFailsByItself(t *testing.T) {
	h, a := open(t, 2, "/bin/sh", "-c", `echo "local $LOCAL_RANK pid $$ hears it"; exec sleep 3600`)
	h.give(a)
	h.hear("it", 0, 1)
	h.recall(1, false)
	a = h.arrival()
	h.checkFailures(a, 1, 2)
	h.give(a)
	pids := h.hear("it", 0, 1)
	if err := syscall.Kill(pids[0], syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	a = h.arrival()
	h.checkFailures(a, 2, 2, &wire.Failure{Local: 0, Signal: int32(syscall.SIGUSR1)})
	h.give(a)
	h.hear("it", 0, 1)
	h.recall(3, true)
	h.checkFailures(h.arrival(), 3, 2)
}
