package master

import (
	"cmp"
	"fmt"
	"strconv"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/elastic/verdict"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// program holds the master's knowledge of a user's program: how often it failed by its own fault,
// and what it trains on. Its workers meet as those of a ring; processes that keep their state are
// members of one, others start over with each world. The caller of each method holds the mutex.
type program struct {
	ending
	shared
	host     programHost
	ring     *ring
	work     *work
	contacts *contacts
	progress *progress
	handover *handover
	// what the ends of its processes mean for the job
	judge *verdict.Judge
	// of the state with which the last world began
	origin rendezvous.Origin
	// the queue was rewound to the state with which the last world began
	rewound bool
	// a master has answered processes of the last world that no records are left
	exhausted bool
	// records in that state; nil: there is none, or the queue knows them
	ledger *ledger.Ledger
	// checkpoints that the program has claimed
	claims []*vouched
	// all states were lost, and no process has reported yet with which state the program continues;
	// nil: no such loss
	lost *loss
	// the newest state that a process has begun with while no data set was declared; nil: none
	begun *wire.Origin
	// processes keep their state from one world to the next
	keeps bool
	// moved is the time at which a process last completed a round, or a world was formed, by the
	// master's clock; zero: not since this master started.
	moved time.Time
	// whether its processes make progress
	hang *hang
	// workers that were asked to leave; one may have ended before the others have left its world
	leavers map[int]bool
}

// programHost has the requests of a program to the master. The caller of each method holds the
// mutex.
type programHost interface {
	// writes the state for the next master; remember returns when it is written
	record() (number int64, ok bool)
	remember() error
	end(state job.State, err error, now time.Time)
}

func newProgram(m *master) *program {
	return &program{shared: m.shared, host: m, work: m.work, contacts: m.contacts, progress: m.progress,
		handover: m.handover, judge: verdict.New(verdictPolicy(m.Job)), leavers: make(map[int]bool)}
}

// verdictPolicy returns how many failures of its program a job survives.
func verdictPolicy(j *job.Job) verdict.Policy {
	return verdict.Policy{MaxRestarts: j.Program.MaxRestarts, Gather: j.Program.Gather.Duration}
}

// savedProgram is the part of a record about a program.
type savedProgram struct {
	verdict.Snapshot
	Dataset *dataset `json:"dataset,omitempty"`
	Lost    *loss    `json:"lost,omitempty"`
	// of the state that the last world began with, while no data set is declared
	Ledger *ledger.Ledger `json:"ledger,omitempty"`
	Begun  *savedOrigin   `json:"begun,omitempty"`

	Claims []*vouched `json:"claims,omitempty"`
}

// dataset is a [wire.Dataset] in a record.
type dataset struct {
	Size    int64  `json:"size"`
	Epochs  int32  `json:"epochs"`
	Shuffle bool   `json:"shuffle,omitempty"`
	Seed    uint64 `json:"seed,omitempty"`
	Task    int64  `json:"task"`
	Stream  bool   `json:"stream,omitempty"`
	Digest  uint64 `json:"digest,omitempty"`
}

// savedOrigin is a [wire.Origin] in a record.
type savedOrigin struct {
	Generation int64  `json:"generation"`
	Version    int64  `json:"version,omitempty"`
	Ledger     []byte `json:"ledger,omitempty"`
}

func (g *program) save() *savedProgram {
	s := &savedProgram{Snapshot: g.judge.Snapshot(), Lost: g.lost, Ledger: g.ledger}
	if o := g.begun; o != nil {
		s.Begun = &savedOrigin{Generation: o.Generation, Version: o.Version, Ledger: o.Ledger}
	}
	for _, v := range g.claims {
		c := *v
		s.Claims = append(s.Claims, &c)
	}
	if d := g.work.dataset; d != nil {
		s.Dataset = &dataset{Size: d.Size, Epochs: d.Epochs, Shuffle: d.Shuffle, Seed: d.Seed, Task: d.Task,
			Stream: d.Stream, Digest: d.Digest}
	}
	return s
}

// restore sets what the previous master has left, before the queue is restored.
func (g *program) restore(s *savedProgram) (err error) {
	if s == nil {
		return nil
	}
	if g.judge, err = verdict.Restore(verdictPolicy(g.Job), s.Snapshot); err != nil {
		return err
	}
	g.lost, g.claims, g.ledger = s.Lost, s.Claims, s.Ledger
	if o := s.Begun; o != nil {
		g.begun = &wire.Origin{Generation: o.Generation, Version: o.Version, Ledger: o.Ledger}
	}
	if d := s.Dataset; d != nil {
		return g.work.declare(&wire.Dataset{Size: d.Size, Epochs: d.Epochs, Shuffle: d.Shuffle, Seed: d.Seed,
			Task: d.Task, Stream: d.Stream, Digest: d.Digest})
	}
	return nil
}

// declare handles a process's declaration of the data set. All processes declare the same.
func (g *program) declare(d *wire.Dataset) error {
	switch {
	case d == nil || proto.Equal(d, g.work.dataset):
		return nil
	case g.work.dataset != nil:
		return status.Errorf(codes.FailedPrecondition,
			"this process declares %s, and the job trains on %s, as another process declared, or "+
				"the job before it was resumed; restore that data set, or begin a new job",
			described(d), described(g.work.dataset))
	case d.Size < 1 || d.Epochs < 1 || d.Task < 1:
		return status.Errorf(codes.InvalidArgument,
			"a data set of %s: expected a size, epochs and records per task of 1 or more", described(d))
	}
	if err := g.work.declare(d); err != nil {
		g.work.dataset = nil
		return status.Error(codes.InvalidArgument, err.Error())
	}
	read := g.ledger != nil
	if err := g.rewind(); err != nil {
		g.work.dataset = nil
		return status.Error(codes.InvalidArgument, err.Error())
	}
	g.continues(read)
	g.Log.Info("The program trains on " + described(d))
	g.host.remember() // before any record is leased
	g.waiters.wake()
	return nil
}

func described(d *wire.Dataset) string {
	if d.Stream {
		return fmt.Sprintf("%d shards of unknown length (their names have the digest %08x), epochs=%d, shuffle=%v, "+
			"seed=%d", d.Size, d.Digest, d.Epochs, d.Shuffle, d.Seed)
	}
	order := ""
	if d.Digest != 0 {
		order = fmt.Sprintf(", an order with the digest %08x", d.Digest)
	}
	return fmt.Sprintf("%d records, epochs=%d, shuffle=%v, seed=%d, %d records per task%s", d.Size,
		d.Epochs, d.Shuffle, d.Seed, d.Task, order)
}

// ended reports whether there are no more records.
func (g *program) ended() bool { return g.work.dataset != nil && g.work.queue.TrainingDone() }

// source makes a world begin with the newest state that a process has read from the program's own
// checkpoint, if no process has one in memory.
func (g *program) source(w rendezvous.World) rendezvous.World {
	versions := make([]int64, len(w.Members))
	for rank, m := range w.Members {
		if a := g.ring.participants[m.Worker].arrival; a.GetRound() >= 0 {
			versions[rank] = a.GetVersion()
		}
	}
	counted := rendezvous.Counted{Declared: g.work.dataset != nil, Records: g.work.queue.Stats().Done,
		// the state that the queue was set back to may be lost
		Lost: g.rewound && !g.ring.custody.Shared()}
	g.rewound, g.ledger = false, nil
	w, g.origin = rendezvous.Begin(w, versions, counted)
	return w
}

// begins sets the training back to the state that a world begins with, if a process has read it.
func (g *program) begins(applied ledger.Ledger, version int64) error {
	if g.origin == rendezvous.Kept {
		return nil
	}
	before := g.work.queue.Stats().Done
	g.ledger, g.rewound = &applied, true
	if err := g.rewind(); err != nil {
		return err
	}
	records := g.work.queue.Stats().Done
	g.progress.resumedWith(records)
	if records > 0 || g.work.dataset == nil {
		g.Log.Info("The program continues from the newest state that a process has kept or read",
			"version", version, "records", records, "before", before)
	}
	if g.origin == rendezvous.Read {
		g.found(version, records, g.work.book.Finished())
	}
	return nil
}

// rewind makes the queue continue after the records in the program's checkpoint, as soon as there
// is a data set.
func (g *program) rewind() error {
	if g.ledger == nil || g.work.dataset == nil {
		return nil
	}
	before, epochs := g.work.queue.Stats().Done, g.work.book.Finished()
	if err := g.work.rewind(g.ledger); err != nil {
		return fmt.Errorf("the program's checkpoint is not of this data set, %s: %w", described(g.work.dataset), err)
	}
	g.ledger = nil
	g.sets(before, epochs)
	return nil
}

// arrives handles what a worker reports of its processes in the world that it comes from. It
// returns true if that was the end of the program: a worker that is recalled for a newcomer may
// arrive after its processes have ended.
func (g *program) arrives(a *wire.Arrival) (ended bool) {
	world, _ := g.ring.meeting.World()
	if a.Generation == 0 || a.Generation != world.Generation {
		return false
	}
	if a.Finished {
		g.finish(int(a.Worker), a.Generation, a.Exhausted)
	}
	// it may arrive before its heartbeat reports that
	if a.Leaves {
		g.leavers[int(a.Worker)] = true
	}
	r := verdict.Report{Worker: int(a.Worker), Generation: a.Generation, Output: a.Output,
		Checkpoint: a.CheckpointUnixMs}
	for _, f := range a.Failures {
		r.Failures = append(r.Failures, failure(int(a.Worker), f))
		g.Log.Warn("A process of the program failed", "worker", a.Worker, "rank", f.Rank, "pid",
			f.Pid, "reason", reason(f))
	}
	g.judge.Hear(r)
	return g.done()
}

// formed notes that a world is formed, and returns how long its processes wait before they start.
func (g *program) formed(members []*wire.Member) time.Duration {
	each, err := strconv.Atoi(g.Job.Program.Processes)
	if err != nil { // each worker has its own number
		each = 1
	}
	now := g.ring.now()
	g.moved, g.exhausted = now, false
	whole := 0
	for _, m := range members {
		if m.Crew == nil || int(m.Crew.Processes) >= each {
			whole++
		}
	}
	return g.judge.Start(whole, now)
}

// ranks returns the generation of the newest world, and the number of processes that are left in
// it.
func (g *program) ranks() (generation int64, n int) {
	world, _ := g.ring.meeting.World()
	for _, m := range g.ring.meeting.Remaining() {
		// of a member that worked when this master started nothing else is known
		brought := 1
		if p := g.ring.participants[m.Worker]; p != nil && p.arrival.GetCrew() != nil {
			brought = int(p.arrival.Crew.Processes)
		}
		n += brought
	}
	return world.Generation, n
}

// finish notes that all processes of a worker have ended with 0 in a generation; in generation 0
// none has. exhausted states that a master has answered them that no records are left.
func (g *program) finish(worker int, generation int64, exhausted bool) {
	r := g.ring
	if generation == 0 || r.meeting.Finished(worker) {
		return
	}
	if w, ok := r.meeting.World(); ok && w.Generation == generation {
		g.exhausted = g.exhausted || exhausted
	}
	r.perform(r.meeting.Finish(worker, generation, r.now()))
	// the next master is to know it, even if the worker has ended
	g.host.record()
}

// done reports whether all processes of the world have ended with 0.
func (g *program) done() bool { return g.ring.meeting.Over() }

// recollect ends the questions of a restored master when all processes have ended with 0, and none
// is left that can report which records are in the model. All are if the record of the previous
// master shows it, or if a master has answered the processes that no records are left.
func (g *program) recollect() {
	if g.work.dataset != nil && (g.exhausted || g.recorded()) {
		var all ledger.Ledger
		// of shards of unknown length there are as many records as the record shows
		counted := int64(0)
		if g.work.dataset.Stream {
			counted = g.work.book.Records()
		}
		all.SettleCounted(int(g.work.dataset.Epochs), counted)
		if err := g.handover.restoreQueue(&all); err != nil {
			g.Log.Warn("The record of the previous master does not tell which records are in the model", "error", err)
		}
	}
	g.handover.gathered("all processes have ended")
}

// recorded reports whether the record of the previous master has all records of the data set.
func (g *program) recorded() bool {
	if g.work.dataset.Stream {
		return g.work.book.Finished() >= int(g.work.dataset.Epochs)
	}
	return g.handover.record.Done >= g.work.queue.Stats().Total
}

// advance opens the next epoch when this one is settled, and ends the job when all processes have
// ended with 0.
func (g *program) advance(now time.Time) {
	if world, ok := g.ring.meeting.World(); ok && len(world.Members) > 0 {
		g.stage.Work()
	}
	for g.work.dataset != nil && !g.work.queue.TrainingDone() && g.work.queue.Settled() {
		g.work.nextEpoch()
	}
	if !g.done() {
		return
	}
	if stats := g.work.queue.Stats(); g.remains() {
		g.Log.Warn("The program has ended before its records did", "done", stats.Done, "of", stats.Total)
	}
	g.host.end(job.Succeeded, nil, now)
}

// remains reports whether not all records of the data set are credited.
func (g *program) remains() bool {
	if g.work.dataset.GetStream() {
		return !g.work.queue.TrainingDone()
	}
	stats := g.work.queue.Stats()
	return g.work.dataset != nil && stats.Done < stats.Total
}

// describe adds the program to the status.
func (g *program) describe(s *wire.JobStatus) {
	failures, last := g.judge.Last()
	s.Restarts, s.MaxRestarts = int32(g.judge.Counted()), int32(g.Job.Program.MaxRestarts)
	s.Failures, s.Failure = int32(failures), last
	s.Program = g.Job.Title()
	s.Saved, s.Unsaved = g.saved, g.stage.Unsaved()
	if g.judge.Repeated() {
		s.ExitCode = exitSame
	}
	if n, _, _ := g.stage.Closing(); n == 0 && !g.stage.Over() {
		s.Waiting = cmp.Or(g.judge.Waiting(g.ring.wanted(), g.ring.now()), s.Waiting)
		if g.hang.describe(s); s.Stuck == "" && s.Waiting == "" {
			s.Waiting = g.stands()
		}
	}
}
