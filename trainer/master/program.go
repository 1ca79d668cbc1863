package master

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// program is what the master knows of a user's program: how often it failed by its own fault, and
// what it trains on. Its workers meet as those of a ring; processes that keep their state are
// members of one, others begin anew with each world. The caller of each method holds the mutex.
type program struct {
	ending
	charges
	m *master
	// data set that the program has declared; nil: none
	dataset *wire.Dataset
	// the last world begins with a state that a process has read: it is the first, or all states
	// were lost
	loaded bool
	// that state may have been read, and the queue does not know its records
	behind bool
	// the queue was set back to the state that the last world begins with
	rewound bool
	// records in that state; nil: there is none, or the queue knows them
	had *ledger.Ledger
	// formation before which the last world was judged
	judged int64
	// checkpoints that the program has claimed
	claims []*vouched
	// all states were lost, and nobody has said yet what the program goes on from; nil: no such
	// loss
	lost *loss
	// processes keep their state from one world to the next
	keeps bool
	// number of reported failures, charged or not
	failures int
	// the last failure, as text
	last string
	// newest formation in which processes that keep their state have completed a round
	rounds int64
	// number of worlds in a row whose processes failed soon after their start, before a round
	brief int
	// by the master's clock: when the processes of the last world start
	starts time.Time
	// moved is when processes have last completed a round, or a world was formed, by the master's
	// clock; zero: not since this master started.
	moved time.Time
	// number of workers for which that start waits; 0: it does not wait for workers
	lacks int
	// number of members of the last world that brought all their processes; -1: not known
	whole int
	// how often processes were started again
	again int
	// the job has ended because its program ends in the same way again and again
	repeated bool
	// formation to which failed and arrived belong
	came int64
	// failures in that world
	failed []failure
	// by worker: digest of what its processes wrote there
	output map[int]string
	// time of the newest checkpoint file that a worker has found there, in Unix milliseconds
	written int64
	// workers that have arrived from that world
	arrived map[int]bool
}

// failure is the failure of a process, with its worker.
type failure struct {
	*wire.Failure
	worker int32
}

func newProgram(m *master) *program {
	return &program{m: m, arrived: make(map[int]bool), output: make(map[int]string), whole: -1}
}

// savedProgram is the part of a record about a program.
type savedProgram struct {
	Restarts int      `json:"restarts,omitempty"`
	Failures int      `json:"failures,omitempty"`
	Last     string   `json:"last,omitempty"`
	Doubts   int      `json:"doubts,omitempty"`
	Again    int      `json:"again,omitempty"`
	Repeats  repeats  `json:"repeats,omitzero"`
	Repeated bool     `json:"repeated,omitempty"`
	Dataset  *dataset `json:"dataset,omitempty"`
	Lost     *loss    `json:"lost,omitempty"`

	Claims []*vouched `json:"claims,omitempty"`
}

// dataset is a [wire.Dataset] in a record.
type dataset struct {
	Size    int64  `json:"size"`
	Epochs  int32  `json:"epochs"`
	Shuffle bool   `json:"shuffle,omitempty"`
	Seed    uint64 `json:"seed,omitempty"`
	Task    int64  `json:"task"`
}

func (g *program) save() *savedProgram {
	s := &savedProgram{Restarts: g.restarts, Failures: g.failures, Last: g.last, Doubts: g.doubts,
		Again: g.again, Repeats: g.repeats, Repeated: g.repeated, Lost: g.lost}
	for _, v := range g.claims {
		c := *v
		s.Claims = append(s.Claims, &c)
	}
	if d := g.dataset; d != nil {
		s.Dataset = &dataset{Size: d.Size, Epochs: d.Epochs, Shuffle: d.Shuffle, Seed: d.Seed, Task: d.Task}
	}
	return s
}

// restore sets what the previous master has left, before the queue is restored.
func (g *program) restore(s *savedProgram) error {
	if s == nil {
		return nil
	}
	g.restarts, g.failures, g.last, g.doubts = s.Restarts, s.Failures, s.Last, s.Doubts
	g.again, g.repeats, g.repeated, g.lost = s.Again, s.Repeats, s.Repeated, s.Lost
	g.claims = s.Claims
	if d := s.Dataset; d != nil {
		g.dataset = &wire.Dataset{Size: d.Size, Epochs: d.Epochs, Shuffle: d.Shuffle, Seed: d.Seed, Task: d.Task}
		return g.m.plan(g.shards(), nil)
	}
	return nil
}

// shards returns the data set as one shard, whose records are numbers.
func (g *program) shards() []task.Shard {
	if g.dataset == nil {
		return nil
	}
	return []task.Shard{{Name: "dataset", Count: g.dataset.Size}}
}

// policy returns a task policy that cuts the data set as the program has declared.
func (g *program) policy(p task.Policy) task.Policy {
	if d := g.dataset; d != nil {
		p.RecordsPerTask, p.Epochs, p.Shuffle, p.Seed = d.Task, int(d.Epochs), d.Shuffle, d.Seed
	}
	return p
}

// declare handles a process's declaration of the data set. All processes declare the same.
func (g *program) declare(d *wire.Dataset) error {
	switch {
	case d == nil || proto.Equal(d, g.dataset):
		return nil
	case g.dataset != nil:
		return status.Errorf(codes.FailedPrecondition,
			"this process declares %s, and the job trains on %s, as another process declared, or "+
				"the job before it was resumed; restore that data set, or begin a new job",
			described(d), described(g.dataset))
	case d.Size < 1 || d.Epochs < 1 || d.Task < 1:
		return status.Errorf(codes.InvalidArgument,
			"a data set of %s: expected a size, epochs and records per task of 1 or more", described(d))
	}
	g.dataset = d
	if err := g.m.plan(g.shards(), nil); err != nil {
		g.dataset = nil
		return status.Error(codes.InvalidArgument, err.Error())
	}
	if err := g.rewind(); err != nil {
		g.dataset = nil
		return status.Error(codes.InvalidArgument, err.Error())
	}
	g.m.Log.Info("The program trains on " + described(d))
	g.m.remember() // before any record is leased
	g.m.wake()
	return nil
}

func described(d *wire.Dataset) string {
	return fmt.Sprintf("%d records, epochs=%d, shuffle=%v, seed=%d, %d records per task", d.Size,
		d.Epochs, d.Shuffle, d.Seed, d.Task)
}

// ended reports whether there are no more records.
func (g *program) ended() bool { return g.dataset != nil && g.m.queue.TrainingDone() }

// source makes a world begin with the newest state that a process has read from the program's own
// checkpoint, if no process has one in memory.
func (g *program) source(w rendezvous.World) rendezvous.World {
	// the state that the queue was set back to may be lost
	lost := g.rewound && !g.m.ring.custody.Shared()
	g.loaded, g.behind, g.rewound, g.had = false, false, false, nil
	// the state may have been read after a world of this life had begun without training
	if len(w.Sources) > 0 {
		trained := g.m.ring.seats[w.Members[w.Sources[0]].Worker].arrival.Version > 0
		g.behind = g.dataset != nil && (lost || g.m.queue.Stats().Done == 0 && trained)
		return w
	}
	newest := int64(0)
	for rank, m := range w.Members {
		if a := g.m.ring.seats[m.Worker].arrival; a.Round >= 0 && a.Version > newest {
			w.Sources, newest, g.loaded = []int{rank}, a.Version, true
		}
	}
	return w
}

// begins sets the training back to the state that a world begins with, if a process has read it.
func (g *program) begins(had ledger.Ledger, version int64) error {
	if !g.loaded && !g.behind {
		return nil
	}
	before := g.m.queue.Stats().Done
	g.had, g.rewound = &had, true
	if err := g.rewind(); err != nil {
		return err
	}
	g.m.resumed = g.m.queue.Stats().Done
	if g.m.resumed > 0 || g.dataset == nil {
		g.m.Log.Info("The program goes on from the newest state that a process has kept or read",
			"version", version, "records", g.m.resumed, "before", before)
	}
	if g.loaded {
		g.found(version, g.m.resumed)
	}
	return nil
}

// rewind makes the queue continue after the records in the program's checkpoint, as soon as there
// is a data set.
func (g *program) rewind() error {
	if g.had == nil || g.dataset == nil {
		return nil
	}
	if err := g.m.queue.Rewind(g.had); err != nil {
		return fmt.Errorf("the program's checkpoint is not of this data set, %s: %w", described(g.dataset), err)
	}
	g.had = nil
	return nil
}

// arrives handles what a worker reports of its processes in the world that it comes from. It
// returns true if that was the end of the program: a worker that is recalled for a newcomer may
// arrive after its processes have ended.
func (g *program) arrives(a *wire.Arrival) (ended bool) {
	world, _ := g.m.ring.meeting.World()
	if a.Formation == 0 || a.Formation != world.Formation {
		return false
	}
	if a.Finished {
		g.finish(int(a.Worker), a.Formation)
	}
	if g.came != a.Formation {
		g.came, g.failed, g.written = a.Formation, nil, 0
		clear(g.arrived)
		clear(g.output)
	}
	g.output[int(a.Worker)], g.written = a.Output, max(g.written, a.CheckpointUnixMs)
	g.arrived[int(a.Worker)] = true
	for _, f := range a.Failures {
		g.failed = append(g.failed, failure{f, a.Worker})
		g.m.Log.Warn("A process of the program failed", "worker", a.Worker, "rank", f.Rank, "pid",
			f.Pid, "reason", reason(f))
	}
	return g.done()
}

// ran returns how long the processes of the last world have run, -1 if this master does not know
// it.
func (g *program) ran() time.Duration {
	if g.starts.IsZero() {
		return -1
	}
	return g.m.ring.now().Sub(g.starts)
}

// trace returns what the processes of a world have left: a digest of what they wrote, and the time
// of the newest checkpoint file.
func (g *program) trace(w rendezvous.World) manner {
	var output []string
	for _, m := range w.Members {
		output = append(output, g.output[m.Worker])
	}
	sum := sha256.Sum256([]byte(strings.Join(output, "\n")))
	return manner{Output: hex.EncodeToString(sum[:8]), Checkpoint: g.written}
}

// gotOn is how long the processes of a world that lacks workers have to run until what fails them
// is not for want of these workers.
const gotOn = 5 * time.Minute

// lacked returns how many workers a world lacked that are on their way. It is 0 if the world has
// got on without them.
func (g *program) lacked(w rendezvous.World) int {
	if g.completed(w) || g.ran() >= gotOn {
		return 0
	}
	whole := g.whole
	if whole < 0 {
		whole = len(w.Members)
	}
	return max(0, g.m.ring.wanted()-whole)
}

// formed notes how many members of a new world bring all their processes.
func (g *program) formed(members []*wire.Member) {
	each, err := strconv.Atoi(g.m.Job.Program.Processes)
	if err != nil { // each worker has its own number
		each = 1
	}
	g.moved = g.m.ring.now()
	g.whole = 0
	for _, m := range members {
		if m.Crew == nil || int(m.Crew.Processes) >= each {
			g.whole++
		}
	}
}

const (
	// briefly is how soon after its start the processes of a world fail if they have got nowhere.
	briefly = 30 * time.Second
	// longestPause is the longest pause before processes start again.
	longestPause = time.Minute
)

// completed reports whether the processes of a world completed a round, which is known of those
// that keep their state.
func (g *program) completed(w rendezvous.World) bool { return g.rounds >= w.Formation }

// advanced notes the newest formation in which processes of a worker have completed a round.
func (g *program) advanced(rounds int64) { g.rounds = max(g.rounds, rounds) }

// lasted reports whether the processes of a world got on: they completed a round, or they did not
// fail soon.
func (g *program) lasted(w rendezvous.World) bool {
	return g.completed(w) || g.m.ring.now().Sub(g.starts) >= briefly
}

// note counts a world in which processes have failed if it was a brief one, and sets when those of
// the next one start. If both worlds lack workers that are on their way, they start when these are
// there, or after --gather_timeout: they would fail again.
func (g *program) note(before, next rendezvous.World, lacked int) {
	pause, lasted := time.Duration(0), g.lasted(before)
	if !lasted {
		g.brief++
		pause = pauseAfter(g.brief)
	}
	g.lacks = 0
	if missing, wait := g.m.ring.wanted()-len(next.Members),
		g.m.Job.Program.Gather.Duration; lacked > 0 && missing > 0 && len(next.Sources) == 0 && wait > 0 {
		g.lacks, pause, lasted = missing, max(pause, wait), false
	}
	if !lasted {
		g.starts = g.m.ring.now().Add(pause)
	}
}

// resume ends a pause in which workers were waited for, as a world with them follows.
func (g *program) resume(next rendezvous.World) {
	if g.lacks > 0 && g.m.ring.wanted() <= len(next.Members) {
		g.lacks, g.starts = 0, g.m.ring.now()
	}
}

// pauseAfter returns how long processes wait before they start, after a number of brief worlds in a
// row: not at all after four of them, 1 s after the fifth, and then twice as long each time, up to
// longestPause.
func pauseAfter(brief int) time.Duration {
	if brief < 5 {
		return 0
	}
	return min(time.Second<<min(brief-5, 10), longestPause)
}

// goesOn returns what follows from the end of a process, as text: processes that have kept their
// state go on with the next world.
func (g *program) goesOn(next rendezvous.World) string {
	text := "the program starts again"
	if len(next.Sources) > 0 {
		text = "the others go on, it is started again"
	}
	if wait := g.starts.Sub(g.m.ring.now()); wait > 0 && g.lacks > 0 {
		return fmt.Sprintf("%s when they are there, or in %v", text, wait.Round(time.Second))
	}
	if wait := pauseAfter(g.brief); wait > 0 {
		text += fmt.Sprintf(" in %v, after %d failures in a row within %v of the start", wait, g.brief, briefly)
	}
	return text
}

// paced returns how long the processes of a new world wait before they start, and notes when they
// do.
func (g *program) paced() time.Duration {
	now := g.m.ring.now()
	if g.starts.Before(now) {
		g.starts = now
	}
	return g.starts.Sub(now)
}

// keptFailure is the largest length of a failure's text in bytes, as it is kept in the record.
const keptFailure = 500

// reportFailure puts a failure, and what follows from it, into the status.
func (g *program) reportFailure(f failure, then string) {
	why := reason(f.Failure)
	g.failures++
	g.last = fmt.Sprintf("rank %d of worker-%d (pid %d): %s%s", f.Rank, f.worker, f.Pid,
		strings.ToValidUTF8(why[:min(len(why), keptFailure)], ""), then)
	g.m.happen(ProgramFailed{g.last})
}

// times returns how often the program was restarted, as text.
func (g *program) times() string {
	switch most := g.m.Job.Program.MaxRestarts; most {
	case 0:
		return ""
	default:
		return fmt.Sprintf(" %d times, --max_restarts=%d", g.restarts, most)
	}
}

// reason returns in one line why a process failed.
func reason(f *wire.Failure) string {
	text := strings.Join(strings.Fields(f.Message), " ")
	if text == "" {
		text = fmt.Sprintf("exit code %d", f.Code)
		if f.Memory {
			text = "killed by the system: out of memory"
		} else if f.Signal != 0 {
			text = "killed by " + cmp.Or(unix.SignalName(syscall.Signal(f.Signal)), fmt.Sprintf("signal %d", f.Signal))
		}
	} else if f.Code != 0 {
		text += fmt.Sprintf(" (exit code %d)", f.Code)
	}
	return text
}

// finish notes that all processes of a worker have ended with 0 in a formation; in formation 0 none
// has.
func (g *program) finish(worker int, formation int64) {
	r := g.m.ring
	if formation == 0 || r.meeting.Finished(worker) {
		return
	}
	r.perform(r.meeting.Finish(worker, formation, r.now()))
	// the next master is to know it, even if the worker has ended
	g.m.record()
}

// done reports whether all processes of the world have ended with 0.
func (g *program) done() bool { return g.m.ring.meeting.Over() }

// recollect ends the questions of a restored master when all processes have ended with 0, and none
// is left that can say which records are in the model: it takes the word of the previous master for
// it that these are all.
func (g *program) recollect() {
	if g.dataset != nil && g.m.former.Done >= g.m.queue.Stats().Total {
		var all ledger.Ledger
		all.Settle(int(g.dataset.Epochs))
		if err := g.m.restoreQueue(&all); err != nil {
			g.m.Log.Warn("The record of the previous master does not tell which records are in the model", "error", err)
		}
	}
	g.m.gathered("all processes have ended")
}

// advance opens the next epoch when this one is settled, and ends the job when all processes have
// ended with 0.
func (g *program) advance(now time.Time) {
	m := g.m
	if world, ok := m.ring.meeting.World(); ok && len(world.Members) > 0 && m.state == job.Pending {
		m.state = job.Running
	}
	for g.dataset != nil && !m.queue.TrainingDone() && m.queue.Settled() {
		m.Log.Info("Epoch finished", "epoch", m.queue.Stats().Epoch, "records", m.queue.Stats().EpochDone)
		m.happen(EpochFinished{Epoch: m.queue.Stats().Epoch, Records: m.queue.Stats().EpochDone})
		m.queue.NextEpoch()
		m.wake()
	}
	if !g.done() {
		return
	}
	if stats := m.queue.Stats(); g.dataset != nil && stats.Done < stats.Total {
		m.Log.Warn("The program has ended before its records did", "done", stats.Done, "of", stats.Total)
	}
	m.end(job.Succeeded, nil, now)
}

// describe adds the program to the status.
func (g *program) describe(s *wire.JobStatus) {
	s.Restarts, s.MaxRestarts = int32(g.restarts), int32(g.m.Job.Program.MaxRestarts)
	s.Failures, s.Failure = int32(g.failures), g.last
	s.Program = g.m.Job.Title()
	s.Saved, s.Unsaved = g.saved, g.unsaved
	if g.repeated {
		s.ExitCode = exitSame
	}
	switch wait := g.starts.Sub(g.m.ring.now()); {
	case g.m.over || g.m.going != 0:
	case wait <= 0:
		s.Waiting = cmp.Or(s.Waiting, g.stands())
	case g.lacks > 0:
		s.Waiting = fmt.Sprintf("waiting for %d of %d workers, for at most %v more: the program "+
			"failed in a world without them", g.lacks, g.m.ring.wanted(), wait.Round(time.Second))
	default:
		s.Waiting = fmt.Sprintf("its processes wait %v before they start: %d times in a row they "+
			"failed within %v", pauseAfter(g.brief), g.brief, briefly)
	}
}
