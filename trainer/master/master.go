package master

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/admission"
	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/goodput"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

const (
	// time that workers of a finished job have to leave on their own
	leaveGrace  = timing.Farewell
	statusEvery = time.Second
)

// Pod describes a pod for a runtime to start.
type Pod struct {
	ID pod.ID
	// incarnation, from 1; the successor of a server has the same index and the next incarnation
	Incarnation int
	// index of the first pod of its line, which decides about the pod's priority
	Slot int
	// it is a worker of the core of a job in a queue
	Core bool
	// address at which a server is to listen again; "": any
	Address string
	// number of pods of its line that ran out of memory: how often its memory is doubled
	OOMs int
}

// Pods starts and ends pods: processes (trainer/runtime/local) or a cluster's. Its calls may
// come from several goroutines at once, but one at a time for each pod.
type Pods interface {
	// Create starts a pod, and returns when it is started. After an error it is called again later;
	// after [ErrFull] for a server, a worker may be ended to free space. The job fails after
	// [ErrHopeless] if no pod of the role has run yet. ctx ends when the pod is not wanted any
	// more.
	Create(ctx context.Context, p Pod) error
	// Delete ends a pod, even one that is stopped by a signal. It is no error if the pod has ended
	// already. The end itself is an event. After [ErrDisowned] the pod is asked to leave.
	Delete(ctx context.Context, id pod.ID) error
	// Adopt takes over the pods that previous masters have created, and returns one event for each
	// pod that exists, including ended ones that are still known: its incarnation and its state.
	// Events reports their later changes. A restored master calls it at most once, before any other
	// call, when the previous master can create no more pods.
	Adopt(ctx context.Context) ([]pod.Event, error)
	// Events returns the channel of what happens to the pods. Each pod's end is reported once. The
	// channel is never closed.
	Events() <-chan pod.Event
}

// Config is a job and what it runs on.
type Config struct {
	Job *job.Job
	// continue from the newest checkpoint of the job
	Resume bool
	// Journal is the journal of the job before it was resumed; without Former.
	Journal journal.Snapshot
	// Curve has the progress of the job before it was resumed; without Former.
	Curve curve.Snapshot
	// UIDs of the jobs that this one continues from: it inherits their checkpoint directory
	Ancestors []string
	// Owner is the job as owner of its checkpoint directory; without a UID: the job that Self
	// names. Look finds out whether another owner lives; nil: that cannot be found out.
	Owner checkpoint.Owner
	Look  func(checkpoint.Owner) checkpoint.Standing
	// last record of the previous masters; nil: this is the first one. The incarnation in Self is
	// higher than theirs
	Former []byte
	// where records are kept for the next master; nil: this master is the last
	Memory Memory
	// TakenAway hears that the machine of a pod will be taken away, and why. It does not block, and
	// returns false if it is to hear that again later. nil: such reports are dropped.
	TakenAway func(id pod.ID, incarnation int, why string) bool
	// requests that this master go; nil: there are none
	Notices <-chan Notice
	// how long a checkpoint may take after a notice; 0: half of the grace period of a Kubernetes
	// pod
	Grace time.Duration
	// finds Training and Validation while the master listens; nil: they are given below
	Data Data
	// shards of --training_data
	Training []task.Shard
	// shards of --validation_data, or of --prediction_data of a job that predicts; nil: none
	Validation []task.Shard
	// layout of the model, for a job that trains nothing
	Layout param.Layout
	// Metric computes a metric's value from its state; names are those of the workers' reports.
	Metric func(name string, state []float64) float64
	// of the master's service; Run closes it
	Listener net.Listener
	// identity of the master, in the first model generation
	Self *rpc.Self
	// whether users' calls are served at the listener, too: on one machine
	Users bool
	// Viewers is a listener that serves the users' calls that change nothing, without
	// authentication: only users who may make them must be able to reach it. Nil: there is none.
	// Run closes it.
	Viewers net.Listener
	// Certification issues certificates to pods; nil: they get them otherwise.
	Certification wire.CertificationServer
	Pods          Pods
	// how often the memory of a pod can be doubled, by role; nil: never
	MaxOOMs map[pod.Role]int
	// numbers of workers to scale to, as by the call Scale; nil: none come
	Scale <-chan int
	// Open opens a directory of checkpoints; nil: on this machine.
	Open checkpoint.Opener
	// Dial opens the connections to the servers; nil: TCP.
	Dial rpc.Dialer
	// OnStatus is called with the job's status each second, and at the end. Nil: no call.
	OnStatus func(*wire.JobStatus)
	// OnMeasures is called after OnStatus, with the same status and the measures of the same
	// moment. Nil: no call.
	OnMeasures func(*wire.JobStatus, Measures)
	// Problems returns what is wrong where this master runs, although the job continues. Nil:
	// nothing ever is.
	Problems func() []string
	// OnEvent is called with each event, in order, under the master's mutex: it must neither block
	// nor call the master. Nil: no call.
	OnEvent func(Event)
	// OnEntry is called with each entry of the journal, as OnEvent is. Nil: no call.
	OnEntry func(journal.Entry)
	Log     *slog.Logger
}

// master is the shell. The mutex guards all fields but spec, background and recorder.
type master struct {
	wire.UnimplementedMasterServer
	wire.UnimplementedJobServer
	shared
	// the job, as JSON
	spec       []byte
	background *background
	// writes records for the next master; nil: this master is the last
	recorder *recorder

	// owners of state that parts share
	contacts    *contacts
	fleet       *fleet
	orders      orders
	work        *work
	evaluations *evaluations
	progress    *progress
	handover    *handover
	account     account

	checkpoints *checkpoints
	// none in a ring
	servers *servers
	// nil without a ring
	ring *ring
	// nil in a job that trains
	fixed *fixed
	// servers, ring or fixed
	strategy strategy
	// nil in a job that has a model
	program *program
	stacks  stackRequests
	// nil without a queue
	admission *admission.Admission
	// the job gives its quota back; nil: it does not
	yields *Yielded
}

// Run runs the job and returns its last status when every pod has ended. The error is nil if and
// only if every record of every epoch was trained on; a job that was stopped, by Stop or by the end
// of ctx, has one too. If ctx ends with the cause [ErrSuperseded], Run stops nothing and returns it
// at once: the pods are the next master's.
func Run(ctx context.Context, c Config) (*wire.JobStatus, error) {
	m, err := newMaster(c)
	if err != nil {
		c.Listener.Close()
		if c.Viewers != nil {
			c.Viewers.Close()
		}
		return nil, err
	}
	// pods are ended after ctx is done, too
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	m.background.lasting = lasting
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
	defer m.serveViewers()()
	if m.recorder != nil {
		m.background.Go(func() { m.write(lasting) })
		m.background.Go(func() { m.hint(lasting) })
	}
	m.background.Go(func() { m.execute(lasting) })
	m.background.Go(func() { m.publish(lasting) })
	for _, l := range m.servers.lines {
		m.background.Go(func() { m.servers.command(lasting, l) })
	}
	m.Log.Info("Master started", "job", c.Job.Name, "address", c.Listener.Addr(), "strategy",
		c.Job.Strategy, "workers", c.Job.NumWorkers)
	m.background.Go(func() { m.prepareAndStart(lasting) })
	m.loop(ctx)

	if m.stage.Left() != nil {
		cancel()
		srv.Stop()
	}
	m.conclude()
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
	m.checkpoints.leave()
	if m.program != nil {
		m.program.release()
	}
	status, more := m.measured(time.Now())
	if m.stage.Left() == nil {
		m.publishes(status, more)
	}
	if m.yields != nil && errors.Is(m.stage.Err(), lifecycle.ErrYielded) {
		return status, m.yields
	}
	return status, cmp.Or(m.stage.Left(), m.stage.Err())
}

func newMaster(c Config) (*master, error) {
	spec, err := json.Marshal(c.Job)
	if err != nil {
		return nil, fmt.Errorf("encode the job: %w", err)
	}
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	former, err := readRecord(c.Former)
	if err != nil {
		return nil, err
	}
	stage, err := newStage(c, former, time.Now())
	if err != nil {
		return nil, err
	}
	m := newShell(c, stage, former)
	m.spec = spec
	if m.checkpoints, err = newCheckpoints(m); err != nil {
		return nil, err
	}
	m.handover.checkpoints = m.checkpoints
	m.servers = newServers(m)
	m.follow(m.servers)
	switch {
	case c.Job.Runs():
		m.program = newProgram(m)
		m.ring = newRing(m)
		m.program.ring = m.ring
		m.program.hang = newHang(m)
		m.follow(m.ring)
	case !c.Job.Trains():
		m.fixed = newFixed(m)
		m.checkpoints.fixed = m.fixed
		m.follow(m.fixed)
	case c.Job.Strategy == job.AllReduce:
		m.ring = newRing(m)
		m.follow(m.ring)
	}
	if c.Data == nil {
		return m, m.plan(c.Training, c.Validation)
	}
	return m, m.plan(nil, nil) // empty until the data is known
}

// newShell returns a master without its parts.
func newShell(c Config, stage *lifecycle.Lifecycle, former *record) *master {
	s := shared{Config: &c, stage: stage, mu: make(turn, 1), clock: newClock(),
		events: newEvents(&c, former), waiters: newWaiters()}
	m := &master{shared: s, background: &background{lasting: context.Background()}, orders: newOrders(),
		contacts: newContacts(s.clock), work: unplanned(s, &c, former), progress: newProgress(&c, former)}
	m.account.Account = goodput.Restore(journalBefore(&c, former).Goodput)
	m.fleet = newFleet(s, m.contacts)
	m.evaluations = &evaluations{shared: s, work: m.work}
	m.handover = &handover{shared: s, work: m.work, record: former,
		begin: func() { m.perform(stage.Grant(), time.Now()) }}
	if c.Memory != nil {
		m.recorder = newRecorder(c.Memory)
	}
	if c.Job.Queue != "" {
		m.admission = newAdmission(c.Job, former)
	}
	return m
}

// follow sets what holds the model.
func (m *master) follow(s strategy) {
	m.strategy, m.checkpoints.holders = s, s
}

// plan makes the machines that follow from the data.
func (m *master) plan(training, validation []task.Shard) error {
	if err := m.work.plan(training, validation); err != nil {
		return err
	}
	m.evaluations.plan()
	return nil
}

// replaceStragglers deletes the workers that show no progress. Their leases are taken back when
// they have ended, so that every record that they pushed is known, or if they are still there a
// timeout later.
func (m *master) replaceStragglers(now time.Time) {
	if m.strategy.blocked() {
		m.work.queue.Excuse(m.clock.at(now))
		return
	}
	for _, worker := range m.strategy.stragglers(m.work.queue.Overdue(m.clock.at(now))) {
		id := pod.ID{Role: pod.Worker, Index: worker}
		if m.contacts.of(id).dismiss {
			m.enqueue([]pod.Action{{Verb: pod.Lost, ID: id, Reason: "no progress, and it cannot be deleted",
				Cause: "no progress"}})
			// set again: lost has forgotten it, and the pod may still run
			m.contacts.of(id).dismiss = true
			continue
		}
		m.replace(id, "no progress for too long", now)
	}
}

func (m *master) replaceSilent(now time.Time) {
	present := m.clock.at(now)
	for id, c := range m.contacts.all {
		if limit := m.strategy.silence(id.Role); limit > 0 && !c.heard.IsZero() && present.Sub(c.heard) >= limit {
			m.replace(id, fmt.Sprintf("silent for %v", limit), now)
		}
	}
}

// replace deletes a pod that makes no progress or is silent. Its replacement follows its end.
func (m *master) replace(id pod.ID, reason string, now time.Time) {
	m.Log.Warn("Replacing a pod", "pod", id, "reason", reason)
	m.events.happen(PodReplaced{ID: id, Reason: reason})
	m.enqueue(m.fleet.table.Replace(id, reason, now))
	m.dismiss(id, reason)
}

// dismiss stops listening to a pod that is being deleted.
func (m *master) dismiss(id pod.ID, reason string) {
	c := m.contacts.of(id)
	c.heard, c.dismiss = time.Time{}, true
	if m.ring != nil {
		m.ring.dismiss(id, reason)
	}
}

// stop ends the job on request, unless it has ended.
func (m *master) stop(state job.State, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.end(state, err, time.Now())
}

// observe handles an event of a pod.
func (m *master) observe(e pod.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observeLocked(e)
}

// observeLocked handles an event of a pod. The caller holds the mutex.
func (m *master) observeLocked(e pod.Event) {
	if m.handover.record != nil && !m.stage.Planned() && !m.stage.Over() {
		// it is not restored yet
		m.handover.unheard = append(m.handover.unheard, e)
		return
	}
	before, known := m.fleet.table.Get(e.ID)
	now := time.Now()
	m.enqueue(m.fleet.table.Observe(e, now))
	after, ok := m.fleet.table.Get(e.ID)
	if ok && e.ID.Role == pod.Worker && after.Phase == pod.Leaving {
		m.depart(e.ID, false)
	}
	if ok && known && after.Incarnation == before.Incarnation && after.Phase != before.Phase && !after.Phase.Ended() {
		m.Log.Info("Pod is "+after.Phase.String(), "pod", e.ID, "pid", after.PID)
	}
	m.advance(now)
}

// depart gives no new tasks to a worker that was asked to leave, and releases it as soon as
// possible. The others of a program work with it until it says itself that it is ready: its
// processes may need their grace period.
func (m *master) depart(id pod.ID, said bool) {
	c := m.contacts.of(id)
	if c.dismiss {
		return
	}
	c.leaves = true
	if m.program != nil {
		m.program.leavers[id.Index] = true
	}
	if m.ring != nil && !c.departs && (said || m.program == nil) {
		c.departs = true
		m.ring.departs(id.Index)
	}
}
