package scale

import (
	"context"
	"fmt"
	"net"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Server simulates a parameter server: it answers the master from the ledger.
type Server struct {
	Self     *rpc.Self
	Master   wire.MasterClient
	Listener net.Listener // Run closes it
	Ledger   *Ledger
	// Checkpoints is the directory of the job's checkpoints; "" = none. A job that has checkpoints
	// has one server.
	Checkpoints string

	mu sync.Mutex
	// of the newest checkpoint
	cut *wire.CutReport
	// a checkpoint was written
	news chan struct{}

	wire.UnimplementedParameterServerServer
}

// Run serves until ctx is done: a server does not learn that its job has ended.
func (s *Server) Run(ctx context.Context) error {
	s.news = make(chan struct{}, 1)
	srv := rpc.NewServer(s.Self, false)
	wire.RegisterParameterServerServer(srv, s)
	defer context.AfterFunc(ctx, srv.Stop)()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(s.Listener) }()
	index := int32(s.Self.Header().Index)
	joined := retry(ctx, func() error {
		reply, err := s.Master.Join(ctx, &wire.JoinRequest{Role: wire.Role_PS, Index: index,
			Address: s.Listener.Addr().String()})
		if err != nil {
			return err
		}
		if s.Checkpoints != "" {
			s.Ledger.restart(reply.ModelGeneration, reply.Base.GetNumber())
		}
		s.begin(reply.ModelGeneration, reply.Base)
		return nil
	})
	if joined != nil {
		srv.Stop()
		<-served
		return joined
	}
	beaten := beat(ctx, s.Master, s.news, func() *wire.HeartbeatRequest {
		s.mu.Lock()
		defer s.mu.Unlock()
		return &wire.HeartbeatRequest{Role: wire.Role_PS, Index: index, Version: s.Ledger.version(), Cut: s.cut}
	})
	srv.Stop()
	if err := <-served; err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %v: %w", s.Listener.Addr(), err)
	}
	return beaten
}

// begin begins a model generation with a checkpoint on this server, unless it is in that generation
// or a later one.
func (s *Server) begin(modelGeneration int64, base *wire.Base) {
	s.Ledger.begin(modelGeneration, base.GetNumber())
	s.Self.SetModelGeneration(max(modelGeneration, s.Self.ModelGeneration()))
}

// Control implements wire.ParameterServerServer. A push is applied at once, so only the generation,
// the end of an epoch and checkpoints matter.
func (s *Server) Control(_ context.Context, r *wire.ControlRequest) (*wire.ControlReply, error) {
	s.begin(r.ModelGeneration, r.Base)
	if err := s.Ledger.settle(r.ModelGeneration, r.Settled); err != nil {
		return nil, status.Error(codes.Aborted, err.Error())
	}
	s.copy(r)
	return &wire.ControlReply{Version: s.Ledger.version()}, nil
}

// copy makes the checkpoint that is ordered, unless it is made: the only holder of a model need not
// wait for others. The ledger has the copy; the file has one value, because a checkpoint without a
// file is refused.
func (s *Server) copy(r *wire.ControlRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.Checkpoints == "" || r.Cut <= s.cut.GetNumber() {
		return
	}
	records, version := s.Ledger.save(r.Cut)
	s.cut = &wire.CutReport{Number: r.Cut, Phase: wire.CutPhase_WRITTEN, Ledger: records.Append(nil),
		Version: version, Optimizer: "SGD",
		Layout: rpc.Variables(param.Layout{{Name: "value", Shape: []int{1}, Trainable: true}})}
	shard, err := checkpoint.WriteShard(checkpoint.Dir{Files: checkpoint.Local(s.Checkpoints)},
		checkpoint.Name{Number: r.Cut, Claim: r.Claim}, checkpoint.ShardFile(0, 1),
		checkpoint.Part{Values: make([]float32, 1)})
	if err != nil {
		s.cut.Phase, s.cut.Error = wire.CutPhase_FAILED, err.Error()
	}
	s.cut.File, s.cut.Start, s.cut.End = shard.File, int64(shard.Start), int64(shard.End)
	s.cut.Bytes, s.cut.Crc = shard.Bytes, shard.CRC
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// Progress implements wire.ParameterServerServer.
func (s *Server) Progress(_ context.Context, r *wire.ProgressRequest) (*wire.ProgressReply, error) {
	return &wire.ProgressReply{Done: s.Ledger.progress(r.Tasks)}, nil
}
