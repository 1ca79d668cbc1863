package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/train/data"
	"github.com/elasticdl/elasticdl/trainer/train/mesh"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// Options are the settings of one worker of a job.
type Options struct {
	membership.Member
	// what the master has answered to the worker, which has joined
	Joined membership.Joined
	// threads of the engine, if the job does not set them
	Threads int
	// Dial opens connections to the servers and to other workers; nil: TCP.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
	// Listen opens the port at which other workers of a ring reach this one.
	Listen func() (net.Listener, error)
	// Open opens a directory of checkpoints or of an export; nil: on this machine.
	Open checkpoint.Opener
	// Buckets opens training data in buckets; nil: data is on this machine.
	Buckets data.Buckets
	// Prepare makes what the job needs; done releases it. Run sets the worker's identity and
	// connections. Nil: the model that the job names, and its data.
	Prepare func(context.Context, *job.Job) (cfg Config, done func(), err error)
	// Meter counts what the worker does; nil: nothing counts it.
	Meter *Meter
	Log   *slog.Logger
}

// Run builds the model that the job names, opens its data and works until the job has ended. A
// worker that is asked to leave finishes its current minibatch, hands back the rest, and returns
// [membership.ErrLeft].
func Run(ctx context.Context, o Options) error {
	setup, stop := o.BeforeWork(ctx)
	defer stop()
	prepare := o.Prepare
	if prepare == nil {
		prepare = o.prepare
	}
	j := o.Joined.Job
	o.Meter = cmp.Or(o.Meter, new(Meter))
	cfg, done, err := prepare(setup, j)
	if err != nil {
		return err
	}
	defer done()
	cfg.Index, cfg.Self, cfg.Job, cfg.Master = o.Self.Header().Index, o.Self, j, o.Master
	cfg.Leave, cfg.Abandoned, cfg.Log, cfg.Meter = o.Leave, o.Abandoned, o.Log, o.Meter
	switch {
	case !j.Trains():
		if err := o.load(setup, &cfg, o.Joined.Base); err != nil {
			return err
		}
		o.Log.Info("Worker started", "model", j.ModelDef, "parameters", cfg.Engine.Layout().Len(),
			"version", cfg.Version)
		return o.serve(ctx, setup, cfg)
	case j.Strategy != job.AllReduce:
		o.Log.Info("Worker started", "model", j.ModelDef, "parameters", cfg.Engine.Layout().Len(),
			"servers", len(o.Joined.Servers))
		return o.serve(ctx, setup, cfg)
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
			Traffic: &o.Meter.Ring,
		})
		defer cfg.Peers.Close()
	}
	o.Log.Info("Worker started", "model", j.ModelDef, "parameters", cfg.Engine.Layout().Len(), "address", cfg.Address)
	return work(ctx, cfg)
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
			_, values, err := ps.Initial(ctx, j, model, 0, 1, o.Open, o.Log)
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
			files, err = data.Open(d.path, j.DataReaderParams, o.Buckets)
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
func (o Options) serve(ctx, setup context.Context, cfg Config) error {
	for {
		var err error
		if cfg.Job.Trains() {
			cfg.Servers, err = ps.Dial(setup, ps.ClientConfig{Self: o.Self, Servers: addresses(o.Joined.Servers),
				Layout: cfg.Engine.Layout(), Dial: o.Dial, PlainData: cfg.Job.PlainData(), OnWait: o.waits,
				Traffic: &o.Meter.Servers})
		}
		if err == nil {
			err = work(ctx, cfg)
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
		case <-time.After(generationPause):
		case <-setup.Done():
			return context.Cause(setup)
		}
		if o.Joined, err = o.Join(setup); err != nil {
			return err
		}
	}
}

// generationPause is the pause before the worker asks the master how things stand: the servers may
// learn of the new generation later than the worker.
const generationPause = 100 * time.Millisecond

// addresses returns where the servers listen, in their order.
func addresses(servers []*wire.Server) (all []ps.Address) {
	for _, s := range servers {
		all = append(all, ps.Address{Address: s.Address, Incarnation: int(s.Incarnation)})
	}
	return all
}
