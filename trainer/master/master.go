package master

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/evaluation"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/param"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/rpc"
	"github.com/elasticdl/elasticdl/trainer/task"
	"github.com/elasticdl/elasticdl/trainer/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	leaveGrace  = timing.Farewell // what workers of a job that is done have to leave by themselves
	endLimit    = timing.End      // what the runtime has to end the pods of a job that is over
	statusEvery = time.Second
)

// Pod is what a runtime starts.
type Pod struct {
	ID      pod.ID
	Launch  int    // from 1; a replaced server is launched again under its index
	Slot    int    // the index of the first pod of its line, which priorities go by
	Address string // where a server shall listen again; "" anywhere
	OOMs    int    // how many pods of its line ran out of memory: its memory is to be doubled so often
}

// Pods starts and ends pods: processes (trainer/local) or a cluster's. Its calls may
// come from several goroutines at once, but one at a time for each pod.
type Pods interface {
	// Create returns when the pod is started, or why it cannot be; it is tried again later then, a server at a
	// worker's cost if that is [ErrFull]. The job fails if that is [ErrHopeless] and no pod of the role has run yet.
	// The end of ctx says that the pod is not wanted any more.
	Create(ctx context.Context, p Pod) error
	// Delete ends a pod, stopped or not. One that is gone already is no error. That it ended is an event. A pod that
	// can never be deleted for [ErrDisowned] is told to leave.
	Delete(ctx context.Context, id pod.ID) error
	// Adopt takes over the pods that the masters before have created, and returns one event for each that there is, an ended one that is
	// still known of included: which pod and launch it is, and how it is. What becomes of them from then on is told by Events. It is
	// called at most once, before any other call, by a master that comes back, once the master before can create no more pods.
	Adopt(ctx context.Context) ([]pod.Event, error)
	// Events is what becomes of the pods. Each pod's end is told once. It is never closed.
	Events() <-chan pod.Event
}

// Config is a job and what it runs on.
type Config struct {
	Job        *job.Job
	Resume     bool          // go on from the newest checkpoint of the job
	Former     []byte        // the last record of the masters before; nil: this is the first one. Self has a higher incarnation than theirs
	Memory     Memory        // nil: nobody comes after this master
	Notices    <-chan Notice // nil: none comes
	Grace      time.Duration // what a checkpoint may take after a notice; 0: half of what Kubernetes gives a pod
	Data       Data          // finds Training and Validation, while the master listens; nil: they are known
	Training   []task.Shard  // of --training_data
	Validation []task.Shard  // of --validation_data, nil without; of a job that predicts, of --prediction_data
	Layout     param.Layout  // of the model, of a job that trains nothing
	// Metric computes a metric's value from its state; names are those of the workers' reports.
	Metric   func(name string, state []float64) float64
	Listener net.Listener // of the master's service; Run closes it
	Self     *rpc.Self    // the master, in the first life of the model
	Users    bool         // serve the calls of users too, who reach the listener: on one machine
	// Certification gives pods their certificates; nil: they are given otherwise.
	Certification wire.CertificationServer
	Pods          Pods
	MaxOOMs       map[pod.Role]int // how often the memory of a role's pod can be doubled; nil: never
	Scale         <-chan int       // how many workers there shall be from now on, as by the call of that name; nil: nobody says
	// Open opens a directory of checkpoints; nil: on this machine.
	Open checkpoint.Opener
	// Dial opens the connections to the servers; nil: TCP.
	Dial rpc.Dialer
	// OnStatus is given the job's status each second, and at the end; nil: nobody.
	OnStatus func(*wire.JobStatus)
	// OnEvent is given what happens, in order, under the master's lock: it must not block and not call the master; nil: nobody.
	OnEvent func(Event)
	Log     *slog.Logger
}

// master is the shell. The mutex guards what is below it.
type master struct {
	wire.UnimplementedMasterServer
	wire.UnimplementedJobServer
	Config
	spec []byte // the job, as JSON

	poke       chan struct{} // the loop looks at the deadlines again
	acting     chan struct{} // there are actions
	background sync.WaitGroup

	mu          turn
	queue       *task.Queue
	table       *pod.Table
	evals       *evaluation.Schedule
	checkpoints *checkpoints
	servers     *servers // none in a ring
	ring        *ring    // nil without
	fixed       *fixed   // nil in a job that trains
	strategy    strategy // one of the three
	program     *program // nil in a job that has a model
	pods        map[pod.ID]*contact
	actions     []pod.Action  // not performed yet
	changed     chan struct{} // closed when a waiting call should look again
	armed       time.Time     // what the timer is set to
	away        time.Duration // see clock

	scribe      *scribe         // nil: nobody comes after this master
	lasting     context.Context // ends when Run returns
	former      *record         // what the master before has left; nil: this is the first
	unheard     []pod.Event     // what came before that was taken up
	gathering   bool            // it is not known yet what is in the model: nobody is given anything to do
	announceBy  time.Time       // by clock: nothing new is given out before, or until they have
	unannounced map[int]bool    // workers that have yet to say what leases of the master before they hold; nil: none
	specified   int             // workers, by the job's specification
	going       Notice          // what the master was told; 0: nothing
	goingBy     time.Time       // then it goes, whether or not there is a checkpoint
	goingAt     int64           // version that is to be in that
	rests       bool            // the job is suspended
	parts       bool            // this master goes, and tells nobody anything more
	sealed      bool            // no record is written any more
	left        error           // the master goes, and leaves the pods

	workers int    // to begin with
	planned bool   // the data is known, and with it what is to be done: until then who calls is told to come again
	begun   bool   // in this life of the model somebody was given something to do with it
	anewFor string // why the model went back to where it was before, the last time
	rewinds int    // how often it did
	resumed int64  // records that were done before the job was resumed
	trained bool   // the last barrier is passed, the last evaluation and the export are asked for
	over    bool   // the job has ended; pods are leaving
	err     error  // why it did not succeed

	state          job.State
	started, ended time.Time
	evaluations    []*wire.Evaluation // the last ones
	evaluated      int64              // all of them
	speed          speed
	loss           float32
	rejected       int64 // by those that are gone
}

// turn is a mutex under which something may be waited for: what is to be written before it is told.
type turn chan struct{}

func (t turn) Lock()   { t <- struct{}{} }
func (t turn) Unlock() { <-t }

// contact is what a pod told of itself.
type contact struct {
	joined   bool
	process  uint64    // of a ring's worker: which has arrived, 0 if none has said so
	heard    time.Time // its last heartbeat, by clock; zero before the first since it joined
	leaves   bool      // it was asked to go: it gets nothing new to do
	leavesAt int64     // of a server that leaves: the version that is to be in a checkpoint before
	dismiss  bool      // it was deleted or replaced, or is not needed any more: it is told to leave
	steps    int64
	rejected int64
	loss     float32
}

// Run runs the job and returns its last status when every pod is gone. The error is nil if and
// only if every record of every epoch was trained on; a job that was stopped, by
// Stop or by the end of ctx, has one too. If ctx ends with the cause [ErrSuperseded], Run stops nothing and returns it at once:
// the pods are the next master's.
func Run(ctx context.Context, c Config) (*wire.JobStatus, error) {
	m, err := newMaster(c)
	if err != nil {
		c.Listener.Close()
		return nil, err
	}
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx)) // pods are ended after ctx is done, too
	m.lasting = lasting
	srv := rpc.NewServer(c.Self, c.Certification != nil)
	wire.RegisterMasterServer(srv, m)
	if c.Users {
		wire.RegisterJobServer(srv, m)
	}
	if c.Certification != nil {
		wire.RegisterCertificationServer(srv, c.Certification)
	}
	m.background.Go(func() {
		if err := srv.Serve(c.Listener); err != nil {
			m.stop(job.Failed, fmt.Errorf("serve %v: %w", c.Listener.Addr(), err))
		}
	})
	if m.scribe != nil {
		m.background.Go(func() { m.write(lasting) })
		m.background.Go(func() { m.hint(lasting) })
	}
	m.background.Go(func() { m.execute(lasting) })
	m.background.Go(func() { m.publish(lasting) })
	for _, l := range m.servers.lines {
		m.background.Go(func() { m.servers.command(lasting, l) })
	}
	m.Log.Info("Master started", "job", c.Job.Name, "address", c.Listener.Addr(), "strategy", c.Job.Strategy, "workers", c.Job.NumWorkers)
	m.background.Go(func() { m.prepareAndStart(lasting) })
	m.loop(ctx)

	if m.left != nil {
		cancel()
		srv.Stop()
	}
	force := time.AfterFunc(time.Second, srv.Stop)
	srv.GracefulStop()
	force.Stop()
	cancel()
	m.background.Wait()
	for _, l := range m.servers.lines {
		l.close()
	}
	if m.fixed != nil {
		m.fixed.tidy()
	}
	status := m.status(time.Now())
	if m.OnStatus != nil && m.left == nil {
		m.OnStatus(status)
	}
	return status, cmp.Or(m.left, m.err)
}

func newMaster(c Config) (*master, error) {
	spec, err := json.Marshal(c.Job)
	if err != nil {
		return nil, fmt.Errorf("encode the job: %w", err)
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	m := &master{
		Config: c, spec: spec, state: job.Pending, started: time.Now(),
		poke: make(chan struct{}, 1), acting: make(chan struct{}, 1), changed: make(chan struct{}),
		pods: make(map[pod.ID]*contact), lasting: context.Background(), mu: make(turn, 1),
	}
	if m.former, err = readRecord(c.Former); err != nil {
		return nil, err
	}
	if c.Memory != nil {
		m.scribe = newScribe(c.Memory)
	}
	m.specified = c.Job.NumWorkers
	m.begins(c.Job.NumWorkers)
	if m.checkpoints, err = newCheckpoints(m); err != nil {
		return nil, err
	}
	m.servers = newServers(m)
	m.strategy = m.servers
	switch {
	case c.Job.Runs():
		m.program = newProgram(m)
		m.ring = newRing(m)
		m.strategy = m.ring
	case !c.Job.Trains():
		m.fixed = &fixed{m: m}
		m.strategy = m.fixed
	case c.Job.Strategy == job.AllReduce:
		m.ring = newRing(m)
		m.strategy = m.ring
	}
	if c.Data == nil {
		return m, m.plan(c.Training, c.Validation)
	}
	return m, m.plan(nil, nil) // nothing, until it is known
}

// evaluationPolicy says when to evaluate, in the life that is now.
func (m *master) evaluationPolicy() evaluation.Policy {
	steps := int64(m.Job.EvaluationSteps)
	if len(m.Validation) == 0 {
		steps = 0
	}
	holders := m.Job.NumPS
	if m.ring != nil {
		holders = 1 // of the one snapshot that every worker has
	}
	return evaluation.Policy{Steps: steps, Servers: holders, Life: m.Self.Life()}
}

// loop takes the pods' events and the timer until every pod is gone, or the master leaves them.
func (m *master) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	done := ctx.Done()
	for m.rearm(timer) {
		select {
		case <-done:
			done = nil
			if cause := context.Cause(ctx); errors.Is(cause, ErrSuperseded) {
				m.superseded(cause)
			} else {
				m.stop(job.Stopped, fmt.Errorf("stopped: %w", cause))
			}
		case e := <-m.Pods.Events():
			m.observe(e)
		case n := <-m.Notices:
			m.notice(n)
		case n := <-m.Config.Scale:
			m.specify(n)
			if _, err := m.scale(n); err != nil {
				m.Log.Warn("Not scaled", "error", status.Convert(err).Message())
			}
		case <-timer.C:
			m.tick()
		case <-m.poke:
		}
	}
}

// rearm sets the timer to the next deadline. False: there is nothing left to wait for.
func (m *master) rearm(timer *time.Timer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if m.left != nil {
		return false
	}
	if m.over && (m.table.Gone() || !now.Before(m.ended.Add(endLimit))) {
		return false
	}
	m.clock(now)
	m.armed = m.deadline(now)
	if m.armed.IsZero() {
		timer.Stop()
		return true
	}
	if m.armed.Before(now) {
		m.armed = now
	}
	timer.Reset(m.armed.Sub(now))
	return true
}

// clock is now without the time that the master itself was away: stopped, or without a processor. What others did not
// do in that time is no fault of theirs, so all that is late or silent is measured by this clock.
func (m *master) clock(now time.Time) time.Time {
	if late := now.Sub(m.armed); !m.armed.IsZero() && late > punctual {
		m.away += late
		m.armed = now
	}
	return now.Add(-m.away)
}

// punctual is how late a master may be that was not away. It is more than passes between two looks at the time
// in one tick: else what is due at the one is not yet at the other, again and again.
const punctual = 50 * time.Millisecond

// pulse is how many times within the least silence that matters the timer fires, so that the master
// notices that it was away.
const pulse = 4

// deadline is when something is to be done if nothing happens before; zero: never.
func (m *master) deadline(now time.Time) time.Time {
	var first time.Time
	sooner := func(at time.Time, ok bool) {
		if ok && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	sooner(m.table.Deadline())
	if m.over {
		sooner(m.ended.Add(endLimit), true)
		return first
	}
	sooner(m.goingBy, m.going != 0)
	present := func(at time.Time, ok bool) { sooner(at.Add(m.away), ok) }
	present(m.announceBy, m.unannounced != nil && !m.gathering && m.clock(now).Before(m.announceBy))
	present(m.queue.Deadline())
	present(m.checkpoints.deadline(m.clock(now)))
	if m.ring != nil {
		present(m.ring.deadline())
	}
	for id, c := range m.pods {
		if limit := m.strategy.silence(id.Role); limit > 0 && !c.heard.IsZero() {
			present(c.heard.Add(limit), true)
			sooner(now.Add(limit/pulse), true)
		}
	}
	return first
}

// tick does what is due.
func (m *master) tick() {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	m.enqueue(m.table.Tick(now))
	if !m.over {
		if m.ring != nil {
			m.ring.tick()
		}
		if m.unannounced != nil && !m.clock(now).Before(m.announceBy) {
			m.wake()
		}
		m.checkpoints.tick(m.clock(now))
		m.replaceStragglers(now)
		m.replaceSilent(now)
	}
	m.advance(now)
}

// replaceStragglers deletes the workers that show no progress. Their leases are taken back when they are
// gone, so that no record they pushed is lost sight of; or when they are still there a timeout later.
func (m *master) replaceStragglers(now time.Time) {
	if m.strategy.away() {
		m.queue.Excuse(m.clock(now))
		return
	}
	for _, worker := range m.strategy.stragglers(m.queue.Overdue(m.clock(now))) {
		id := pod.ID{Role: pod.Worker, Index: worker}
		if m.contact(id).dismiss {
			m.enqueue([]pod.Action{{Verb: pod.Lost, ID: id, Reason: "no progress, and it cannot be deleted"}})
			m.contact(id).dismiss = true // that was forgotten, and it may be there still
			continue
		}
		m.replace(id, "no progress for too long", now)
	}
}

func (m *master) replaceSilent(now time.Time) {
	present := m.clock(now)
	for id, c := range m.pods {
		if limit := m.strategy.silence(id.Role); limit > 0 && !c.heard.IsZero() && present.Sub(c.heard) >= limit {
			m.replace(id, fmt.Sprintf("silent for %v", limit), now)
		}
	}
}

// replace deletes a pod that does not do its work; its end brings its replacement.
func (m *master) replace(id pod.ID, reason string, now time.Time) {
	m.Log.Warn("Replacing a pod", "pod", id, "reason", reason)
	m.happen(PodReplaced{ID: id, Reason: reason})
	m.enqueue(m.table.Replace(id, reason, now))
	m.dismiss(id, reason)
}

// dismiss listens no more to a pod that is being deleted.
func (m *master) dismiss(id pod.ID, reason string) {
	c := m.contact(id)
	c.heard, c.dismiss = time.Time{}, true
	if m.ring != nil {
		m.ring.dismiss(id, reason)
	}
}

// stop ends the job from outside, unless it is over.
func (m *master) stop(state job.State, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end(state, err, time.Now())
}

// observe takes a pod's event.
func (m *master) observe(e pod.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observeLocked(e)
}

// observeLocked takes a pod's event. The mutex is held.
func (m *master) observeLocked(e pod.Event) {
	if m.former != nil && !m.planned && !m.over {
		m.unheard = append(m.unheard, e) // nothing is known of the pods yet
		return
	}
	before, known := m.table.Get(e.ID)
	now := time.Now()
	m.enqueue(m.table.Observe(e, now))
	after, ok := m.table.Get(e.ID)
	if ok && e.ID.Role == pod.Worker && after.Phase == pod.Leaving {
		m.depart(e.ID)
	}
	if ok && known && after.Launch == before.Launch && after.Phase != before.Phase && !after.Phase.Ended() {
		m.Log.Info("Pod is "+after.Phase.String(), "pod", e.ID, "pid", after.PID)
	}
	m.advance(now)
}

// depart has a worker do nothing new that was asked to go, and does without it as soon as it can.
func (m *master) depart(id pod.ID) {
	if c := m.contact(id); !c.leaves && !c.dismiss {
		c.leaves = true
		if m.ring != nil {
			m.ring.departs(id.Index)
		}
	}
}

// contact is what is known of a pod beside its life.
func (m *master) contact(id pod.ID) *contact {
	c := m.pods[id]
	if c == nil {
		c = new(contact)
		m.pods[id] = c
	}
	return c
}

// heardFrom notes that a pod was heard. From its first word on its silence is judged: the timer may be set to later than that.
func (m *master) heardFrom(c *contact, now time.Time) {
	if c.heard.IsZero() {
		signal(m.poke)
	}
	c.heard = now
}

// wake makes every waiting call look again.
func (m *master) wake() {
	close(m.changed)
	m.changed = make(chan struct{})
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
