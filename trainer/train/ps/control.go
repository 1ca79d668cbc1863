package ps

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// control is the gRPC side of a server.
type control struct {
	wire.UnimplementedParameterServerServer
	server *Server
}

// Declare checks the worker's layout.
func (c *control) Declare(_ context.Context, req *wire.DeclareRequest) (*wire.DeclareReply, error) {
	s := c.server
	layout, err := rpc.Layout(req.Variables)
	if err != nil {
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(req.Server) != s.config.Index || int(req.Servers) != s.config.Servers {
		return nil, grpcstatus.Errorf(codes.InvalidArgument, "declared to ps-%d of %d servers, which is ps-%d of %d",
			req.Server, req.Servers, s.config.Index, s.config.Servers)
	}
	if s.modelGeneration == 0 {
		return nil, grpcstatus.Error(codes.Unavailable, "the server has no values yet")
	}
	if err := s.layout.Match(layout); err != nil {
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	return &wire.DeclareReply{Version: s.rule.version}, nil
}

// Progress returns how much of some tasks this server has, and all that it has if that is asked
// for.
func (c *control) Progress(_ context.Context, req *wire.ProgressRequest) (*wire.ProgressReply, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := &wire.ProgressReply{}
	for _, t := range req.Tasks {
		reply.Done = append(reply.Done, s.rule.done(ledger.Task{Epoch: int(t.Epoch), Number: int(t.Number)}))
	}
	if req.All {
		reply.Ledger = s.rule.ledger.Append(nil)
	}
	return reply, nil
}

// Control takes the master's order. It states the wanted state, so it may be repeated; an older one
// that comes late changes nothing.
func (c *control) Control(ctx context.Context, req *wire.ControlRequest) (*wire.ControlReply, error) {
	s := c.server
	if err := s.beginModelGeneration(ctx, req.ModelGeneration, baseOf(req.Base)); err != nil {
		return nil, beginError(err)
	}
	if !s.obey(req) {
		return nil, grpcstatus.Errorf(codes.Aborted, "order %d in generation %d comes late", req.Number,
			req.ModelGeneration)
	}
	err := s.settle(ctx, func() bool {
		unsettled := int(req.Settled) > s.rule.ledger.Settled()
		return s.modelGeneration == req.ModelGeneration && (s.rule.due() || unsettled && len(s.rule.gathered) > 0)
	})
	if err != nil {
		return nil, grpcstatus.FromContextError(err).Err()
	}
	if err := s.checkpoint(ctx, req); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.modelGeneration == req.ModelGeneration {
		s.rule.settle(int(req.Settled))
	}
	return &wire.ControlReply{Version: s.rule.version}, nil
}

// baseOf reads what a generation begins with.
func baseOf(b *wire.Base) custody.Base {
	return custody.Base{Dir: b.GetDir(), Number: b.GetNumber(), Claim: b.GetClaim(),
		Checksum: b.GetChecksum(), Fresh: b.GetFresh()}
}

// beginError is the reason for the master why a generation is not begun: [codes.DataLoss] if it
// cannot be.
func beginError(err error) error {
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return grpcstatus.FromContextError(err).Err()
	case errors.Is(err, checkpoint.ErrDamaged):
		return grpcstatus.Error(codes.DataLoss, err.Error())
	}
	return grpcstatus.Error(codes.Unavailable, err.Error())
}

// checkpoint follows the part of an order that is about the checkpoint that is being made.
func (s *Server) checkpoint(ctx context.Context, req *wire.ControlRequest) error {
	o := custody.CutOrder{Number: req.Cut, Claim: req.Claim}
	if len(req.Target) > 0 {
		target, err := ledger.Parse(req.Target)
		if err != nil {
			return grpcstatus.Error(codes.InvalidArgument, err.Error())
		}
		o.Target = &target
	}
	if err := s.takeTurn(ctx); err != nil {
		return grpcstatus.FromContextError(err).Err()
	}
	defer s.yieldTurn()
	s.obeyCut(o)
	s.copyCut()
	return nil
}

// obey follows an order as far as that takes no turn. It reports whether the order is still to be
// followed.
func (s *Server) obey(req *wire.ControlRequest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if req.Number < s.order || req.ModelGeneration != s.modelGeneration {
		return false
	}
	s.order = req.Number
	if req.Contributors > 0 {
		s.rule.contributors = int(req.Contributors)
	}
	s.store.release(req.ReleaseSnapshot)
	return true
}
