package trainer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// masters is the masters of a job, one after the other, and what they leave for the next one. The
// simulation's mutex guards it.
type masters struct {
	reign  *reign // the present one, nil while there is none
	number int    // of the last
	record []byte // of the last
	// of the job before it was resumed
	past journal.Snapshot
	deaf time.Time // until then nothing can be written
	// no record that has this text can be written; "": each can
	unwritable string
	away       time.Duration // what passes until the next one
	lost       int           // that many were
	lostAt     time.Time     // the last
	// the last was killed, and none has followed
	killed bool
	zombie sync.WaitGroup
}

// reign is one master: its view of what outlives it.
type reign struct {
	*simulation
	number int
	host   *host
	dead   chan struct{} // closed when the next one is to follow
	events chan pod.Event
}

// errDead is the answer to a master that is not the present one.
var errDead = errors.New("this master is not the job's any more")

// is reports whether the reign is the present one.
func (r *reign) is() (present bool) {
	r.note(func() { present = r.reign == r })
	return present
}

// Write implements master.Memory.
func (r *reign) Write(_ context.Context, record []byte) (err error) {
	r.note(func() {
		switch {
		case r.reign != r:
			err = master.ErrSuperseded
		case time.Now().Before(r.deaf), r.unwritable != "" && bytes.Contains(record, []byte(r.unwritable)):
			err = errors.New("the API server does not answer")
		default:
			r.record = record
		}
	})
	return err
}

func (r *reign) Create(ctx context.Context, p master.Pod) error {
	if !r.is() {
		return errDead
	}
	return r.pods.Create(ctx, p)
}

func (r *reign) Delete(ctx context.Context, id pod.ID) error {
	if !r.is() {
		return errDead
	}
	return r.pods.Delete(ctx, id)
}

// Adopt implements master.Pods. Later changes of the pods are reported to the present master only.
func (r *reign) Adopt(context.Context) ([]pod.Event, error) {
	if !r.is() {
		return r.pods.list(), nil
	}
	return r.pods.adopt(r.events), nil
}

func (r *reign) Events() <-chan pod.Event { return r.events }

// adopt lists the pods that live, and sends their events to the listener from then on.
func (p *pods) adopt(events chan pod.Event) []pod.Event {
	p.mu.Lock()
	p.events = events
	p.mu.Unlock()
	return p.list()
}

// list lists the pods that live.
func (p *pods) list() (all []pod.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, it := range p.live {
		phase := pod.Pending
		switch {
		case it.asked:
			phase = pod.Leaving
		case it.runs:
			phase = pod.Running
		}
		all = append(all, it.event(phase))
	}
	return all
}

// dethrone has the present master be followed by another, after a while. Whether it is killed, or
// continues for as long as it does not find out, it can write and create nothing any more.
func (s *simulation) dethrone(kill bool, after time.Duration) bool {
	var r *reign
	s.note(func() {
		if r = s.reign; r != nil && !s.ending {
			s.reign, s.away = nil, after
			s.lost, s.lostAt, s.killed = s.lost+1, time.Now(), kill
		} else {
			r = nil
		}
	})
	if r == nil {
		return false
	}
	s.pods.adopt(make(chan pod.Event, 4096)) // nobody hears
	if kill {
		s.network.kill(r.host)
	}
	close(r.dead)
	return true
}

// reigns runs masters until the job has ended, or ctx.
func (s *simulation) reigns(ctx context.Context, resume bool) (*wire.JobStatus, error) {
	for {
		r := &reign{simulation: s, dead: make(chan struct{}), events: make(chan pod.Event, 4096)}
		var former []byte
		s.note(func() {
			s.number++
			r.number, former, s.reign, s.killed = s.number, s.record, r, false
			r.host = &host{name: "master", incarnation: s.number}
		})
		if len(former) == 0 {
			s.pods.adopt(r.events)
		}
		var status *wire.JobStatus
		var err error
		ended := make(chan struct{})
		s.zombie.Go(func() {
			defer close(ended)
			status, err = r.run(ctx, former, resume)
		})
		select {
		case <-ended:
			if errors.Is(err, master.ErrSuperseded) {
				break
			}
			if yielded, ok := errors.AsType[*master.Yielded](err); ok && r.is() {
				s.yields(ctx, yielded)
				continue
			}
			return status, err
		case <-r.dead:
		}
		<-r.dead
		var away time.Duration
		s.note(func() { away = s.away })
		s.say(fmt.Sprintf("master %d is followed after %v", r.number, away))
		time.Sleep(away)
	}
}

// run is the master itself.
func (r *reign) run(ctx context.Context, former []byte, resume bool) (*wire.JobStatus, error) {
	defer r.network.kill(r.host)
	training, validation := r.training.shards, r.validation.shards
	if r.program != nil {
		training, validation = nil, nil
	}
	return master.Run(ctx, master.Config{
		Self: speak.Self(identity.Header{Job: "uid", Role: pod.Master, Incarnation: r.number,
			ModelGeneration: 1}), Users: true,
		Job: r.job, Resume: resume, Training: training, Validation: validation,
		Former: former, Memory: r, Metric: metric, Journal: r.past,
		Listener: r.network.listen(r.host, masterAddress), Pods: r, Dial: r.network.dial(r.host),
		Log: r.log(fmt.Sprintf("master-%d", r.number)),
		OnEvent: func(e master.Event) {
			lease, ok := e.(master.Leased)
			switch {
			case r.is():
				r.hear(e)
			case ok: // it is so, for any source
				r.note(func() { r.noteLease(lease.Lease.Task) })
			}
		},
		Open: r.disk.open(r.host),
	})
}

// coups holds the faults of masters.
var coups = []fault{
	{name: "kill the master", rare: 6, do: func(s *simulation) string {
		return said(s.dethrone(true, s.any(10*time.Millisecond, time.Minute)), "kill the master")
	}},
	{name: "another master begins", rare: 12, do: func(s *simulation) string {
		// they may continue to speak to the one before
		for _, id := range s.pods.all() {
			s.strike(id.String())
		}
		return said(s.dethrone(false, s.any(time.Millisecond, time.Second)),
			"another master begins, and the one before does not know")
	}},
	{name: "kill the master as a world forms", rare: 4, where: inRing, do: func(s *simulation) string {
		return s.ambush(generation, s.killMaster)
	}},
	{name: "kill the master at a lease", rare: 4, do: func(s *simulation) string {
		return s.ambush(leased, s.killMaster)
	}},
	{name: "kill the master at an epoch's end", rare: 4, do: func(s *simulation) string {
		return s.ambush(epochEnd, s.killMaster)
	}},
	{name: "kill the master at the end", rare: 4, do: func(s *simulation) string {
		return s.ambush(trainingEnd, s.killMaster)
	}},
	{name: "kill the master and another", rare: 12, do: func(s *simulation) string {
		ok := s.dethrone(true, s.any(10*time.Millisecond, time.Minute))
		id, some := s.pick(pod.Worker)
		if server, there := s.pick(pod.PS); there && s.random.IntN(2) == 0 {
			id = server
		}
		return said(ok && some && s.pods.kill(id, killed), "kill the master and %v", id)
	}},
	{name: "nothing can be written", rare: 6, do: func(s *simulation) string {
		d := s.any(100*time.Millisecond, 20*time.Second)
		s.note(func() { s.deaf = time.Now().Add(d) })
		return fmt.Sprintf("nothing of the master can be written for %v", d)
	}},
}

func (s *simulation) killMaster() func(string) string { return s.killMasterFor(30 * time.Second) }

// killMasterFor kills the master, and has another begin within a time.
func (s *simulation) killMasterFor(most time.Duration) func(string) string {
	after := s.any(10*time.Millisecond, most)
	return func(string) string { return said(s.dethrone(true, after), "kill the master") }
}

// drawMasters draws what goes wrong with the masters of a job.
func (s *simulation) drawMasters(seed uint64, of where) {
	r := rand.New(rand.NewPCG(seed, 9))
	if s.calm || s.gentle || r.IntN(2) == 0 {
		return
	}
	for _, f := range coups {
		if f.in(of) && r.IntN(2) == 0 {
			s.faults = append(s.faults, f)
		}
	}
}

// TestWorldOutlivesMasters runs jobs of rings to which nothing happens but that their masters are
// killed, one after the other, when all workers are in the world and it works: it stays unchanged.
func TestWorldOutlivesMasters(t *testing.T) {
	lost, bridged := 0, 0
	for seed := uint64(1); seed <= 10; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			s := newRingSimulation(seed, t.TempDir())
			s.calm, s.gentle, s.stopped, s.measure, s.export = false, false, 0, 0, 0
			s.faults = []fault{{name: "kill the master", do: func(s *simulation) string {
				s.note(func() { s.ring.stands = s.ring.works && len(s.ring.members) == s.job.NumWorkers })
				return said(s.ring.stands && s.dethrone(true, s.any(10*time.Millisecond, time.Minute)),
					"kill the master")
			}}}
			simulate(t, seed, s)
			lost, bridged = lost+s.lost, bridged+s.ring.bridged
		})
	}
	if lost < 10 || bridged < 10 {
		t.Errorf("%d masters were killed, and %d updates were made while there was none", lost, bridged)
	}
}

// TestUnwrittenTraining runs jobs whose first masters are killed, some of them with another pod,
// when something was trained on that is in no record: the API server did not answer since before
// the first lease, and the first world of a ring.
func TestUnwrittenTraining(t *testing.T) {
	for name, newJob := range map[string]func(uint64, string) *simulation{
		"servers": newSimulation, "ring": newRingSimulation,
	} {
		t.Run(name, func(t *testing.T) {
			lost, again := 0, 0
			for seed := uint64(1); seed <= 20; seed++ {
				t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
					s := newJob(seed, t.TempDir())
					s.calm, s.gentle, s.stopped, s.measure, s.export = false, false, 0, 0, 0
					s.unwritable, s.pause = `"begun":true`, 300*time.Millisecond
					s.faults = []fault{{name: "kill the master of an unwritten training",
						do: (*simulation).loseUnwritten}}
					simulate(t, seed, s)
					lost, again = lost+s.lost, again+s.highestGeneration
				})
			}
			if lost < 10 || again < 5 {
				t.Errorf("%d masters were killed, and %d models were lost with their parts", lost, again)
			}
		})
	}
}

// loseUnwritten kills the master, and mostly another pod, when something was trained on that is in
// no record. From then on records can be written, and from a minute on in any case: no pod is
// created before.
func (s *simulation) loseUnwritten() string {
	trained := false
	s.note(func() {
		trained = s.unwritable != "" && len(s.leased) > 0 && (s.ring == nil || s.ring.moved)
		if trained || time.Since(s.began) > time.Minute {
			s.unwritable = ""
		}
	})
	if !trained || !s.dethrone(true, s.any(10*time.Millisecond, 10*time.Second)) {
		return ""
	}
	role := pod.Worker
	if s.hasServers() {
		role = pod.PS
	}
	if s.random.IntN(4) == 0 {
		return "kill the master"
	}
	return "kill the master, and " + s.kill(role, killed)
}
