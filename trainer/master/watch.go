package master

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// viewerHost has the calls of users that change nothing.
type viewerHost interface {
	Status(context.Context, *wire.StatusRequest) (*wire.JobStatus, error)
	Stacks(context.Context, *wire.StacksRequest) (*wire.StacksReply, error)
	Watch(context.Context, *wire.WatchRequest) (*wire.WatchReply, error)
}

// viewer serves these calls, and refuses all others.
type viewer struct {
	wire.UnimplementedJobServer
	host viewerHost
}

// Status implements [wire.JobServer].
func (v viewer) Status(ctx context.Context, r *wire.StatusRequest) (*wire.JobStatus, error) {
	return v.host.Status(ctx, r)
}

// Stacks implements [wire.JobServer].
func (v viewer) Stacks(ctx context.Context, r *wire.StacksRequest) (*wire.StacksReply, error) {
	return v.host.Stacks(ctx, r)
}

// Watch implements [wire.JobServer].
func (v viewer) Watch(ctx context.Context, r *wire.WatchRequest) (*wire.WatchReply, error) {
	return v.host.Watch(ctx, r)
}

// serveViewers serves [Config].Viewers, if there is such a listener, until the returned function is
// called, which waits for the end. The job does not depend on it.
func (m *master) serveViewers() (end func()) {
	if m.Viewers == nil {
		return func() {}
	}
	srv := rpc.NewOpenServer()
	wire.RegisterJobServer(srv, viewer{host: m})
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := srv.Serve(m.Viewers); err != nil {
			m.Log.Warn("Users cannot look at the job through the API server", "error", err)
		}
	})
	return func() {
		srv.Stop()
		serving.Wait()
	}
}

// Watch implements [wire.JobServer].
func (m *master) Watch(_ context.Context, r *wire.WatchRequest) (*wire.WatchReply, error) {
	reply := &wire.WatchReply{Status: m.status(time.Now())}
	past, drawn := m.history()
	past.Entries = slices.DeleteFunc(past.Entries, func(e journal.Entry) bool { return e.N <= r.After })
	var err error
	if reply.Journal, err = json.Marshal(past); err != nil {
		return nil, fmt.Errorf("encode the journal: %w", err)
	}
	if reply.Curve, err = json.Marshal(drawn); err != nil {
		return nil, fmt.Errorf("encode the curves: %w", err)
	}
	return reply, nil
}

// history returns the present journal and curves.
func (m *master) history() (journal.Snapshot, curve.Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.events.journal.Snapshot(), m.progress.curve.Snapshot()
}
