package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// A worker's membership in the rendezvous. It lasts as long as the worker's stream, and longer if
// the worker works in a world, or if no other worker has the model. The master's mutex guards all
// fields but the channels.
type participant struct {
	worker int
	// number of the worker's process; 0: not notified
	process uint64
	session int64
	// the last arrival
	arrival *wire.Arrival
	// it waits for a world since then
	waits bool
	// generation of the last world
	given int64
	// another stream or another master had the member: the worker may not have received that world
	// or a later one
	unsure bool
	// it has no stream: requests are repeated on the next one
	disconnected bool
	// messages that are not sent yet
	words []*wire.Assembly
	// has an element when there are words
	spoken chan struct{}
	// closed when the stream ends
	left chan struct{}
}

// send queues a message if there is a stream. It does not wait.
func (s *participant) send(word *wire.Assembly) {
	if s.disconnected {
		return
	}
	s.words = append(s.words, word)
	signal(s.spoken)
}

// Rendezvous implements wire.MasterServer.
func (m *master) Rendezvous(stream grpc.BidiStreamingServer[wire.Arrival, wire.Assembly]) error {
	if m.ring == nil {
		return status.Errorf(codes.FailedPrecondition, "a job of %s has no ring", m.Job.Strategy)
	}
	first, err := stream.Recv()
	if err != nil {
		return err
	}
	m.ring.seek(stream.Context(), first)
	s, err := m.ring.enter(stream.Context(), first)
	if err != nil {
		return err
	}
	var speaking sync.WaitGroup
	speaking.Go(func() { m.ring.speak(s, stream) })
	for err == nil {
		var a *wire.Arrival
		if a, err = stream.Recv(); err == nil {
			m.ring.seek(stream.Context(), a)
			err = m.ring.arrive(s, a)
		}
	}
	m.ring.closeStream(s, err)
	speaking.Wait()
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// enter makes a worker a member. If it was one, its stream is broken: the same process takes over
// the membership, another process becomes another member.
func (r *ring) enter(ctx context.Context, first *wire.Arrival) (*participant, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fleet.known(ctx); err != nil {
		return nil, err
	}
	if caller := rpc.Caller(ctx).ID(); caller.Index != int(first.Worker) {
		return nil, status.Errorf(codes.PermissionDenied, "%v arrives as worker-%d", caller, first.Worker)
	}
	s := &participant{worker: int(first.Worker), process: first.Process, spoken: make(chan struct{}, 1),
		left: make(chan struct{})}
	if err := s.checkArrival(first); err != nil {
		return nil, err
	}
	if err := r.sameProcess(ctx, s); err != nil {
		return nil, err
	}
	before := r.participants[s.worker]
	if before != nil && before.process == s.process && s.process != 0 && r.meeting.Knows(s.worker, before.session) {
		s.session, s.arrival, s.given, s.unsure = before.session, before.arrival, before.given, true
		s.waits = before.waits && !before.disconnected // otherwise it has yet to arrive again
		// the order may be lost
		if o := r.checkpoints.order(); o.Number > 0 && s.worker == r.copier {
			s.send(cutOrder(o))
		}
	} else {
		if before != nil {
			r.vacate(before, "it was started again")
		}
		r.session++
		s.session = r.session
	}
	r.participants[s.worker] = s
	r.host.runs(s.worker, first.Address)
	if first.Works {
		r.present(s, first.Generation)
	} else {
		r.admit(s, first)
	}
	return s, nil
}

// present handles the report that a worker works in a world, and repeats what is asked of the
// members of that world. A worker in any other world is recalled from it. The caller holds the
// mutex.
func (r *ring) present(s *participant, generation int64) {
	r.contacts.heardFrom(r.contacts.of(pod.ID{Role: pod.Worker, Index: s.worker}), r.now())
	if r.stage.Over() {
		return
	}
	m := rendezvous.Member{Worker: s.worker, Session: s.session}
	s.unsure = s.unsure && generation != s.given
	r.perform(r.meeting.Present(m, generation, r.now()))
	r.orderFlush([]rendezvous.Member{m})
	r.departed(s)
}

// sameProcess replaces a worker that was restarted in its pod. Its state is lost, and its leases
// belong to the process before: which of their records are in the model is known when a world
// without that process is formed. The caller holds the mutex.
func (r *ring) sameProcess(ctx context.Context, s *participant) error {
	id := pod.ID{Role: pod.Worker, Index: s.worker}
	c := r.contacts.of(id)
	if c.process == 0 || s.process == 0 || c.process == s.process || r.stage.Over() {
		c.process = cmp.Or(s.process, c.process)
		return nil
	}
	r.host.replace(id, "started again in its pod", time.Now())
	r.host.advance(time.Now())
	return r.fleet.known(ctx)
}

// arrive handles what a worker sends on its stream after the first arrival.
func (r *ring) arrive(s *participant, a *wire.Arrival) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.participants[s.worker] != s {
		return status.Errorf(codes.Aborted, "worker-%d is no longer a member", s.worker)
	}
	if err := s.checkArrival(a); err != nil {
		return err
	}
	// otherwise it is the first message on a stream again
	if !a.Works {
		r.admit(s, a)
	}
	return nil
}

func (s *participant) checkArrival(a *wire.Arrival) error {
	if int(a.Worker) != s.worker || a.Address == "" {
		return status.Errorf(codes.InvalidArgument,
			"arrival of worker %d at address %q with the stream of worker-%d", a.Worker, a.Address, s.worker)
	}
	if len(a.Ledger) > 0 {
		if _, err := ledger.Parse(a.Ledger); err != nil {
			return status.Errorf(codes.InvalidArgument, "arrival of worker-%d: %v", s.worker, err)
		}
	}
	return nil
}

// admit passes an arrival to the rendezvous, once for each world that the worker was given: a late
// or repeated one tells nothing of its state. The caller holds the mutex.
func (r *ring) admit(s *participant, a *wire.Arrival) {
	// it is in no world: the last world was lost with the stream, or the previous master could not
	// write it
	if s.unsure && a.Generation != s.given {
		// how processes ended in the world before was reported then
		a.Generation, a.Finished, a.Failures, a.Output = s.given, false, nil, ""
	}
	s.unsure = false
	if s.arrival != nil && (s.waits || a.Generation != s.given) {
		return
	}
	s.arrival, s.waits = a, true
	r.contacts.heardFrom(r.contacts.of(pod.ID{Role: pod.Worker, Index: s.worker}), r.now())
	if r.stage.Over() {
		return // GetTask tells it so
	}
	r.damaged(a)
	if r.program != nil && r.program.arrives(a) {
		r.host.advance(time.Now())
		return
	}
	position := rendezvous.Position{Beginning: a.Beginning, Round: a.Round}
	// what a program has read from a checkpoint of its own is of no world: see source
	if a.Generation <= r.void || r.program != nil && a.Beginning == 0 {
		position = rendezvous.NoState
	}
	suspect := -1
	if a.Broken {
		suspect = int(a.Suspect)
	}
	r.perform(r.meeting.Arrive(rendezvous.Arrival{
		Member:     rendezvous.Member{Worker: s.worker, Session: s.session, Address: a.Address},
		Position:   position,
		Generation: a.Generation, Broken: a.Broken, Suspect: suspect, Idle: a.Idle,
		Aside: a.Crew != nil && a.Crew.Processes == 0, BrokeOff: a.BrokeOff,
	}, r.now()))
	r.departed(s)
}

// departed makes the others continue without a worker that was asked to leave before it had this
// stream. The caller holds the mutex.
func (r *ring) departed(s *participant) {
	if r.contacts.of(pod.ID{Role: pod.Worker, Index: s.worker}).departs {
		r.perform(r.meeting.Depart(s.worker, r.now()))
	}
	r.host.advance(time.Now())
}

// closeStream ends a stream. The worker stays a member if it may return as the same one: it works
// in a world, or no other worker has the model.
func (r *ring) closeStream(s *participant, err error) {
	close(s.left)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.participants[s.worker] != s {
		return
	}
	reason := fmt.Sprintf("its stream ended: %v", err)
	if s.process == 0 || r.stage.Over() {
		r.vacate(s, reason)
	} else {
		r.Log.Debug("The stream of a worker ended", "worker", s.worker, "error", err)
		s.disconnected, s.words = true, nil
		r.perform(r.meeting.Disconnected(s.worker, s.session, reason, r.now()))
		r.forgo()
	}
	r.host.advance(time.Now())
}

// forgo removes workers that are away and no longer waited for. The caller holds the mutex.
func (r *ring) forgo() {
	for _, s := range r.participants {
		if s.disconnected && !r.meeting.Knows(s.worker, s.session) {
			r.vacate(s, "it is away")
		}
	}
}

// vacate removes a member, and recalls the others. The caller holds the mutex.
func (r *ring) vacate(s *participant, reason string) {
	delete(r.participants, s.worker)
	r.bereft(s.worker)
	if !r.stage.Over() {
		r.Log.Debug("Worker left the ring", "worker", s.worker, "reason", reason)
		r.perform(r.meeting.Leave(s.worker, s.session, reason, r.now()))
	}
}

// speak sends the queued messages until the stream ends.
func (r *ring) speak(s *participant, stream grpc.BidiStreamingServer[wire.Arrival, wire.Assembly]) {
	for {
		select {
		case <-s.spoken:
		case <-s.left:
			return
		}
		r.mu.Lock()
		words := s.words
		s.words = nil
		r.mu.Unlock()
		for _, word := range words {
			if stream.Send(word) != nil {
				return // Recv returns the reason
			}
		}
	}
}
