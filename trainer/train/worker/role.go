package worker

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/train/data"
	"github.com/elasticdl/elasticdl/trainer/train/mesh"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Options are the settings of one worker of a job.
type Options struct {
	Master wire.MasterClient
	Self   *rpc.Self
	// threads of the engine, if the job does not set them
	Threads int
	// Dial opens connections to the servers and to other workers; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Listen opens the port at which other workers of a ring reach this one.
	Listen func() (net.Listener, error)
	// Leave is closed when the worker is asked to leave; nil: it never is.
	Leave <-chan struct{}
	// Abandoned is the time that the master may be unreachable before the worker ends; 0: without
	// limit.
	Abandoned time.Duration
	// Open opens a directory of checkpoints or of an export; nil: on this machine.
	Open checkpoint.Opener
	// Program does the work of a job that runs a program; nil: such jobs are refused. keeps says
	// whether, as far as the master knows, the program's processes keep their state from one world
	// to the next.
	Program func(ctx context.Context, j *job.Job, keeps bool) error
	Log     *slog.Logger
}

// Main joins the master, builds the model that the job names, opens its data and works until the
// job has ended.
func Main(ctx context.Context, o Options) error { return Work(ctx, o, o.prepare) }

// Work joins the master, has prepare make what the job needs, and works until the job has ended.
// The function that prepare returns releases what it made. The worker's identity and connections
// come from o.
func Work(ctx context.Context, o Options, prepare func(context.Context, *job.Job) (Config, func(), error)) error {
	setup, stop := o.setup(ctx)
	defer stop()
	j, servers, base, keeps, err := join(setup, o)
	if err != nil {
		return err
	}
	// a worker that is asked to leave before is in no world yet
	if j.Runs() {
		if o.Program == nil {
			return fmt.Errorf("job %s runs a program, which this worker does not support", j.Name)
		}
		return o.Program(ctx, j, keeps)
	}
	cfg, done, err := prepare(setup, j)
	if err != nil {
		return err
	}
	defer done()
	cfg.Index, cfg.Self, cfg.Job, cfg.Master = o.Self.Header().Index, o.Self, j, o.Master
	cfg.Leave, cfg.Abandoned, cfg.Log = o.Leave, o.Abandoned, o.Log
	switch {
	case !j.Trains():
		if err := o.load(setup, &cfg, base); err != nil {
			return err
		}
		o.Log.Info("Worker started", "model", j.ModelDef, "parameters", cfg.Engine.Layout().Len(),
			"version", cfg.Version)
		return o.serve(ctx, setup, cfg, nil)
	case j.Strategy != job.AllReduce:
		o.Log.Info("Worker started", "model", j.ModelDef, "parameters", cfg.Engine.Layout().Len(),
			"servers", len(servers))
		return o.serve(ctx, setup, cfg, servers)
	}
	if cfg.Peers == nil {
		listener, err := o.Listen()
		if err != nil {
			return fmt.Errorf("listen for the other workers: %w", err)
		}
		cfg.Address = listener.Addr().String()
		cfg.Peers = mesh.Listen(mesh.Config{
			Listener: listener, Silence: j.HeartbeatTimeout.Duration, Dial: o.Dial, Log: o.Log,
			Self: o.Self.Header, Credential: o.Self.Credential(), Plain: j.PlainData(),
		})
		defer cfg.Peers.Close()
	}
	o.Log.Info("Worker started", "model", j.ModelDef, "parameters", cfg.Engine.Layout().Len(), "address", cfg.Address)
	return Run(ctx, cfg)
}

// prepare builds the model that the job names, and opens its data. done closes the data.
func (o Options) prepare(ctx context.Context, j *job.Job) (cfg Config, done func(), err error) {
	var open []io.Closer
	closeAll := func() {
		for _, c := range slices.Backward(open) {
			c.Close()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	model, err := zoo.Lookup(j.ModelDef)
	if err != nil {
		return cfg, nil, err
	}
	engine, err := zoo.NewEngine(model, cmp.Or(j.NumThreads, o.Threads), j.Seed)
	if err != nil {
		return cfg, nil, fmt.Errorf("build model %s: %w", j.ModelDef, err)
	}
	open = append(open, closer(engine.Close))
	cfg = Config{Model: model, Engine: engine, Predict: engine.Predict, Open: o.Open,
		Initial: func() ([]float32, error) {
			_, values, err := ps.Initial(ctx, j, model, o.Open, o.Log)
			return values, err
		}}
	// without a ring the servers read them
	if j.Strategy == job.AllReduce && j.CheckpointDirForInit != "" {
		values, err := cfg.Initial()
		if err != nil {
			return cfg, nil, cmp.Or(context.Cause(ctx), err)
		}
		copy(engine.Values(), values)
	}
	var training *data.Files
	for _, d := range []struct {
		path   string
		reader *data.Reader
	}{{j.TrainingData, &cfg.Training}, {j.ValidationData, &cfg.Validation}, {j.PredictionData, &cfg.Prediction}} {
		if d.path == "" {
			continue
		}
		var files *data.Files
		err = outage.Patience{Log: o.Log}.Reach(ctx, func() (err error) {
			files, err = data.Open(d.path, j.DataReaderParams)
			return err
		})
		if err != nil {
			return cfg, nil, cmp.Or(context.Cause(ctx), err)
		}
		if training != nil { // the columns of CSV files mean the same
			files.Like(training)
		} else if d.reader == &cfg.Training {
			training = files
		}
		*d.reader = files
		open = append(open, *d.reader)
	}
	return cfg, closeAll, nil
}

// closer is a Close method without an error.
type closer func()

func (c closer) Close() error {
	c()
	return nil
}

// waits logs the beginning and the end of a wait for a server.
func (o Options) waits(w ps.Wait) {
	if w.Over {
		o.Log.Info("The parameter server answers again", "server", w.Server, "address", w.Address)
		return
	}
	o.Log.Warn("Waiting for a parameter server", "server", w.Server, "address", w.Address, "error", w.Err)
}

// serve works with parameter servers, or without, through all model generations. When a generation
// ends, what the worker holds is void, and it begins again with only its engine and data.
func (o Options) serve(ctx, setup context.Context, cfg Config, servers []ps.Address) error {
	for {
		var err error
		if cfg.Job.Trains() {
			cfg.Servers, err = ps.Dial(setup, ps.ClientConfig{Self: o.Self, Servers: servers,
				Layout: cfg.Engine.Layout(), Dial: o.Dial, PlainData: cfg.Job.PlainData(), OnWait: o.waits})
		}
		if err == nil {
			err = Run(ctx, cfg)
			if cfg.Servers != nil {
				cfg.Servers.Close()
			}
		} else if setup.Err() != nil {
			err = context.Cause(setup)
		}
		if !errors.Is(err, ps.ErrStaleModel) || ctx.Err() != nil {
			return err
		}
		o.Log.Info("Starting over: the model has begun another generation", "reason", err)
		select {
		case <-time.After(anewPause):
		case <-setup.Done():
			return context.Cause(setup)
		}
		if _, servers, _, _, err = join(setup, o); err != nil {
			return err
		}
	}
}

// anewPause is the pause before the worker asks the master how things stand: the servers may learn
// of the new generation later than the worker.
const anewPause = 100 * time.Millisecond

// setup returns the context of what comes before the work. It ends as soon as the worker is asked
// to leave, which then has nothing to finish.
func (o Options) setup(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-o.Leave:
			cancel(membership.ErrLeft)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// join asks the master for the job until it answers, with the address of every server, if the job
// has servers, and the checkpoint that the model begins with. It sets the worker's generation of
// the model to the master's.
func join(ctx context.Context, o Options) (*job.Job, []ps.Address, *wire.Base, bool, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var j *job.Job
	var servers []ps.Address
	var base *wire.Base
	var keeps bool
	answered := time.Now()
	err := membership.Retry(ctx, func() error {
		reply, err := o.Master.Join(ctx, &wire.JoinRequest{Role: wire.Role_WORKER,
			Index: int32(o.Self.Header().Index), Pid: int32(os.Getpid())})
		if away := time.Since(answered); err != nil && o.Abandoned > 0 && away >= o.Abandoned {
			cancel(fmt.Errorf("%w for %v", membership.ErrAbandoned, away.Round(time.Second)))
		}
		if err != nil {
			return err
		}
		answered = time.Now()
		j = new(job.Job)
		if err := json.Unmarshal(reply.Job, j); err != nil {
			return status.Errorf(codes.InvalidArgument, "job of the master: %v", err)
		}
		servers = servers[:0]
		for _, s := range reply.Servers {
			servers = append(servers, ps.Address{Address: s.Address, Incarnation: int(s.Incarnation)})
		}
		if len(servers) == 0 && j.Trains() && j.Strategy != job.AllReduce {
			return errNoServers
		}
		base, keeps = reply.Base, reply.Keeps
		o.Self.SetModelGeneration(reply.ModelGeneration)
		return nil
	})
	return j, servers, base, keeps, err
}

var errNoServers = errors.New("not all parameter servers have joined yet")
