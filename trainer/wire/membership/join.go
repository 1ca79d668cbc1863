package membership

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Member is a worker as a member of its job.
type Member struct {
	Master wire.MasterClient
	Self   *rpc.Self
	// closed when the worker is asked to leave; nil: it never is
	Leave <-chan struct{}
	// how long the master may be unreachable before the worker ends; 0: without limit
	Abandoned time.Duration
}

// Joined is the master's answer to a worker that joins.
type Joined struct {
	Job *job.Job
	// all parameter servers, in order of index; empty for a job without them
	Servers []*wire.Server
	// checkpoint that the model begins with; nil: it has none
	Base *wire.Base
	// as far as the master knows, the processes of the job's program keep their state from one
	// world to the next
	Keeps bool
}

// errNoServers is the reason to join again, as the master has answered too early.
var errNoServers = errors.New("not all parameter servers have joined yet")

// Join asks the master for the job until the master answers and, if the job has parameter servers,
// until all of them have joined. It sets the worker's model generation to the master's. It returns
// [ErrLeft] if the worker is asked to leave before.
func (m Member) Join(ctx context.Context) (Joined, error) {
	ctx, stop := m.BeforeWork(ctx)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var joined Joined
	answered := time.Now()
	err := Retry(ctx, func() error {
		reply, err := m.Master.Join(ctx, &wire.JoinRequest{Role: wire.Role_WORKER,
			Index: int32(m.Self.Header().Index), Pid: int32(os.Getpid())})
		if away := time.Since(answered); err != nil && m.Abandoned > 0 && away >= m.Abandoned {
			cancel(fmt.Errorf("%w for %v", ErrAbandoned, away.Round(time.Second)))
		}
		if err != nil {
			return err
		}
		answered = time.Now()
		j := new(job.Job)
		if err := json.Unmarshal(reply.Job, j); err != nil {
			return status.Errorf(codes.InvalidArgument, "job of the master: %v", err)
		}
		if len(reply.Servers) == 0 && j.Trains() && j.Strategy != job.AllReduce {
			return errNoServers
		}
		joined = Joined{Job: j, Servers: reply.Servers, Base: reply.Base, Keeps: reply.Keeps}
		m.Self.SetModelGeneration(reply.ModelGeneration)
		return nil
	})
	return joined, err
}

// BeforeWork returns the context of what a worker does before its work. It ends with [ErrLeft] as
// soon as the worker is asked to leave, because the worker has nothing to finish then.
func (m Member) BeforeWork(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-m.Leave:
			cancel(ErrLeft)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}
