package master

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	progressLimit = 3 * time.Second        // what servers have to say how far a lost worker came
	controlLimit  = 2 * time.Second        // what a server has to answer an order
	controlPause  = 100 * time.Millisecond // before an order is repeated
	silenceLeast  = 5 * time.Second        // of a pod that is taken for lost, however short its tasks may be
)

// servers is the strategy of parameter servers.
type servers struct {
	*master
	all []*server
}

// server is the master's end of one of them. The master's mutex guards all but index and wake.
type server struct {
	index int
	wake  chan struct{} // want may differ from told

	address string // "" before it has joined
	conn    *grpc.ClientConn
	client  wire.ParameterServerClient
	version int64
	want    order // the latest wins: what was not told in time never is
	told    order // acknowledged
}

// order is what a server has to know and do.
type order struct {
	contributors int   // workers with a training lease; kept 0 where gradients are not gathered
	flush        int   // epochs that are settled: what was gathered in them is applied
	release      int64 // snapshots up to this version
	known        bool  // false: nothing was told yet
}

func newServers(m *master) *servers {
	s := &servers{master: m}
	for i := range m.Job.NumPS {
		s.all = append(s.all, newServer(i))
	}
	return s
}

func newServer(index int) *server {
	return &server{index: index, wake: make(chan struct{}, 1), want: order{known: true}}
}

// connect makes the server one that listens at address. What was told to the one before is forgotten.
func (m *servers) connect(s *server, address string) error {
	conn, err := wire.Connect(address, m.Dial)
	if err != nil {
		return fmt.Errorf("connect to server %d at %s: %w", s.index, address, err)
	}
	s.disconnect()
	s.address, s.conn, s.client = address, conn, wire.NewParameterServerClient(conn)
	signal(s.wake)
	return nil
}

// disconnect forgets a server that is gone. Its address is kept: the next one has the same.
func (s *server) disconnect() {
	s.close()
	s.conn, s.client, s.told = nil, nil, order{}
}

func (s *server) close() {
	if s.conn != nil {
		s.conn.Close()
	}
}

// allJoined says that every server has an address.
func (m *servers) allJoined() bool {
	for _, s := range m.all {
		if s.address == "" {
			return false
		}
	}
	return true
}

// addresses of all servers, nil until every one has joined.
func (m *servers) addresses() []string {
	if !m.allJoined() {
		return nil
	}
	var all []string
	for _, s := range m.all {
		all = append(all, s.address)
	}
	return all
}

// resumes is the version that a server goes on from, 0 if it is the first of its index. One that is lost before it
// has told its version was trained all the same, if others have been, and so are the workers that have its values.
func (m *servers) resumes(index int) int64 {
	if v := m.all[index].version; v > 0 || m.version() == 0 && m.queue.Stats().Done == 0 {
		return v
	}
	return 1
}

// version is the newest that any server has.
func (m *servers) version() int64 {
	var newest int64
	for _, s := range m.all {
		newest = max(newest, s.version)
	}
	return newest
}

// update makes what the servers are to know what is so.
func (m *servers) update() {
	contributors := 0
	if m.Job.Synchronous() {
		contributors = m.queue.Holders()
	}
	for _, s := range m.all {
		if s.want.contributors != contributors || s.want.release != m.evals.Release() {
			s.want.contributors, s.want.release = contributors, m.evals.Release()
			signal(s.wake)
		}
	}
}

// applied orders the barrier of an epoch, and says whether every server is through it.
// In an asynchronous job there is nothing to apply then; the version is still learnt.
func (m *servers) applied(epoch int) bool {
	all := true
	for _, s := range m.all {
		if s.want.flush < epoch {
			s.want.flush = epoch
			signal(s.wake)
		}
		all = all && s.told.flush >= epoch
	}
	return all
}

// whole says that there is a model: with nothing to train on it is the servers' as it stands.
func (m *servers) whole() bool { return m.allJoined() }

// heard takes a server's word of its version and snapshot.
func (m *servers) heard(id pod.ID, r *wire.HeartbeatRequest, _ *wire.HeartbeatReply) {
	if id.Role == pod.PS {
		s := m.all[id.Index]
		s.version = max(s.version, r.Version)
		m.snapshot(id.Index, r.Snapshot)
		if r.Snapshot > 0 && r.Snapshot <= s.told.release { // an order is a level: told until it is observed
			s.told.release = 0
			signal(s.wake)
		}
	}
}

// gone forgets a server that has ended. It took with it all that it held.
func (m *servers) gone(id pod.ID, _ string) {
	if id.Role == pod.PS {
		m.all[id.Index].disconnect()
		if !m.over {
			m.snapshot(id.Index, 0)
		}
	}
}

// takeBack takes the leases of a worker that has ended, when the servers have said what they have of them.
func (m *servers) takeBack(ctx context.Context, worker int, charge string) {
	m.mu.Lock()
	holds := !m.over && len(m.queue.Held(worker)) > 0
	m.mu.Unlock()
	if !holds {
		return
	}
	progress := m.progress(ctx, worker)
	m.mu.Lock()
	defer m.mu.Unlock()
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
func (m *servers) command(ctx context.Context, s *server) {
	for ctx.Err() == nil {
		m.mu.Lock()
		client, want, told := s.client, s.want, s.told
		m.mu.Unlock()
		if client == nil || want == told {
			select {
			case <-s.wake:
			case <-ctx.Done():
			}
			continue
		}
		reply, err := control(ctx, client, want, told)
		if err != nil {
			m.Log.Debug("Server does not answer", "server", s.index, "error", err)
			pause(ctx, controlPause)
			continue
		}
		m.mu.Lock()
		if s.client == client { // not replaced meanwhile
			s.told = want
			s.version = max(s.version, reply.Version)
			m.advance(time.Now())
		}
		m.mu.Unlock()
	}
}

func control(ctx context.Context, client wire.ParameterServerClient, want, told order) (*wire.ControlReply, error) {
	ctx, cancel := context.WithTimeout(ctx, controlLimit)
	defer cancel()
	return client.Control(ctx, &wire.ControlRequest{
		Contributors:    int32(want.contributors),
		Flush:           want.flush > told.flush,
		ReleaseSnapshot: want.release,
	}, grpc.WaitForReady(true))
}

// progress asks every server how much of a worker's leases it has, and returns the least by
// lease. A server that does not answer, or has started anew, has nothing.
func (m *servers) progress(ctx context.Context, worker int) map[int64]int64 {
	ctx, cancel := context.WithTimeout(ctx, progressLimit)
	defer cancel()
	m.mu.Lock()
	clients := make([]wire.ParameterServerClient, len(m.all))
	for i, s := range m.all {
		clients[i] = s.client
	}
	m.mu.Unlock()
	answers := make([]map[int64]int64, len(clients))
	var asked sync.WaitGroup
	for i, client := range clients {
		if client == nil {
			continue
		}
		asked.Go(func() {
			reply, err := client.Progress(ctx, &wire.ProgressRequest{Worker: int32(worker)}, grpc.WaitForReady(true))
			if err != nil {
				m.Log.Warn("Server does not say how far a lost worker came", "server", i, "worker", worker, "error", err)
				return
			}
			answers[i] = make(map[int64]int64)
			for _, l := range reply.Leases {
				answers[i][l.Lease] = l.Done
			}
		})
	}
	asked.Wait()
	return least(answers)
}

// least is the intersection of the answers, by the least value.
func least(answers []map[int64]int64) map[int64]int64 {
	if len(answers) == 0 {
		return nil
	}
	all := maps.Clone(answers[0])
	for _, answer := range answers[1:] {
		maps.DeleteFunc(all, func(lease, _ int64) bool { _, ok := answer[lease]; return !ok })
		for lease := range all {
			all[lease] = min(all[lease], answer[lease])
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
