package worker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/data"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/mesh"
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
	Log    *slog.Logger
}

// Main joins the master, builds the model that the job names, opens its data
// and works until the job has ended.
func Main(ctx context.Context, o Options) error {
	master := wire.NewMasterClient(o.Master)
	j, servers, err := join(ctx, master, o)
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

	cfg := Config{Index: o.Index, Job: j, Model: model, Engine: engine, Master: master, Log: o.Log}
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
		cfg.Peers = mesh.Listen(mesh.Config{Listener: listener, Worker: o.Index, Dial: o.Dial, Log: o.Log})
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
		cfg.Servers, err = ps.Dial(ctx, ps.ClientConfig{Worker: o.Index, Addresses: servers, Layout: engine.Layout(), Dial: o.Dial})
		if err != nil {
			return err
		}
		defer cfg.Servers.Close()
	}
	o.Log.Info("Worker started", "model", j.ModelDef, "parameters", engine.Layout().Len(), "threads", max(1, threads), reaches)
	return Run(ctx, cfg)
}

// join asks the master for the job until it answers, with every server's address if there are servers.
func join(ctx context.Context, master wire.MasterClient, o Options) (*job.Job, []string, error) {
	var j *job.Job
	var servers []string
	err := retry(ctx, func() error {
		reply, err := master.Join(ctx, &wire.JoinRequest{Role: wire.Role_WORKER, Index: int32(o.Index), Pid: int32(os.Getpid())})
		if err != nil {
			return err
		}
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
