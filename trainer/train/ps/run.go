package ps

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Config is the role of one server in a job.
type Config struct {
	// address of the master
	Master   string
	Self     *rpc.Self
	Listener net.Listener
	// what the others dial; "": the listener's address
	Advertise string
	// whose optimizer it runs; nil: the one that the job names
	Model *zoo.Model
	// Initial is that of [ServerConfig]; nil: that of the model and the job's seed.
	Initial func(part, parts int) (param.Layout, []float32, error)
	// Open opens a directory of checkpoints; nil: on this machine.
	Open checkpoint.Opener
	// Dial opens the connection to the master; nil: TCP.
	Dial rpc.Dialer
	// Leave is closed when the server is asked to leave; nil: it is not. It does so when the master
	// has a checkpoint of what it holds, or will have none, or is away.
	Leave <-chan struct{}
	// Abandoned is the time without a master after which the server ends; 0: for ever.
	Abandoned time.Duration
	// Through returns the client of the master to use after the server has joined the job, given
	// the usual one; nil: the usual one.
	Through func(*job.Job, wire.MasterClient) wire.MasterClient
	// Meter counts what the server does; nil: nothing counts it.
	Meter *Meter
	Log   *slog.Logger
}

// ErrAbandoned ends a server whose master could not be reached for too long.
var ErrAbandoned = errors.New("the master could not be reached")

// errAsked ends a server that is asked to leave before it has joined.
var errAsked = errors.New("asked to leave")

// Run joins the master, which tells the job, and serves until ctx ends, the server has left, or the
// master does not know it any more; all are no error. It closes the
// listener. A master that is away is waited for: the server continues with what it has.
func Run(ctx context.Context, c Config) error {
	defer c.Listener.Close()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	conn, err := rpc.Connect(c.Master, c.Dial, c.Self, rpc.Callee{ID: pod.ID{Role: pod.Master}})
	if err != nil {
		return fmt.Errorf("ps-%d: %w", c.Self.Header().Index, err)
	}
	defer conn.Close()
	master := wire.NewMasterClient(conn)
	request := joining(c)
	j, modelGeneration, base, err := join(ctx, master, c, request)
	if ctx.Err() != nil || errors.Is(err, errAsked) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ps-%d: %w", c.Self.Header().Index, err)
	}
	if c.Through != nil {
		master = c.Through(j, master)
	}
	taken := make(chan struct{}, 1)
	config, err := configOf(ctx, j, c)
	if err != nil {
		return fmt.Errorf("ps-%d: %w", c.Self.Header().Index, err)
	}
	c.Self.SetModelGeneration(modelGeneration)
	config.Base = base
	hasten := func() {
		select {
		case taken <- struct{}{}:
		default:
			// a heartbeat is on its way to being sent already
		}
	}
	config.OnSnapshot, config.OnCut = func(int64) { hasten() }, hasten
	s, err := NewServer(config)
	if err != nil {
		return err
	}
	defer s.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := make(chan error, 1)
	go func() {
		err := s.Serve(c.Listener)
		cancel(err)
		served <- err
	}()
	c.Log.Info("Parameter server started", "index", c.Self.Header().Index, "of", config.Servers,
		"optimizer", config.Optimizer.Name)
	err = heartbeats(ctx, master, s, c, request, taken)
	s.Stop()
	return cmp.Or(<-served, err)
}

// joining introduces the server to the master, and to each later one.
func joining(c Config) *wire.JoinRequest {
	address := c.Advertise
	if address == "" {
		address = c.Listener.Addr().String()
	}
	return &wire.JoinRequest{
		Role: wire.Role_PS, Index: int32(c.Self.Header().Index), Address: address,
		Pid: int32(os.Getpid()), Process: 1 + rand.Uint64N(math.MaxUint64),
	}
}

// join asks the master for the job until it answers, and for the model generation, and what that
// begins with.
func join(ctx context.Context, master wire.MasterClient, c Config, req *wire.JoinRequest) (j *job.Job,
	modelGeneration int64, base custody.Base, err error) {
	began := time.Now()
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		reply, err := master.Join(ctx, req)
		switch grpcstatus.Code(err) {
		case codes.OK:
			j := new(job.Job)
			if err := json.Unmarshal(reply.Job, j); err != nil {
				return nil, 0, base, fmt.Errorf("read the master's job: %w", err)
			}
			return j, reply.ModelGeneration, baseOf(reply.Base), nil
		case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		default:
			return nil, 0, base, fmt.Errorf("join: %w", err)
		}
		if away := time.Since(began); c.Abandoned > 0 && away >= c.Abandoned {
			return nil, 0, base, fmt.Errorf("%w for %v: %w", ErrAbandoned, away.Round(time.Second), err)
		}
		select {
		case <-ctx.Done():
			return nil, 0, base, context.Cause(ctx)
		case <-c.Leave:
			return nil, 0, base, errAsked
		case <-time.After(pause):
		}
	}
}

// configOf returns what the job says of its servers.
func configOf(ctx context.Context, j *job.Job, c Config) (ServerConfig, error) {
	model := c.Model
	if model == nil {
		var err error
		if model, err = zoo.Lookup(j.ModelDef); err != nil {
			return ServerConfig{}, err
		}
	}
	config := ServerConfig{
		Index:                 c.Self.Header().Index,
		Servers:               j.NumPS,
		Optimizer:             model.Optimizer(),
		LearningRate:          model.LearningRate,
		Async:                 j.UseAsync,
		GradsToWait:           j.GradsToWait,
		SyncVersionTolerance:  j.SyncVersionTolerance,
		LRStalenessModulation: j.LRStalenessModulation,
		Self:                  c.Self,
		Initial:               c.Initial,
		CheckpointDir:         j.CheckpointDir,
		Open:                  c.Open,
		PlainData:             j.PlainData(),
		Meter:                 c.Meter,
		Log:                   c.Log,
	}
	if config.Initial == nil {
		config.Initial = func(part, parts int) (param.Layout, []float32, error) {
			return Initial(ctx, j, model, part, parts, c.Open, c.Log)
		}
	}
	if j.Evaluates() {
		config.EvaluationSteps = j.EvaluationSteps
	}
	return config, nil
}

// cutReport is a server's report as the master is sent it.
func (s *Server) cutReport() *wire.CutReport {
	r := s.Report()
	if r.Number == 0 {
		return nil
	}
	said := &wire.CutReport{
		Number: r.Number, Phase: wire.CutPhase(r.Phase), Ledger: r.Ledger.Append(nil), Version: r.Version, Error: r.Err,
		File: r.Shard.File, Start: int64(r.Shard.Start), End: int64(r.Shard.End), Bytes: r.Shard.Bytes,
		Crc: r.Shard.CRC,
	}
	if r.Phase == custody.Written {
		said.Layout, said.Optimizer, said.Slots = rpc.Variables(s.layout), s.config.Optimizer.Name,
			int32(len(s.store.optimizer.NewSlots(0)))
	}
	return said
}

// heartbeats tells the master the version, each beat and when there is news of a snapshot or a
// checkpoint, until ctx ends or the master does not need this server. One that is asked to leave
// reports it, and waits for that: a checkpoint may be made of what it holds. The server reports its
// address and its state to a restarted master. The error is that the master was away for too long.
func heartbeats(ctx context.Context, master wire.MasterClient, s *Server, c Config,
	request *wire.JoinRequest, taken <-chan struct{}) error {
	ticker := time.NewTicker(timing.Beat)
	defer ticker.Stop()
	answered, missed := time.Now(), 0
	asked, leave := c.Leave, wire.Leave_STAYS
	for {
		limited, cancel := context.WithTimeout(ctx, timing.BeatLimit)
		modelGeneration, version, snapshot := s.standing()
		reply, err := master.Heartbeat(rpc.InModelGeneration(limited, modelGeneration), &wire.HeartbeatRequest{
			Role: wire.Role_PS, Index: int32(c.Self.Header().Index), Version: version,
			Snapshot: snapshot, Cut: s.cutReport(), Leave: leave})
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case leave != wire.Leave_STAYS && (err != nil || reply.Unknown):
			c.Log.Info("The server leaves, as it was asked to", "error", err)
			return nil
		case err == nil && reply.Unknown:
			c.Log.Info("The master does not need this server: it was replaced, or the job is over")
			return nil
		case err == nil:
			if missed > 0 {
				c.Log.Info("The master is back")
			}
			answered, missed = time.Now(), 0
			if reply.Join {
				rejoin(ctx, master, s, c, request)
			}
		default:
			if missed++; missed == 1 {
				c.Log.Warn("The master is away", "error", err)
			}
			// Missed more than once: the server itself may have been stopped.
			if away := time.Since(answered); c.Abandoned > 0 && missed > 1 && away >= c.Abandoned {
				return fmt.Errorf("ps-%d: %w for %v: %w", c.Self.Header().Index, ErrAbandoned,
					away.Round(time.Second), err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-asked:
			asked, leave = nil, wire.Leave_ASKED
		case <-taken:
		case <-ticker.C:
		}
	}
}

// rejoin tells a master that has come back where the server listens, and of which generation it has
// the values. If that fails, the next heartbeat is answered with the same wish.
func rejoin(ctx context.Context, master wire.MasterClient, s *Server, c Config, request *wire.JoinRequest) {
	ctx, cancel := context.WithTimeout(ctx, timing.BeatLimit)
	defer cancel()
	again := proto.CloneOf(request)
	again.Holds, _, _ = s.standing()
	if _, err := master.Join(rpc.InModelGeneration(ctx, again.Holds), again); err != nil {
		c.Log.Warn("The master that has come back could not be joined", "error", err)
		return
	}
	c.Log.Info("Joined the master that has come back", "model_generation", again.Holds)
}
