package scale

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// Server simulates a parameter server: it answers the master from the ledger.
type Server struct {
	Self     *rpc.Self
	Master   wire.MasterClient
	Listener net.Listener // Run closes it
	Ledger   *Ledger

	wire.UnimplementedParameterServerServer
}

// Run serves until ctx is done: a server does not learn that its job has ended.
func (s *Server) Run(ctx context.Context) error {
	srv := rpc.NewServer(s.Self, false)
	wire.RegisterParameterServerServer(srv, s)
	defer context.AfterFunc(ctx, srv.Stop)()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(s.Listener) }()
	index := int32(s.Self.Header().Index)
	joined := retry(ctx, func() error {
		reply, err := s.Master.Join(ctx, &wire.JoinRequest{Role: wire.Role_PS, Index: index,
			Address: s.Listener.Addr().String()})
		if err == nil {
			s.begin(reply.ModelGeneration)
		}
		return err
	})
	if joined != nil {
		srv.Stop()
		<-served
		return joined
	}
	beaten := beat(ctx, s.Master, func() *wire.HeartbeatRequest {
		return &wire.HeartbeatRequest{Role: wire.Role_PS, Index: index, Version: s.Ledger.version()}
	})
	srv.Stop()
	if err := <-served; err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %v: %w", s.Listener.Addr(), err)
	}
	return beaten
}

// begin begins a model generation on this server, unless it is in that generation or a later one.
func (s *Server) begin(modelGeneration int64) {
	s.Ledger.begin(modelGeneration)
	s.Self.SetModelGeneration(max(modelGeneration, s.Self.ModelGeneration()))
}

// Control implements wire.ParameterServerServer. A push is applied at once, so only the generation
// and the end of an epoch matter.
func (s *Server) Control(_ context.Context, r *wire.ControlRequest) (*wire.ControlReply, error) {
	s.begin(r.ModelGeneration)
	if err := s.Ledger.settle(r.ModelGeneration, r.Settled); err != nil {
		return nil, status.Error(codes.Aborted, err.Error())
	}
	return &wire.ControlReply{Version: s.Ledger.version()}, nil
}

// Progress implements wire.ParameterServerServer.
func (s *Server) Progress(_ context.Context, r *wire.ProgressRequest) (*wire.ProgressReply, error) {
	return &wire.ProgressReply{Done: s.Ledger.progress(r.Tasks)}, nil
}
