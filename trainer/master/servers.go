package master

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	progressLimit = time.Second            // what servers have to say how far a lost worker came
	controlLimit  = 2 * time.Second        // what a server has to answer an order
	controlPause  = 100 * time.Millisecond // before an order is repeated
)

// server is the master's end of one parameter server. The master's mutex guards all but index and wake.
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

func newServer(index int) *server {
	return &server{index: index, wake: make(chan struct{}, 1), want: order{known: true}}
}

// connect makes the server one that listens at address. What was told to the one before is forgotten.
func (m *master) connect(s *server, address string) error {
	dial := []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 20 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
	}
	if m.Dial != nil {
		dial = append(dial, grpc.WithContextDialer(m.Dial))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, dial...)
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
func (m *master) allJoined() bool {
	for _, s := range m.servers {
		if s.address == "" {
			return false
		}
	}
	return true
}

// version is the newest that any server has.
func (m *master) version() int64 {
	var newest int64
	for _, s := range m.servers {
		newest = max(newest, s.version)
	}
	return newest
}

// order makes what the servers are to know what is so. The mutex is held.
func (m *master) order() {
	contributors := 0
	if m.Job.Synchronous() {
		contributors = m.queue.Holders()
	}
	for _, s := range m.servers {
		if s.want.contributors != contributors || s.want.release != m.evals.Release() {
			s.want.contributors, s.want.release = contributors, m.evals.Release()
			signal(s.wake)
		}
	}
}

// flushed orders the barrier of an epoch, and says whether every server is through it.
// In an asynchronous job there is nothing to apply then; the version is still learnt.
func (m *master) flushed(epoch int) bool {
	all := true
	for _, s := range m.servers {
		if s.want.flush < epoch {
			s.want.flush = epoch
			signal(s.wake)
		}
		all = all && s.told.flush >= epoch
	}
	return all
}

// command tells a server its orders, one at a time, as long as it takes.
func (m *master) command(ctx context.Context, s *server) {
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

// applied asks every server how much of a worker's leases it has, and returns the least by
// lease. A server that does not answer, or has started anew, has nothing.
func (m *master) applied(ctx context.Context, worker int) map[int64]int64 {
	ctx, cancel := context.WithTimeout(ctx, progressLimit)
	defer cancel()
	m.mu.Lock()
	clients := make([]wire.ParameterServerClient, len(m.servers))
	for i, s := range m.servers {
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
