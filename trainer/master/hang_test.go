package master

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/stacks"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// pulses is a program of two workers with a process each, whose agents report what a test sets.
type pulses struct {
	*world
	peers [2]*peer
	// the world that the processes are in
	generation int64
	reports    [2]*wire.ProcessReport
	// when each has written something last; zero: never
	wrote [2]time.Time
	// the stacks that the agents answer with
	text [2]string
	// numbers of the requests that the agents have answered
	answered [2]int64
	// the agents that send no heartbeats
	silent [2]bool
	// requests for stacks that have come
	asks int
	// the last orders to kill
	hung [2][]*wire.Hung
	// the journal
	entries []journal.Entry
}

// stackAt returns the text of a process that waits at a line.
func stackAt(file string, line int, function string) string {
	return fmt.Sprintf("Current thread 0x01 (most recent call first):\n  File \"/code/%s\", line %d in %s\n"+
		"  File \"/code/train.py\", line 90 in <module>\n", file, line, function)
}

// startPulses starts the program. Its processes write at first, and wait for messages.
func startPulses(t *testing.T, timeout time.Duration) *pulses {
	t.Helper()
	p := &pulses{generation: 1}
	p.world = start(t, func(c *Config) {
		runJob(3)(c)
		c.Job.Program.Hang.Duration, c.Job.HeartbeatTimeout.Duration = timeout, time.Minute
		c.OnEntry = func(e journal.Entry) { p.entries = append(p.entries, e) }
	})
	for i := range p.peers {
		p.peers[i] = p.peer(i)
	}
	for i, peer := range p.peers {
		peer.enters("1 [0 1] from []")
		peer.silent(true) // the test sends its heartbeats
		p.reports[i] = &wire.ProcessReport{Rank: int32(i), Pid: int32(100 + i), Cores: 0.01, Moved: 0}
		p.wrote[i] = time.Now()
		p.text[i] = stackAt("train.py", 41, "step")
	}
	return p
}

// beats has the agents send heartbeats for a time.
func (p *pulses) beats(d time.Duration) {
	p.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		for i, peer := range p.peers {
			if p.silent[i] {
				continue
			}
			// the peer sends it again in the background
			r := proto.Clone(p.reports[i]).(*wire.ProcessReport)
			if r.QuietMs = -1; !p.wrote[i].IsZero() {
				r.QuietMs = time.Since(p.wrote[i]).Milliseconds()
			}
			reply := peer.says(func(b *wire.HeartbeatRequest) {
				b.Generation, b.Stage = p.generation, wire.Stage_STAGE_STARTED
				b.Processes = []*wire.ProcessReport{r}
			})
			p.hung[i] = reply.Hung
			if reply.Stacks > p.answered[i] {
				p.answered[i] = reply.Stacks
				p.asks++
				_, err := p.ReportStacks(p.Context(), &wire.ReportStacksRequest{Worker: int32(i), Number: reply.Stacks,
					Stacks: []*wire.ProcessStack{{Rank: r.Rank, Pid: r.Pid, Text: p.text[i], Call: "sleep",
						Looks: stacks.MostLooks}}})
				if err != nil {
					p.Error(err)
				}
			}
		}
	}
}

// kinds returns the entries of some kinds, as text.
func (p *pulses) kinds(kinds ...journal.Kind) string {
	p.mustNotRun()
	var all []string
	for _, e := range p.entries {
		for _, k := range kinds {
			if e.Kind == k {
				all = append(all, fmt.Sprintf("%s %v %s", e.Kind, e.Ranks, e.Text))
			}
		}
	}
	return strings.Join(all, "\n")
}

// mustNotRun waits until the master has handled all calls.
func (p *pulses) mustNotRun() { p.look() }

// conditions returns the conditions Running and Degraded, as text.
func (p *pulses) conditions() string {
	var all []string
	for _, c := range p.look().Conditions {
		if c.Type == journal.Running || c.Type == journal.Degraded {
			all = append(all, c.Type+" "+c.Status+" "+c.Reason+": "+c.Message)
		}
	}
	return strings.Join(all, "\n")
}

// A program without a sign of life is reported within a minute, by a name of the rank that differs
// and of the places where all stand. Its next sign of life ends that.
func TestStuckProgram(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startPulses(t, 0)
		p.text[1] = stackAt("data.py", 12, "load")
		p.text[0] = "Current thread 0x01 (most recent call first):\n" +
			"  File \"/usr/lib/python3/dist-packages/torch/distributed_c10d.py\", line 2501 in all_reduce\n" +
			"  File \"/code/train.py\", line 41 in step\n"
		p.beats(44 * time.Second)
		if s := p.look(); s.Stuck != "" || p.asks > 0 {
			t.Errorf("stuck after 44 s: %q, %d requests for stacks", s.Stuck, p.asks)
		}
		p.beats(16 * time.Second)
		const want = "rank 1 differs: sleep at data.py:12; rank 0: all_reduce at train.py:41"
		s := p.look()
		if since := time.Since(time.UnixMilli(s.StuckSinceUnixMs)); s.Stuck != want ||
			since < 55*time.Second || since > time.Minute || s.Waiting != "" {
			t.Errorf("stuck: %q, since %v, waiting for %q", s.Stuck, since, s.Waiting)
		}
		if got := p.conditions(); got != "Running False NoProgress: "+want+"\nDegraded True NoProgress: "+want {
			t.Error(got)
		}
		got := p.kinds(journal.Stuck)
		if !strings.HasPrefix(got, "Stuck [1] no progress for 4") || !strings.HasSuffix(got, "s: "+want) ||
			p.asks != 2 {
			t.Errorf("%q after %d requests for stacks", got, p.asks)
		}
		p.beats(3 * time.Minute)
		p.wrote[0] = time.Now()
		p.beats(4 * time.Second)
		if s := p.look(); s.Stuck != "" || s.StuckSinceUnixMs != 0 || p.asks != 2 || strings.Contains(p.conditions(),
			"NoProgress") {
			t.Errorf("stuck: %q, %d requests, %s", s.Stuck, p.asks, p.conditions())
		}
		if got := p.kinds(journal.Unstuck, journal.Waiting, journal.Continued); !strings.HasPrefix(got,
			"Unstuck [] the program makes progress again after 3m5") {
			t.Errorf("%q", got)
		}
	})
}

// No suspicion is raised while a process is held, or writes, or moves bytes, or while rounds are
// completed, or all compute.
func TestNotStuck(t *testing.T) {
	for name, change := range map[string]func(p *pulses, second int){
		"held":     func(p *pulses, _ int) { p.reports[1].Held = true },
		"writes":   func(p *pulses, second int) { p.wrote[1] = time.Now().Add(-40 * time.Second) },
		"moves":    func(p *pulses, second int) { p.reports[1].Moved = int64(second) << 16 },
		"computes": func(p *pulses, _ int) { p.reports[0].Cores, p.reports[1].Cores = 0.9, 1 },
		"is ready": func(p *pulses, _ int) { p.reports[0].Ready, p.reports[1].Cores = true, 1 },
		"restarts": func(p *pulses, second int) { p.reports[1].Pid = int32(100 + second/30) },
		"pdb": func(p *pulses, _ int) {
			p.text[0] = stackAt("../usr/lib/python3.11/pdb.py", 9, "interaction")
		},
		// the stacks of a process that computes change
		"evaluates": func(p *pulses, second int) {
			p.reports[0].Cores, p.text[0] = 1, stackAt("eval.py", second, "forward")
		},
		"a newcomer is waited for": func(p *pulses, _ int) { p.generation = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := startPulses(t, time.Minute)
				for second := range 200 {
					change(p, second)
					p.beats(time.Second)
				}
				if got := p.kinds(journal.Stuck); got != "" || p.look().Stuck != "" {
					t.Error(got)
				}
			})
		})
	}
}

// A rank that computes and stands at one line all the time is found.
func TestStuckInALoop(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startPulses(t, 0)
		p.reports[1].Cores, p.text[1] = 1, stackAt("data.py", 12, "load")
		p.beats(time.Minute)
		s := p.look()
		if !strings.Contains(s.Stuck, "data.py:12") || p.asks != 2*3 {
			t.Errorf("stuck: %q after %d requests", s.Stuck, p.asks)
		}
		// of two workers, since their last sign of life
		i := slices.IndexFunc(s.Accounting.Lost, func(l *wire.LostTime) bool { return l.Cause == "stuck" })
		if i < 0 || s.Accounting.Lost[i].Ms < 110_000 || s.Accounting.Lost[i].Ms > 121_000 {
			t.Errorf("the account: %v", s.Accounting)
		}
	})
}

// With --hang_timeout the rank that differs is killed, which counts, and the program starts again.
func TestHangTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startPulses(t, 2*time.Minute)
		p.text[1] = stackAt("data.py", 12, "load")
		p.text[0] = strings.Replace(stackAt("train.py", 41, "step"), "first):\n",
			"first):\n  File \"/x/site-packages/torch/c10d.py\", line 5 in all_reduce\n", 1)
		p.beats(119 * time.Second)
		if len(p.hung[0])+len(p.hung[1]) > 0 {
			t.Fatalf("%v too soon", p.hung)
		}
		p.beats(6 * time.Second)
		const why = "no progress for 2m (--hang_timeout): sleep at data.py:12, called at train.py:90"
		if len(p.hung[0]) > 0 || len(p.hung[1]) != 1 || p.hung[1][0].Why != why || p.hung[1][0].Pid != 101 ||
			p.hung[1][0].Generation != 1 {
			t.Fatalf("%v", p.hung)
		}
		// the order is repeated until the process is not reported
		p.reports[1].Pid = 201
		p.beats(time.Second)
		if len(p.hung[1]) > 0 {
			t.Errorf("%v for another process", p.hung)
		}
		p.peers[1].fails(1, &wire.Failure{Rank: 1, Pid: 101, Signal: 9, Hung: true, Message: why})
		p.peers[0].fails(1, &wire.Failure{Code: 1, Message: "Connection reset by peer"})
		for _, peer := range p.peers {
			peer.enters("2 [0 1] from []")
		}
		p.generation, p.wrote = 2, [2]time.Time{time.Now(), time.Now()}
		p.beats(3 * time.Second)
		s := p.look()
		if want := "rank 1 of worker-1 (pid 101): " + why + "; the program starts again (counted)"; s.Failure != want ||
			s.Restarts != 1 || s.Stuck != "" {
			t.Errorf("%d restarts, %q, stuck %q", s.Restarts, s.Failure, s.Stuck)
		}
		if got := p.kinds(journal.Unstuck); !strings.Contains(got, "the processes have ended that made no progress") {
			t.Errorf("%q", got)
		}
	})
}

// If no rank differs, all are killed, and that counts once.
func TestHangTimeoutOfAll(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startPulses(t, time.Minute)
		p.beats(70 * time.Second)
		const why = "no progress for 1m (--hang_timeout), and no rank differs: sleep at train.py:41, " +
			"called at train.py:90"
		for i, all := range p.hung {
			if len(all) != 1 || all[0].Why != why || int(all[0].Pid) != 100+i {
				t.Errorf("%d: %v", i, all)
			}
		}
	})
}

// A worker whose reports are old is not judged by them.
func TestStuckNeedsReports(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := startPulses(t, 0)
		p.beats(39 * time.Second)
		p.silent[1] = true
		p.beats(5 * time.Second)
		p.beats(4 * time.Second)
		if got := p.kinds(journal.Stuck); got != "" {
			t.Error(got)
		}
		p.silent[1] = false
		p.beats(4 * time.Second)
		if got := p.kinds(journal.Stuck); got == "" {
			t.Error("it is not found when both report")
		}
	})
}
