package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/data"
	"github.com/elasticdl/elasticdl/trainer/identity"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/mesh"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/ps"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/zoo"
)

// Options is the role of one worker in a job.
type Options struct {
	Master  *grpc.ClientConn
	Index   int
	Threads int // of the engine, if the job does not say
	// Dial opens connections to the servers and to other workers; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Listen is where other workers of a ring reach this one.
	Listen func() (net.Listener, error)
	// Leave is closed when the worker is asked to leave; nil: it is not.
	Leave <-chan struct{}
	// Abandoned is how long the master may be away; 0: for ever.
	Abandoned time.Duration
	Log       *slog.Logger
}

// Main joins the master, builds the model that the job names, opens its data
// and works until the job has ended.
func Main(ctx context.Context, o Options) error {
	master := wire.NewMasterClient(o.Master)
	setup, stop := o.setup(ctx)
	defer stop()
	j, servers, err := join(setup, master, o)
	if err != nil {
		return err
	}
	model, err := zoo.Lookup(j.ModelDef)
	if err != nil {
		return err
	}
	threads := j.NumThreads
	if threads == 0 {
		threads = o.Threads
	}
	engine, err := zoo.NewEngine(model, threads, j.Seed)
	if err != nil {
		return fmt.Errorf("build model %s: %w", j.ModelDef, err)
	}
	defer engine.Close()
	engine.SetNoise(j.Seed + uint64(o.Index) + 1)

	cfg := Config{Index: o.Index, Job: j, Model: model, Engine: engine, Master: master, Leave: o.Leave, Abandoned: o.Abandoned, Log: o.Log}
	for _, d := range []struct {
		path   string
		reader *data.Reader
	}{{j.TrainingData, &cfg.Training}, {j.ValidationData, &cfg.Validation}} {
		if d.path == "" {
			continue
		}
		if *d.reader, err = data.Open(d.path, j.DataReaderParams); err != nil {
			return err
		}
		defer (*d.reader).Close()
	}
	reaches := slog.Int("servers", len(servers))
	if j.Strategy == job.AllReduce {
		listener, err := o.Listen()
		if err != nil {
			return fmt.Errorf("listen for the other workers: %w", err)
		}
		cfg.Address = listener.Addr().String()
		reaches = slog.String("address", cfg.Address)
		cfg.Peers = mesh.Listen(mesh.Config{
			Listener: listener, Silence: j.HeartbeatTimeout.Duration, Dial: o.Dial, Log: o.Log,
			Self: func() identity.Header { return identity.Header{Role: pod.Worker, Index: o.Index, Incarnation: 1} },
		})
		defer cfg.Peers.Close()
		cfg.Initial = func() ([]float32, error) {
			again, err := zoo.NewEngine(model, 1, j.Seed)
			if err != nil {
				return nil, err
			}
			defer again.Close()
			return again.Values(), nil
		}
	} else {
		cfg.Servers, err = ps.Dial(setup, ps.ClientConfig{Worker: o.Index, Addresses: servers, Layout: engine.Layout(), Dial: o.Dial})
		if err != nil {
			return cmp.Or(context.Cause(setup), err)
		}
		defer cfg.Servers.Close()
	}
	o.Log.Info("Worker started", "model", j.ModelDef, "parameters", engine.Layout().Len(), "threads", max(1, threads), reaches)
	return Run(ctx, cfg)
}

// setup is the context of what comes before the work: who is asked to leave meanwhile has nothing to end.
func (o Options) setup(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-o.Leave:
			cancel(ErrLeft)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// join asks the master for the job until it answers, with every server's address if there are servers.
func join(ctx context.Context, master wire.MasterClient, o Options) (*job.Job, []string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var j *job.Job
	var servers []string
	answered := time.Now()
	err := retry(ctx, func() error {
		reply, err := master.Join(ctx, &wire.JoinRequest{Role: wire.Role_WORKER, Index: int32(o.Index), Pid: int32(os.Getpid())})
		if away := time.Since(answered); err != nil && o.Abandoned > 0 && away >= o.Abandoned {
			cancel(fmt.Errorf("%w for %v", ErrAbandoned, away.Round(time.Second)))
		}
		if err != nil {
			return err
		}
		answered = time.Now()
		j = new(job.Job)
		if err := json.Unmarshal(reply.Job, j); err != nil {
			return status.Errorf(codes.InvalidArgument, "job of the master: %v", err)
		}
		if servers = reply.PsAddresses; len(servers) == 0 && j.Strategy != job.AllReduce {
			return errNoServers
		}
		return nil
	})
	return j, servers, err
}

var errNoServers = errors.New("the parameter servers have not all joined yet")
