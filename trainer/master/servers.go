package master

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

const (
	// limit of the servers' answer to how far a lost worker came
	progressLimit = timing.Account
	controlLimit  = timing.Order           // limit of a server's answer to an order
	controlPause  = 100 * time.Millisecond // pause before an order is repeated
	// silence of a server, in heartbeats, after which workers that wait for it are not blamed
	hush = timing.Beats * timing.Beat
	// least silence after which a pod counts as lost, however short its tasks are
	silenceLeast = timing.Silence
)

// servers is the strategy of parameter servers: the custody decides, this type talks to them.
type servers struct {
	shared
	host        serversHost
	checkpoints *checkpoints
	fleet       *fleet
	contacts    *contacts
	work        *work
	evaluations *evaluations
	handover    *handover
	background  *background
	custody     *custody.Servers
	lines       []*line
	// a restored master is asking them what they have
	asking bool
}

// serversHost has the requests of the servers to the master. The caller of each method holds the
// mutex.
type serversHost interface {
	advance(now time.Time)
	newGeneration(modelGeneration int64, reason string)
	// the generation was lost while there was no master
	lostMeanwhile(modelGeneration int64, reason string)
	end(state job.State, err error, now time.Time)
}

// line is the master's connection to one server. The master's mutex guards all fields but index and
// wake.
type line struct {
	index       int
	wake        chan struct{} // has an element when an order may be due
	incarnation int           // incarnation of the connected server
	conn        *grpc.ClientConn
	client      wire.ParameterServerClient // nil: no server is connected
	orders      int64                      // number of orders that were sent on it
}

func newServers(m *master) *servers {
	s := &servers{shared: m.shared, host: m, checkpoints: m.checkpoints, custody: custody.NewServers(m.Job.NumPS),
		fleet: m.fleet, contacts: m.contacts, work: m.work, evaluations: m.evaluations, handover: m.handover,
		background: m.background}
	for i := range m.Job.NumPS {
		s.lines = append(s.lines, &line{index: i, wake: make(chan struct{}, 1), orders: m.firstNumber()})
	}
	return s
}

// join connects to a server's process, which has reported its address.
func (s *servers) join(index, incarnation int, r *wire.JoinRequest) error {
	address := r.Address
	l := s.lines[index]
	reason := "it was replaced"
	if l.incarnation == incarnation {
		reason = "it was started again in its pod"
	}
	if l.client == nil || l.incarnation != incarnation {
		conn, err := rpc.Connect(address, s.Dial, s.Self,
			rpc.Callee{ID: pod.ID{Role: pod.PS, Index: index}, Incarnation: incarnation})
		if err != nil {
			return fmt.Errorf("connect to ps-%d at %s: %w", index, address, err)
		}
		s.disconnect(l)
		l.incarnation, l.conn, l.client = incarnation, conn, wire.NewParameterServerClient(conn)
	}
	lost, err := s.custody.Join(index, incarnation, r.Process, address, r.Holds)
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	if lost {
		s.lostValues(index, reason)
	}
	signal(l.wake)
	return nil
}

// disconnect closes the connection of a server that has ended, in a goroutine of its own: gRPC
// waits for messages that are being sent, to a hanging server without limit. The caller holds the
// mutex.
func (s *servers) disconnect(l *line) {
	if conn := l.conn; conn != nil {
		s.background.Go(func() { conn.Close() })
	}
	l.conn, l.client = nil, nil
}

// close closes the connection. It may be called again.
func (l *line) close() {
	if l.conn != nil {
		l.conn.Close()
	}
	l.conn, l.client = nil, nil
}

// addresses returns the addresses of all servers, nil until every one has joined.
func (s *servers) addresses() []*wire.Server {
	if !s.custody.Complete() {
		return nil
	}
	var all []*wire.Server
	for i := range s.lines {
		address, incarnation, _ := s.custody.At(i)
		all = append(all, &wire.Server{Address: address, Incarnation: int32(incarnation)})
	}
	return all
}

// lostValues begins the model generation that the custody has begun because a server was lost with
// its values.
func (s *servers) lostValues(index int, reason string) {
	s.host.newGeneration(s.custody.ModelGeneration(),
		fmt.Sprintf("ps-%d was lost with its part of the model: %s", index, reason))
	for _, l := range s.lines {
		signal(l.wake)
	}
}

func (s *servers) version() int64 { return s.custody.Version() }

// update sends the servers the orders that follow from the current state.
func (s *servers) update() {
	contributors := 0
	if s.Job.Synchronous() {
		contributors = s.work.queue.Holders()
	}
	s.order(contributors, 0)
}

// order sets how the servers are to be, and tells them.
func (s *servers) order(contributors, settled int) {
	s.custody.Want(contributors, settled, s.evaluations.schedule.Release(), s.checkpoints.order())
	for i, l := range s.lines {
		if _, _, due := s.custody.Due(i); due {
			signal(l.wake)
		}
	}
}

// applied orders the barrier of an epoch, and reports whether every server has passed it. In an
// asynchronous job there is nothing to apply, but the version is still learnt.
func (s *servers) applied(epoch int) bool {
	contributors := 0
	if s.Job.Synchronous() {
		contributors = s.work.queue.Holders()
	}
	s.order(contributors, epoch)
	return s.custody.Applied(epoch)
}

// whole reports whether there is a complete model; if nothing is trained, the servers' current one.
func (s *servers) whole() bool { return s.custody.Current() }

// heard handles a server's report of its version and snapshot. A server that only the previous
// master knew is asked to join again.
func (s *servers) heard(id pod.ID, modelGeneration int64, r *wire.HeartbeatRequest, reply *wire.HeartbeatReply) {
	if id.Role != pod.PS {
		return
	}
	_, _, here := s.custody.At(id.Index)
	reply.Join = !here
	if p, ok := s.fleet.get(id); ok &&
		s.custody.Heard(id.Index, p.Incarnation, modelGeneration, r.Version, r.Snapshot) {
		s.evaluations.snapshot(id.Index, r.Snapshot)
		s.checkpoints.heard(id.Index, r.Cut, s.clock.at(time.Now()))
	}
}

func (s *servers) hasHolders() bool { return s.custody.Current() }

// copy is part of the next order to the servers.
func (s *servers) copy(custody.CutOrder) { s.update() }

func (s *servers) kept(base custody.Base) { s.custody.Kept(base) }

// damaged begins another generation because a server cannot read what this one was to begin with.
func (s *servers) damaged(index int, o custody.Order, reason error) {
	if o.ModelGeneration != s.custody.ModelGeneration() || s.stage.Over() {
		return
	}
	if s.checkpoints.damaged(o.Base, reason); s.stage.Over() {
		return
	}
	s.custody.Rebase(s.checkpoints.newest())
	s.host.newGeneration(s.custody.ModelGeneration(), fmt.Sprintf("ps-%d cannot begin with checkpoint %d: %v", index,
		o.Base.Number, reason))
	for _, l := range s.lines {
		signal(l.wake)
	}
}

// lost forgets a server that has ended, with all that it held.
func (s *servers) lost(id pod.ID, incarnation int, reason string) {
	if id.Role != pod.PS {
		return
	}
	l := s.lines[id.Index]
	if l.incarnation <= incarnation {
		s.disconnect(l)
	}
	if s.stage.Over() {
		return
	}
	if s.custody.Leave(id.Index, incarnation) {
		s.lostValues(id.Index, reason)
	}
}

// returnLeases takes back the leases of a worker that has ended, when the servers have said which
// of their records they have.
func (s *servers) returnLeases(ctx context.Context, worker int, fault string) {
	s.mu.Lock()
	held := s.work.queue.Held(worker)
	if s.stage.Over() {
		held = nil
	}
	clients := make([]wire.ParameterServerClient, len(s.lines))
	for i, l := range s.lines {
		clients[i] = l.client
	}
	modelGeneration := s.Self.ModelGeneration()
	s.mu.Unlock()
	if len(held) == 0 {
		return
	}
	progress := s.progress(ctx, clients, held)
	s.mu.Lock()
	defer s.mu.Unlock()
	// the answers are void, and no lease is held any more
	if s.Self.ModelGeneration() != modelGeneration {
		return
	}
	s.work.lose(worker, progress, fault)
	s.host.advance(time.Now())
}

func (s *servers) stragglers(overdue []int) []int { return overdue }

// blocked reports whether a server is missing, or was silent for some time.
func (s *servers) blocked() bool {
	now := s.clock.at(time.Now())
	for i := range s.lines {
		if c := s.contacts.of(pod.ID{Role: pod.PS, Index: i}); !c.heard.IsZero() && now.Sub(c.heard) > hush {
			return true
		}
	}
	return !s.custody.Current()
}

func (s *servers) silence(pod.Role) time.Duration {
	return max(s.Job.TaskTimeout.Duration, silenceLeast)
}

// command sends a server its orders, one at a time, until it accepts them.
func (s *servers) command(ctx context.Context, l *line) {
	for ctx.Err() == nil {
		s.mu.Lock()
		want, incarnation, due := s.custody.Due(l.index)
		client := l.client
		due = due && client != nil && l.incarnation == incarnation
		if due {
			l.orders++
		}
		number := l.orders
		s.mu.Unlock()
		if !due {
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			continue
		}
		reply, err := control(ctx, client, want, number)
		if status.Code(err) == codes.DataLoss {
			s.checkpoints.seek(ctx, want.Base)
			s.mu.Lock()
			s.damaged(l.index, want, errors.New(status.Convert(err).Message()))
			s.host.advance(time.Now())
			s.mu.Unlock()
			continue
		}
		if err != nil {
			s.Log.Debug("Server does not answer", "server", l.index, "error", err)
			pause(ctx, controlPause)
			continue
		}
		s.mu.Lock()
		s.custody.Acknowledged(l.index, incarnation, want, reply.Version)
		s.host.advance(time.Now())
		s.mu.Unlock()
	}
}

func control(ctx context.Context, client wire.ParameterServerClient, want custody.Order,
	number int64) (*wire.ControlReply, error) {
	ctx, cancel := context.WithTimeout(ctx, controlLimit)
	defer cancel()
	return client.Control(ctx, &wire.ControlRequest{
		Contributors:    int32(want.Contributors),
		Settled:         int32(want.Settled),
		ReleaseSnapshot: want.Release,
		ModelGeneration: want.ModelGeneration,
		Number:          number,
		Base:            wireBase(want.Base),
		Cut:             want.Cut.Number,
		Claim:           want.Cut.Claim,
		Target:          target(want.Cut),
	}, grpc.WaitForReady(true))
}

// target returns the ledger that all servers must have for a checkpoint, nil if it is not known
// yet.
func target(o custody.CutOrder) []byte {
	if o.Target == nil {
		return nil
	}
	return o.Target.Append(nil)
}

// progress asks every server how many records it has of the tasks of some leases, and returns the
// least by lease. A server that does not answer counts as having none.
func (s *servers) progress(ctx context.Context, clients []wire.ParameterServerClient,
	held []task.Lease) map[int64]int64 {
	ctx, cancel := context.WithTimeout(ctx, progressLimit)
	defer cancel()
	request, leases := new(wire.ProgressRequest), []int64(nil)
	for _, l := range held {
		if l.Kind == task.Training {
			request.Tasks = append(request.Tasks, &wire.TaskKey{Epoch: int32(l.Epoch), Number: int64(l.Number)})
			leases = append(leases, l.ID)
		}
	}
	answers := make([][]int64, len(clients))
	var asked sync.WaitGroup
	for i, client := range clients {
		if client == nil {
			continue
		}
		asked.Go(func() {
			reply, err := client.Progress(ctx, request, grpc.WaitForReady(true))
			if err == nil && len(reply.Done) != len(leases) {
				err = fmt.Errorf("answered for %d of %d tasks", len(reply.Done), len(leases))
			}
			if err != nil {
				s.Log.Warn("A server did not report how far a lost worker came", "server", i, "error", err)
				return
			}
			answers[i] = reply.Done
		})
	}
	asked.Wait()
	return least(leases, answers)
}

// least returns how many records all servers have of each lease; one that has not answered has
// none.
func least(leases []int64, answers [][]int64) map[int64]int64 {
	all := make(map[int64]int64, len(leases))
	for i, id := range leases {
		for k, answer := range answers {
			switch {
			case answer == nil:
				all[id] = 0
			case k == 0:
				all[id] = answer[i]
			default:
				all[id] = min(all[id], answer[i])
			}
		}
	}
	return all
}

// pause waits for d, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
