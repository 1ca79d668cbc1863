package ps

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/param"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// control is the gRPC side of a server.
type control struct {
	wire.UnimplementedParameterServerServer
	server *Server
}

// Declare checks the worker's layout and opens a session. A worker has one
// session: a new one ends the one before.
func (c *control) Declare(_ context.Context, req *wire.DeclareRequest) (*wire.DeclareReply, error) {
	s := c.server
	layout, err := layoutOf(req.Variables)
	if err != nil {
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if int(req.Server) != s.config.Index || int(req.Servers) != s.config.Servers {
		return nil, grpcstatus.Errorf(codes.InvalidArgument, "declared to server %d of %d, which is %d of %d",
			req.Server, req.Servers, s.config.Index, s.config.Servers)
	}
	if s.layout == nil {
		err = s.adopt(layout)
	} else {
		err = s.layout.Match(layout)
	}
	if err != nil {
		return nil, grpcstatus.Error(codes.InvalidArgument, err.Error())
	}
	var token [8]byte
	rand.Read(token[:])
	session, worker := binary.LittleEndian.Uint64(token[:]), int(req.Worker)
	delete(s.sessions, s.workers[worker])
	s.sessions[session], s.workers[worker] = worker, session
	return &wire.DeclareReply{Session: session, Initialized: s.initialized, Version: s.rule.version}, nil
}

// maxElements is the size of a model beyond which a declaration is taken for a mistake: 4 TB.
const maxElements = 1 << 40

// layoutOf reads a declared layout, whose sizes nobody has checked yet.
func layoutOf(variables []*wire.Variable) (param.Layout, error) {
	layout := make(param.Layout, 0, len(variables))
	total := 0.0
	for _, v := range variables {
		n, shape := 1.0, make([]int, 0, len(v.GetShape()))
		for _, d := range v.GetShape() {
			n *= math.Abs(float64(d))
			shape = append(shape, int(d))
		}
		if total += n; total > maxElements {
			return nil, fmt.Errorf("layout: %s %v: more than %d elements", v.GetName(), shape, maxElements)
		}
		layout = append(layout, param.Variable{Name: v.GetName(), Shape: shape, Trainable: v.GetTrainable(), Momentum: v.GetMomentum()})
	}
	return layout, nil
}

func (c *control) Progress(_ context.Context, req *wire.ProgressRequest) (*wire.ProgressReply, error) {
	s := c.server
	s.mu.Lock()
	defer s.mu.Unlock()
	reply := &wire.ProgressReply{}
	for _, p := range s.rule.pushed[int(req.Worker)] {
		reply.Leases = append(reply.Leases, &wire.LeaseProgress{Lease: p.lease, Done: p.done})
	}
	return reply, nil
}

func (c *control) Control(ctx context.Context, req *wire.ControlRequest) (*wire.ControlReply, error) {
	s := c.server
	s.mu.Lock()
	if req.Contributors > 0 {
		s.rule.contributors = int(req.Contributors)
	}
	due := s.rule.due()
	s.mu.Unlock()
	if req.ReleaseSnapshot > 0 {
		s.store.release(req.ReleaseSnapshot)
	}
	var err error
	switch {
	case req.Flush:
		err = s.flush(ctx)
	case due:
		err = s.settle(ctx, s.rule.due)
	}
	if err != nil {
		return nil, grpcstatus.FromContextError(err).Err()
	}
	return &wire.ControlReply{Version: s.Version()}, nil
}
