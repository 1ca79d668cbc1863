package scale

import (
	"context"
	"fmt"
	"net"

	"google.golang.org/grpc"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Server plays a parameter server: it tells the master what the ledger has.
type Server struct {
	Index    int
	Master   wire.MasterClient
	Listener net.Listener // Run closes it
	Ledger   *Ledger

	wire.UnimplementedParameterServerServer
}

// Run serves until ctx is done: nobody tells a server that its job has ended.
func (s *Server) Run(ctx context.Context) error {
	srv := grpc.NewServer()
	wire.RegisterParameterServerServer(srv, s)
	defer context.AfterFunc(ctx, srv.Stop)()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(s.Listener) }()
	joined := retry(ctx, func() error {
		_, err := s.Master.Join(ctx, &wire.JoinRequest{Role: wire.Role_PS, Index: int32(s.Index), Address: s.Listener.Addr().String()})
		return err
	})
	if joined != nil {
		srv.Stop()
		<-served
		return joined
	}
	beaten := beat(ctx, s.Master, func() *wire.HeartbeatRequest {
		return &wire.HeartbeatRequest{Role: wire.Role_PS, Index: int32(s.Index), Version: s.Ledger.version()}
	})
	srv.Stop()
	if err := <-served; err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve %v: %w", s.Listener.Addr(), err)
	}
	return beaten
}

// Control implements wire.ParameterServerServer. What is pushed is applied at once: nothing is to be done.
func (s *Server) Control(context.Context, *wire.ControlRequest) (*wire.ControlReply, error) {
	return &wire.ControlReply{Version: s.Ledger.version()}, nil
}

// Progress implements wire.ParameterServerServer.
func (s *Server) Progress(_ context.Context, r *wire.ProgressRequest) (*wire.ProgressReply, error) {
	return &wire.ProgressReply{Leases: s.Ledger.progress(r.Worker)}, nil
}
