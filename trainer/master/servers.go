package master

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/custody"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	progressLimit = 3 * time.Second        // what servers have to say how far a lost worker came
	controlLimit  = 2 * time.Second        // what a server has to answer an order
	controlPause  = 100 * time.Millisecond // before an order is repeated
	silenceLeast  = 5 * time.Second        // of a pod that is taken for lost, however short its tasks may be
)

// servers is the strategy of parameter servers: the custody decides, this talks to them.
type servers struct {
	*master
	custody *custody.Servers
	lines   []*line
}

// line is the master's connection to one of them. The master's mutex guards all but index and wake.
type line struct {
	index       int
	wake        chan struct{} // an order may be due
	incarnation int           // of the server that it leads to
	conn        *grpc.ClientConn
	client      wire.ParameterServerClient // nil: no server is there
	orders      int64                      // given on it
}

func newServers(m *master) *servers {
	s := &servers{master: m, custody: custody.NewServers(m.Job.NumPS)}
	for i := range m.Job.NumPS {
		s.lines = append(s.lines, &line{index: i, wake: make(chan struct{}, 1)})
	}
	return s
}

// join takes a server that listens at address.
func (m *servers) join(index, incarnation int, address string) error {
	l := m.lines[index]
	if l.client == nil || l.incarnation != incarnation {
		conn, err := wire.Connect(address, m.Dial, m.Self, wire.Callee{ID: pod.ID{Role: pod.PS, Index: index}, Incarnation: incarnation})
		if err != nil {
			return fmt.Errorf("connect to server %d at %s: %w", index, address, err)
		}
		l.close()
		l.incarnation, l.conn, l.client = incarnation, conn, wire.NewParameterServerClient(conn)
	}
	lost, err := m.custody.Join(index, incarnation, address)
	if err != nil {
		return status.Error(codes.NotFound, err.Error())
	}
	if lost {
		m.lostValues(index, "another has taken its place")
	}
	signal(l.wake)
	return nil
}

// close ends the connection. It may be called again.
func (l *line) close() {
	if l.conn != nil {
		l.conn.Close()
	}
	l.conn, l.client = nil, nil
}

// addresses of all servers, nil until every one has joined.
func (m *servers) addresses() []*wire.Server {
	if !m.custody.Complete() {
		return nil
	}
	var all []*wire.Server
	for i := range m.lines {
		address, incarnation, _ := m.custody.At(i)
		all = append(all, &wire.Server{Address: address, Incarnation: int32(incarnation)})
	}
	return all
}

// lostValues begins the life of the model that the custody has raised, since a server is gone with its values.
func (m *servers) lostValues(index int, reason string) {
	m.anew(m.custody.Life(), fmt.Sprintf("server %d was lost with its part of the model: %s", index, reason))
	for _, l := range m.lines {
		signal(l.wake)
	}
}

func (m *servers) version() int64 { return m.custody.Version() }

// update makes what the servers are to know what is so.
func (m *servers) update() {
	contributors := 0
	if m.Job.Synchronous() {
		contributors = m.queue.Holders()
	}
	m.order(contributors, 0)
}

// order has every server told how things are to be.
func (m *servers) order(contributors, settled int) {
	m.custody.Want(contributors, settled, m.evals.Release())
	for i, l := range m.lines {
		if _, _, due := m.custody.Due(i); due {
			signal(l.wake)
		}
	}
}

// applied orders the barrier of an epoch, and says whether every server is through it.
// In an asynchronous job there is nothing to apply then; the version is still learnt.
func (m *servers) applied(epoch int) bool {
	contributors := 0
	if m.Job.Synchronous() {
		contributors = m.queue.Holders()
	}
	m.order(contributors, epoch)
	return m.custody.Applied(epoch)
}

// whole says that there is a model: with nothing to train on it is the servers' as it stands.
func (m *servers) whole() bool { return m.custody.Current() }

// heard takes a server's word of its version and snapshot.
func (m *servers) heard(id pod.ID, life int64, r *wire.HeartbeatRequest, _ *wire.HeartbeatReply) {
	if id.Role != pod.PS {
		return
	}
	if p, ok := m.table.Get(id); ok && m.custody.Heard(id.Index, p.Launch, life, r.Version, r.Snapshot) {
		m.snapshot(id.Index, r.Snapshot)
	}
}

// gone forgets a server that has ended. It took with it all that it held.
func (m *servers) gone(id pod.ID, launch int, reason string) {
	if id.Role != pod.PS {
		return
	}
	l := m.lines[id.Index]
	if l.incarnation <= launch {
		l.close()
	}
	if m.over {
		return
	}
	if m.custody.Leave(id.Index, launch) {
		m.lostValues(id.Index, reason)
	}
}

// takeBack takes the leases of a worker that has ended, when the servers have said what they have of them.
func (m *servers) takeBack(ctx context.Context, worker int, charge string) {
	m.mu.Lock()
	held := m.queue.Held(worker)
	if m.over {
		held = nil
	}
	clients := make([]wire.ParameterServerClient, len(m.lines))
	for i, l := range m.lines {
		clients[i] = l.client
	}
	life := m.Self.Life()
	m.mu.Unlock()
	if len(held) == 0 {
		return
	}
	progress := m.progress(ctx, clients, held)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.Self.Life() != life { // what they had is void, and nothing is held any more
		return
	}
	m.lose(worker, progress, charge)
	m.advance(time.Now())
}

func (m *servers) departs(int)                    {}
func (m *servers) dismiss(pod.ID, string)         {}
func (m *servers) stragglers(overdue []int) []int { return overdue }
func (m *servers) silence(pod.Role) time.Duration {
	return max(m.Job.TaskTimeout.Duration, silenceLeast)
}
func (m *servers) deadline() (at time.Time, ok bool) { return }
func (m *servers) tick()                             {}
func (m *servers) describe(*wire.JobStatus)          {}

// command tells a server its orders, one at a time, as long as it takes.
func (m *servers) command(ctx context.Context, l *line) {
	for ctx.Err() == nil {
		m.mu.Lock()
		want, incarnation, due := m.custody.Due(l.index)
		client := l.client
		due = due && client != nil && l.incarnation == incarnation
		if due {
			l.orders++
		}
		number := l.orders
		m.mu.Unlock()
		if !due {
			select {
			case <-l.wake:
			case <-ctx.Done():
			}
			continue
		}
		reply, err := control(ctx, client, want, number)
		if err != nil {
			m.Log.Debug("Server does not answer", "server", l.index, "error", err)
			pause(ctx, controlPause)
			continue
		}
		m.mu.Lock()
		m.custody.Told(l.index, incarnation, want, reply.Version)
		m.advance(time.Now())
		m.mu.Unlock()
	}
}

func control(ctx context.Context, client wire.ParameterServerClient, want custody.Order, number int64) (*wire.ControlReply, error) {
	ctx, cancel := context.WithTimeout(ctx, controlLimit)
	defer cancel()
	return client.Control(ctx, &wire.ControlRequest{
		Contributors:    int32(want.Contributors),
		Settled:         int32(want.Settled),
		ReleaseSnapshot: want.Release,
		Life:            want.Life,
		Number:          number,
	}, grpc.WaitForReady(true))
}

// progress asks every server how much it has of the tasks of some leases, and returns the least by
// lease. A server that does not answer has nothing.
func (m *servers) progress(ctx context.Context, clients []wire.ParameterServerClient, held []task.Lease) map[int64]int64 {
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
				err = fmt.Errorf("it answers about %d tasks of %d", len(reply.Done), len(leases))
			}
			if err != nil {
				m.Log.Warn("Server does not say how far a lost worker came", "server", i, "error", err)
				return
			}
			answers[i] = reply.Done
		})
	}
	asked.Wait()
	return least(leases, answers)
}

// least is what all have of each lease; who has not answered has nothing.
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

// pause waits, or until ctx is done.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
