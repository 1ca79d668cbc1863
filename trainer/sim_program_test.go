package trainer_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// TestSimulationProgram is TestSimulation of jobs that run a program: the real master and agents,
// and processes that are goroutines. Every other seed has a script that uses the package, the
// others have an unmodified one. Its flags are the same.
func TestSimulationProgram(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			simulate(t, seed, newProgramSimulation(seed, t.TempDir()))
		})
	}
}

// newProgramSimulation draws a job of a program and its faults.
func newProgramSimulation(seed uint64, output string) *simulation {
	r := rand.New(rand.NewPCG(seed, 10))
	drawn := newJob(r, seed, output)
	j := job.DefaultOf(job.Run)
	j.Name, j.Output, j.Seed, j.Strategy, j.NumPS = drawn.Name, output, seed, job.AllReduce, 0
	j.NumEpochs, j.MinibatchSize = drawn.NumEpochs, drawn.MinibatchSize
	j.NumMinibatchesPerTask = drawn.NumMinibatchesPerTask
	j.TaskTimeout, j.RelaunchOnWorkerFailure = drawn.TaskTimeout, drawn.RelaunchOnWorkerFailure
	j.NumWorkers, j.Shuffle = 1+r.IntN(4), false
	j.MinWorkers = r.IntN(1 + min(j.NumWorkers, 3))
	if r.IntN(2) == 0 {
		j.MaxWorkers = j.NumWorkers + r.IntN(3)
	}
	j.HeartbeatTimeout.Duration = time.Duration(1+r.IntN(3)) * time.Second
	g := &j.Program
	g.Command, g.Processes = []string{"main.py"}, strconv.Itoa(1+r.IntN(3))
	g.RestartOnJoin = []string{job.RestartNow, job.RestartAtCheckpoint, job.RestartNever}[r.IntN(3)]
	g.Grace.Duration = time.Duration(500+r.IntN(5000)) * time.Millisecond
	g.Gather.Duration = time.Duration(r.IntN(3)*5) * time.Second
	s := newSimulationOf(r, j)
	s.program = newProgramWatch(s, r, seed%2 == 0)
	s.disk = newDisk(seed, s.network)
	s.draw(r, inProgram)
	s.drawMasters(seed, inProgram)
	s.drawQueue(seed)
	s.program.draw(r)
	return s
}

// programLimit is the virtual time within which every job of a program must end: some minutes after
// the last thing that goes wrong, whatever the processes were waiting for.
const programLimit = 15 * time.Minute

// allSaves is the greatest time that all checkpoints of a program take together.
const allSaves = 2 * time.Minute

// programWatch holds the program of a job, and the observations of its processes. The simulation's
// mutex guards its fields.
type programWatch struct {
	*simulation
	packaged bool
	// runs the script in a process, and returns its exit code
	script func(*fakeProcess) int
	// longest times that the script takes to be fetched, its libraries to be imported, it to begin,
	// and that it continues after the training
	fetch, imports, startup, tail time.Duration
	// what a checkpoint takes
	saveTime time.Duration

	// of a script that uses the package
	data    dataSet
	records int
	// of its checkpoint; "": it has none
	path string
	// rounds between two checkpoints
	every int64
	// it handles SIGTERM, and continues
	handles bool
	// number of the start at which a process ends with 0 before it uses the package; 0: none does
	quits int
	// the checkpoint, and the world that has written it; nil: none was written
	file   *packageState
	fileOf int64
	// a process has completed the training
	complete bool
	prints   map[mark]uint32

	// of an unmodified script
	plain plain
	shelf []shelved
	// step with which the program was begun last, and the newest world that began so
	resumedAt int
	resumedIn int64
	// when a checkpoint was written, in part or whole
	touched time.Time

	// of failures by its own fault
	failures int
	// how often the agent of a worker was started
	starts map[int]int
	// in the order of their pids
	living []*fakeProcess
	// processes that have exited with 0, by world and rank
	ended0 map[int64]map[int]bool
	sizes  map[int64]int
	laws
}

func newProgramWatch(s *simulation, r *rand.Rand, packaged bool) *programWatch {
	w := &programWatch{simulation: s, packaged: packaged, prints: make(map[mark]uint32),
		starts: make(map[int]int), ended0: make(map[int64]map[int]bool), sizes: make(map[int64]int),
		laws: laws{left: make(map[int64]bool)}}
	upTo := func(most time.Duration) time.Duration { return time.Duration(r.Int64N(int64(most))) }
	w.fetch, w.imports = upTo(2*time.Second), upTo(4*time.Second)
	w.startup, w.tail, w.saveTime = upTo(2*time.Second), upTo(4*time.Second), upTo(time.Second)
	if r.IntN(4) == 0 {
		w.saveTime = upTo(30 * time.Second)
	}
	if packaged {
		w.script = w.runPackaged
		w.data = dataSet{size: int(s.training.total), epochs: s.job.NumEpochs, task: int(s.job.RecordsPerTask())}
		w.records = w.data.size * w.data.epochs
		w.data.lengths = drawLengths(s.job.Seed, int64(w.data.size))
		if r.IntN(4) > 0 {
			w.path, w.every = "checkpoint.pt", int64(r.IntN(12))
			if w.every > 0 {
				rounds := w.records/s.job.MinibatchSize + 1
				w.every = max(w.every, int64(time.Duration(rounds)*w.saveTime/allSaves))
			}
		}
		w.handles = r.IntN(2) == 0
		if r.IntN(4) == 0 {
			w.quits = 1 + r.IntN(3)
		}
		return w
	}
	w.script = w.runPlain
	w.plain = plain{steps: 20 + r.IntN(100), every: 1 + r.IntN(20), save: w.saveTime, inPlace: r.IntN(2) == 0,
		saves: r.IntN(2) == 0, code: []int{0, 1, 143}[r.IntN(3)], barrier: r.IntN(2) == 0}
	if s.job.Program.RestartOnJoin == job.RestartAtCheckpoint && r.IntN(2) == 0 {
		// newcomers are ready before a save ends
		w.plain.save, w.plain.barrier = upTo(30*time.Second), true
	}
	w.plain.every = max(w.plain.every, int(time.Duration(w.plain.steps)*w.plain.save/allSaves))
	if r.IntN(2) == 0 { // it saves at the end only
		w.plain.every = w.plain.steps + 1
	}
	if s.job.Program.RestartOnJoin == job.RestartAtCheckpoint || r.IntN(2) == 0 {
		s.job.Program.Checkpoint = "*.pt"
	}
	return w
}

// drawLengths returns the lengths of shards which the script finds by reading, for some seeds; nil
// for the others. Some shards have no records.
func drawLengths(seed uint64, records int64) (lengths []int64) {
	r := rand.New(rand.NewPCG(seed, 12))
	if r.IntN(3) > 0 {
		return nil
	}
	for records > 0 {
		n := min(records, r.Int64N(1+int64(20*(1+r.IntN(4)))))
		lengths, records = append(lengths, n), records-n
	}
	return append(lengths, make([]int64, r.IntN(2))...)
}

// draw draws what goes wrong with processes, after what goes wrong with any job.
func (w *programWatch) draw(r *rand.Rand) {
	s := w.simulation
	s.export, s.delay = 0, min(s.delay, 1)
	s.job.Program.MaxRestarts = crashes
	if !w.packaged {
		s.measure = 0
	}
	if w.path != "" && r.IntN(4) == 0 {
		s.stopped = time.Duration(500+r.IntN(20_000)) * time.Millisecond
	}
	switch {
	case s.calm, s.gentle:
		w.quiet, w.steady = true, s.calm
		return
	case w.packaged && r.IntN(6) == 0:
		w.drawSteady()
		return
	case r.IntN(4) == 0: // nothing but what happens to processes
		s.faults, s.refuse, s.delay, w.quiet = nil, 0, 0, true
	}
	for _, f := range disturbances {
		if r.IntN(2) == 0 {
			s.faults = append(s.faults, f)
		}
	}
	if !w.packaged && slices.ContainsFunc(s.faults, func(f fault) bool {
		return strings.HasPrefix(f.name, "cut") && f.name != "cut the master off"
	}) {
		// its collectives fail, which nobody tells from its own failures
		s.job.Program.MaxRestarts = 1000
	}
}

func (w *programWatch) String() string {
	return fmt.Sprintf("packaged %v, data %+v, checkpoint %q every %d, plain %+v, fetch %v, imports %v, "+
		"startup %v, tail %v, save %v", w.packaged, w.data, w.path, w.every, w.plain, w.fetch, w.imports, w.startup,
		w.tail, w.saveTime)
}

// check complains if processes start while those of another world run.
func (w *programWatch) check(m *machine, position program.Position) {
	for _, p := range m.living() {
		w.note(func() {
			if !w.packaged {
				w.complain("%v runs, and processes of world %d are started", p, position.Generation)
			} else if slices.Contains(position.Locals, p.local) {
				w.complain("%v runs, and another of its local rank is started", p)
			}
		})
	}
}

// ended hears of the end of a process.
func (w *programWatch) ended(p *fakeProcess, e program.Exit) {
	w.note(func() {
		w.living = slices.DeleteFunc(w.living, func(other *fakeProcess) bool { return other == p })
		w.noteEnd(p, e.Code, e.Stopped)
		if e.Code == 0 && !e.Stopped {
			if w.ended0[p.generation] == nil {
				w.ended0[p.generation] = make(map[int]bool)
			}
			w.ended0[p.generation][p.rank] = true
			w.sizes[p.generation] = p.size
		}
	})
}

// completed hears that a process of an unmodified script has made the last step.
func (w *programWatch) completed(p *fakeProcess) {
	w.note(func() { p.trained, w.complete = true, true })
	w.spring(trainingEnd, p.host.name)
}

// takes looks at the state of a process that has begun or ended a round: all ranks have the same,
// and every record in it once. The mutex is held.
func (w *programWatch) takes(s *session) {
	for record, times := range s.Counts {
		if times > 1 {
			w.complain("%v, round %d: record %d is in the state %d times", s.process, s.Round, record, times)
		}
	}
	m := mark{s.generation, s.Round}
	print := checksum(s.Counts)
	if before, ok := w.prints[m]; ok && before != print {
		w.complain("%v, world %d, round %d: its state is not that of another rank", s.process, s.generation, s.Round)
	}
	w.prints[m] = print
}

// forget forgets the worlds of a job that was stopped. The mutex is held.
func (w *programWatch) forget() {
	w.complete, w.resumedIn, w.trainedIn, w.fileOf = false, 0, 0, 0
	w.prints, w.ended0, w.sizes = make(map[mark]uint32), make(map[int64]map[int]bool), make(map[int64]int)
}

// hearEvent takes an event of the master's. The mutex is held.
func (w *programWatch) hearEvent(e master.Event) {
	switch e := e.(type) {
	case master.WorldFormed:
		w.hearWorld(e.World)
	case master.Stuck:
		w.complain("the master suspects a program whose processes compute: %s", e.Words())
	case master.Ended:
		w.ending = true
		if e.State == job.Succeeded {
			w.checkEnd()
		}
	}
}

// checkEnd complains if a process that has to finish has not. The mutex is held.
func (w *programWatch) checkEnd() {
	if !w.complete {
		w.complain("the job has succeeded, and nobody has completed the training")
	}
	for generation, size := range w.sizes {
		if len(w.ended0[generation]) == size {
			return
		}
	}
	w.complain("the job has succeeded, and in no world all processes have ended with 0: %v of %v", w.ended0, w.sizes)
}

// checkProgram asserts what must be so at the end of a program's job.
func (s *simulation) checkProgram(t *testing.T, status *wire.JobStatus, err error) {
	w := s.program
	if err != nil {
		t.Errorf("job failed: %v", err)
	}
	if status.GetState() != "Succeeded" {
		t.Errorf("the job is %s", status.GetState())
	}
	records, done, total := int64(w.records), status.GetRecordsDone(), status.GetRecordsTotal()
	if w.packaged && !w.data.stream() && (done != records || total != records) {
		t.Errorf("%d of %d records are credited, want all of %d", done, total, records)
	}
	if w.packaged && w.data.stream() && (done != records || total != 0) {
		t.Errorf("%d of %d records are credited, want all of %d, and no total", done, total, records)
	}
	s.checkAudit(t, status)
	for _, wrong := range s.wrong {
		t.Error(wrong)
	}
	if most := w.failures; s.job.Program.MaxRestarts == crashes && int(status.GetRestarts()) > most {
		t.Errorf("%d failures are counted, and the program has failed %d times by its own fault", status.GetRestarts(),
			most)
	}
}
