package trainer_test

import (
	"bytes"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/train/mesh"
	"github.com/elasticdl/elasticdl/trainer/train/worker"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// TestSimulationRing is TestSimulation with a ring of workers and no servers; its flags are the
// same.
func TestSimulationRing(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+*seeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			simulate(t, seed, newRingSimulation(seed, t.TempDir()))
		})
	}
}

// newRingSimulation draws a job of a ring and its faults.
func newRingSimulation(seed uint64, output string) *simulation {
	r := rand.New(rand.NewPCG(seed, 3))
	j := newJob(r, seed, output)
	j.Strategy = job.AllReduce
	j.NumPS, j.NumWorkers = 0, 1+r.IntN(6)
	j.MinWorkers = r.IntN(1 + min(j.NumWorkers, 3))
	if r.IntN(2) == 0 {
		j.MaxWorkers = j.NumWorkers + r.IntN(3)
	}
	if r.IntN(3) == 0 {
		j.GlobalBatchSize = j.MinibatchSize + r.IntN(6*j.MinibatchSize)
	}
	j.EvaluationSteps = r.IntN(3) * 5
	j.HeartbeatTimeout.Duration = time.Duration(1+r.IntN(3)) * time.Second
	s := newSimulationOf(r, j)
	s.homes = r.IntN(2) == 0
	s.shape = shape{parts: 1, columns: 1, records: s.training.total * int64(j.NumEpochs), ring: true}
	if r.IntN(8) == 0 {
		s.shape.ballast = 20_000 // sums by halving and doubling
	}
	s.ring = newRingWatch(s)
	s.draw(r, inRing)
	s.drawCheckpoints(seed)
	s.drawMasters(seed, inRing)
	s.drawQueue(seed)
	return s
}

// member makes a worker one of the ring, and answers with its end.
func (s *simulation) member(h *host, p master.Pod, c *worker.Config, e *engine) (end func()) {
	e.began = func(b *zoo.Batch) { s.ring.step(h.name, b, e.noise) }
	c.Initial, c.Open = func() ([]float32, error) { return e.initial(), nil }, s.disk.open(h)
	c.OnUpdate = func(world, version int64) {
		s.note(func() { s.ring.update(h.name, e, mark{world, version}) })
		s.spring(update, h.name)
	}
	c.Address = h.name + ":1"
	if home := fmt.Sprintf("home-%d:1", p.Slot); s.homes && !s.network.occupied(home) {
		c.Address = home
	}
	c.Peers = mesh.Listen(mesh.Config{
		Listener: s.network.listen(h, c.Address), Dial: s.network.dial(h), Log: s.log(h.name),
		Silence: s.job.HeartbeatTimeout.Duration,
		Self:    self(p.ID, p.Incarnation).Header, Credential: self(p.ID, p.Incarnation).Credential(),
	})
	return func() { c.Peers.Close() }
}

// ringWatch sees the members of a ring train.
type ringWatch struct {
	*simulation
	// pods that left on their own before the job's end
	left map[string]error
	// generations with which a model began
	models []int64
	// worlds
	formed int
	// of the last one, but for those whose end was ordered or reported since
	members map[string]bool
	// that a member was in a world
	first map[string]time.Time
	// those of them who had the model that it begins with
	holders map[string]bool
	// the training is finished
	trained bool
	// the model was updated since it began
	moved bool
	// what the next model begins with; nil: the initial values
	began *trace
	// generation of the last world
	world int64
	// and it has made an update
	works bool
	// it is in no record that the present master has: what its members have is lost
	unwritten bool
	// nothing happens that a world could be formed for
	stands bool
	// updates while no master was there
	bridged int
	marks   map[mark]trace
	// of a minibatch, by its first record
	noise map[int32]uint64
	// how often, by record
	computed map[int32]int
}

// mark is an update as a world made it, by its generation. trace is the record that it left.
type mark struct{ world, version int64 }

type trace struct {
	print   uint32
	applied int64 // records, since the model began
}

func newRingWatch(s *simulation) *ringWatch {
	return &ringWatch{
		simulation: s, left: make(map[string]error),
		first: make(map[string]time.Time), marks: make(map[mark]trace), noise: make(map[int32]uint64),
		computed: make(map[int32]int),
	}
}

// leave hears that a worker leaves on its own.
func (w *ringWatch) leave(name string, err error) {
	w.note(func() {
		if !w.ending {
			w.left[name] = err
		}
	})
}

// step hears of each step. A minibatch that is made again is made with the same noise.
func (w *ringWatch) step(name string, b *zoo.Batch, noise uint64) {
	w.note(func() {
		first := b.Labels[0]
		if before, ok := w.noise[first]; ok && before != noise {
			w.complain("%s computes the minibatch from record %d with other noise than before", name, first)
		}
		w.noise[first] = noise
		for _, label := range b.Labels {
			w.computed[label]++
		}
	})
}

// hear takes an event of the master's. The mutex is held.
func (w *ringWatch) hear(e master.Event) {
	switch e := e.(type) {
	case master.WorldFormed:
		if len(e.World.Sources) == 0 {
			w.models, w.moved = append(w.models, e.World.Generation), false
			if w.began != nil {
				w.marks[mark{e.World.Generation, w.base}] = *w.began
			}
		}
		w.form(e.World)
	case master.MasterReplaced:
		w.unwritten = !bytes.Contains(w.record, fmt.Appendf(nil, `"formation":%d,`, w.world))
	case master.TrainingFinished:
		w.trained = true
	case master.TrainingRestarted:
		w.bereaved(e.Reason)
	case master.Resumed:
		w.began = w.atRest(e.Number)
	case master.RolledBack:
		w.bereaved(e.Reason)
		w.began = w.atRest(e.Checkpoint)
	case master.PodEnded:
		w.lose(e.ID)
	case master.PodUnwanted:
		w.lose(e.ID)
		if e.Reason == "scaled down" || w.queue != nil && e.Reason == "the job is over" {
			w.hit[e.ID.String()] = true
		}
	case master.PodReplaced:
		w.lose(e.ID)
		// those that came while the master was cut off could not be heard either
		if !w.hit[e.ID.String()] && time.Now().After(w.offUntil) {
			w.complain("%v is replaced, and nothing had happened to it: %v", e.ID, e.Reason)
		}
	}
}

// forget drops the workers and worlds of a lost master. The mutex is held.
func (w *ringWatch) forget() {
	w.trained, w.began, w.models = false, nil, nil
	w.members, w.holders, w.first, w.marks = nil, nil, make(map[string]time.Time), make(map[mark]trace)
}

// bereaved hears that the model is lost. The mutex is held. A master may be lost before a world
// hears of itself: then nobody has the model that it was to begin with.
func (w *ringWatch) bereaved(reason string) {
	if len(w.holders) > 0 && w.moved && !w.damaged && !w.unwritten {
		w.complain("the training returns (%s), and %v live who had its model", reason,
			slices.Collect(maps.Keys(w.holders)))
	}
	w.trained, w.moved, w.began = false, false, nil
}

// atRest returns the content of a checkpoint, nil if it cannot be read: then nobody begins with it.
func (w *ringWatch) atRest(number int64) *trace {
	dir := w.disk.own()
	c, err := readNumber(dir, number)
	if err != nil {
		return nil
	}
	values := make([]float32, w.shape.Layout().Len())
	if err := dir.Restore(c, checkpoint.Part{Values: values}); err != nil {
		return nil
	}
	return &trace{fingerprint(values), c.Records}
}

// form notes who is in a new world, and who of them has the model. The mutex is held, as in lose.
func (w *ringWatch) form(world rendezvous.World) {
	if w.formed++; w.stands {
		w.complain("%+v is formed, and nothing has happened but that the master was killed", world)
	}
	w.world, w.works, w.unwritten = world.Generation, false, false
	w.members, w.holders = make(map[string]bool), make(map[string]bool)
	for rank, m := range world.Members {
		w.members[m.String()] = true
		if w.first[m.String()].IsZero() {
			w.first[m.String()] = time.Now()
		}
		if len(world.Sources) == 0 || slices.Contains(world.Sources, rank) {
			w.holders[m.String()] = true
		}
	}
}

// lose notes that a pod may take its model with it.
func (w *ringWatch) lose(id pod.ID) {
	delete(w.members, id.String())
	delete(w.holders, id.String())
}

// notice limits the delay after which a silent pod is noticed: a round that is being computed, and
// the master's pulse.
const notice = 2 * time.Second

// mute complains if a member of the world that the master cannot hear for so long is not replaced.
// One that was not heard yet has no silence: the end of its connection is noticed, after
// timing.Vanish. Nor has anybody as long as a master that follows another one has not come back: it
// may be reading checkpoints still.
func (w *ringWatch) mute(name string, d time.Duration) {
	limit := w.job.HeartbeatTimeout.Duration + notice
	var heard bool
	var lost int
	since := time.Now()
	w.note(func() {
		there := !w.returned.Before(w.lostAt) && since.Sub(w.returned) > timing.Return+2*timing.Beat
		heard, lost = there && w.members[name] && time.Since(w.first[name]) > 2*timing.Beat, w.lost
	})
	if !heard || d <= limit {
		return
	}
	time.AfterFunc(limit, func() {
		asked := w.pods.isAsked(name)
		w.note(func() {
			if w.members[name] && !w.ending && !asked && w.lost == lost && w.reign != nil &&
				w.deaf.Before(since) && w.returned.Before(since) {
				w.complain("%s was silent for %v, and it is not replaced", name, limit)
			}
		})
	})
}

// part complains if members of the world that cannot speak to each other for so long continue in it
// as if they could, and nothing else goes wrong that would keep the world from working. Of few
// workers each has something from each other in every round.
func (w *ringWatch) part(a, b string, d time.Duration) {
	const few = 5
	limit := w.job.HeartbeatTimeout.Duration + notice
	var formed, struck int
	var looks bool
	undisturbed := func() bool {
		return w.reign != nil && w.members[a] && w.members[b] && !w.trained && !w.ending &&
			w.network.undisturbed() && time.Now().After(w.garbled)
	}
	w.note(func() {
		formed, struck = w.formed, w.struck
		looks = undisturbed() && len(w.members) <= few && w.job.MinWorkers <= 1 && w.measure == 0 && w.export == 0
	})
	if !looks || d <= limit {
		return
	}
	time.AfterFunc(limit, func() {
		w.note(func() {
			if undisturbed() && w.formed == formed && w.struck == struck {
				w.complain("%s and %s could not speak to each other for %v, and their world continues", a, b, limit)
			}
		})
	})
}

// model is the number of the model that a world trains, from 1.
func (w *ringWatch) model(world int64) int {
	n := 0
	for _, first := range w.models {
		if first <= world {
			n++
		}
	}
	return n
}

// update looks at what an update left: the same on every rank, and every record in it once.
func (w *ringWatch) update(name string, e *engine, m mark) {
	// a worker that is lost may make an update of an older model
	w.moved = w.moved || w.model(m.world) == len(w.models)
	w.works = w.works || m.world == w.world
	if w.reign == nil {
		w.bridged++
	}
	t := trace{print: fingerprint(e.values)}
	for record, count := range e.counts(e.values, 0) {
		switch times := count - start; {
		case times == 0:
			continue
		case times > 1.01*rate:
			w.complain("%s, world %d, version %d: record %d is applied %.2f times", name, m.world,
				m.version, record, times/rate)
		}
		t.applied++
	}
	if off := e.share(m.version); math.Abs(off) > 1e-3 {
		w.complain("%s, world %d, version %d: the updates are not means over their records: %v", name,
			m.world, m.version, off)
	}
	if before, ok := w.marks[m]; ok && before != t {
		w.complain("%s, world %d, version %d: %+v, another rank has %+v", name, m.world, m.version, t, before)
	}
	w.marks[m] = t
	if g := int64(w.job.GlobalBatchSize); g > 0 && t.applied != m.version*g && t.applied != e.records {
		w.complain("%s, world %d, version %d: %d records are applied, not %d in each update", name,
			m.world, m.version, t.applied, g)
	}
}

// last is the state of the last world that made a version of the last model.
func (w *ringWatch) last(version int64) (t trace, ok bool) {
	world := int64(-1)
	for m, left := range w.marks {
		if m.version == version && w.model(m.world) == w.model(1<<62) && m.world > world {
			world, t, ok = m.world, left, true
		}
	}
	return t, ok
}

// checkRing asserts what must be so at the end of a ring's job.
func (s *simulation) checkRing(t *testing.T, status *wire.JobStatus) {
	w := s.ring
	for name, err := range w.left {
		if !w.hit[name] {
			t.Errorf("%s left before the end: %v", name, err)
		}
	}
	values, version := s.exported(t)
	newest, ok := w.last(version)
	if print := fingerprint(values); !ok || newest.print != print {
		t.Errorf("the model was exported as version %d with print %d, and trained to %+v", version, print, newest)
	}
	if _, further := w.last(version + 1); further {
		t.Errorf("version %d was exported, and there is a newer one", version)
	}
	if n := len(status.Evaluations); status.Version != version || n > 0 && status.Evaluations[n-1].Version != version {
		t.Errorf("version %d was exported; the status has version %d, %v", version, status.Version, status.Evaluations)
	}
	for _, e := range status.Evaluations {
		// it is of the model that the checkpoint is of
		if e.Version <= s.base {
			continue
		}
		of, _ := w.last(e.Version)
		if print := e.Metrics["print"]; print != float64(of.print) {
			t.Errorf("evaluation of version %d measured values of print %v, it has %+v", e.Version, print, of)
		}
	}
	if s.calm {
		s.checkCalm(t, status)
	}
	if s.gentle {
		s.checkGentle(t)
	}
}

// checkGentle asserts that those that leave in good order take nothing with them: at most the
// minibatch that one has computed when the others have heard already that it is the last round.
func (s *simulation) checkGentle(t *testing.T) {
	again := 0
	for _, times := range s.ring.computed {
		again += times - 1
	}
	if most := len(s.hit) * s.job.MinibatchSize; again > most {
		t.Errorf("%d records were computed again when %d workers were asked to leave", again, len(s.hit))
	}
}

// checkCalm asserts that nothing is done in vain if nothing goes wrong, and nobody asks for rounds
// that nobody needs.
func (s *simulation) checkCalm(t *testing.T, status *wire.JobStatus) {
	again := 0
	for _, times := range s.ring.computed {
		again += times - 1
	}
	if again > 0 {
		t.Errorf("%d records were computed again without a fault", again)
	}
	if s.shape.ballast > 0 || len(s.faults) > 0 || s.measure > 0 {
		// the number of writes is another: of one who measures for long the others ask whether it
		// is there
		return
	}
	n, perUpdate := s.job.NumWorkers, 1.5
	if s.job.GlobalBatchSize > 0 {
		perUpdate = 3 * math.Ceil(float64(s.job.GlobalBatchSize)/float64(n*s.job.MinibatchSize))
	}
	rounds := int(perUpdate*float64(len(s.ring.marks))) + 5*(1+len(status.Evaluations)+s.job.NumEpochs)
	each := 0 // writes in a round, of those that dialled
	for d := 1; d < n; d *= 2 {
		each += 2 * (n - d) // to gather, and to reduce
	}
	if most := rounds*each + 2*n*n; s.network.writes > most {
		t.Errorf("%d writes for %d updates, want at most %d", s.network.writes, len(s.ring.marks), most)
	}
}
