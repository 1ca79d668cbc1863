package trainer_test

import (
	"context"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// observer is a worker's client of the master that sees which epoch it leases from.
// Its calls go wrong at times: they are made twice, or what they did is not heard of.
type observer struct {
	wire.MasterClient
	wire.JobClient
	epoch  atomic.Int32
	garble func() garbling
}

type garbling int

const (
	well  garbling = iota
	twice          // the call is made again
	late           // and so is the one before, after it
	mute           // the answer is lost
)

var errMute = status.Error(codes.Unavailable, "the answer was lost")

func (o *observer) GetTask(ctx context.Context, r *wire.GetTaskRequest, options ...grpc.CallOption) (*wire.GetTaskReply, error) {
	reply, err := o.MasterClient.GetTask(ctx, r, options...)
	if err == nil && o.garble() == mute {
		return nil, errMute
	}
	if err == nil && reply.Task.Kind == wire.TaskKind_TRAINING {
		o.epoch.Store(reply.Task.Epoch)
	}
	return reply, err
}

func (o *observer) ReportTask(ctx context.Context, r *wire.ReportTaskRequest, options ...grpc.CallOption) (*wire.ReportTaskReply, error) {
	reply, err := o.MasterClient.ReportTask(ctx, r, options...)
	switch g := o.garble(); {
	case err == nil && g == mute:
		return nil, errMute
	case err == nil && g == twice:
		o.MasterClient.ReportTask(ctx, r, options...)
	}
	return reply, err
}

func (o *observer) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest, options ...grpc.CallOption) (*wire.HeartbeatReply, error) {
	reply, err := o.MasterClient.Heartbeat(ctx, r, options...)
	switch g := o.garble(); {
	case err == nil && g == mute:
		return nil, errMute
	case err == nil && g == twice:
		o.MasterClient.Heartbeat(ctx, r, options...)
	}
	return reply, err
}

func (o *observer) Rendezvous(ctx context.Context, options ...grpc.CallOption) (grpc.BidiStreamingClient[wire.Arrival, wire.Assembly], error) {
	stream, err := o.MasterClient.Rendezvous(ctx, options...)
	return &arrivals{BidiStreamingClient: stream, garble: o.garble}, err
}

// arrivals are a worker's, on one stream.
type arrivals struct {
	grpc.BidiStreamingClient[wire.Arrival, wire.Assembly]
	garble func() garbling
	mu     sync.Mutex
	before *wire.Arrival
}

func (a *arrivals) Send(r *wire.Arrival) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.BidiStreamingClient.Send(r)
	g := a.garble()
	if err == nil && g == twice {
		err = a.BidiStreamingClient.Send(r)
	}
	if err == nil && g == late && a.before != nil {
		err = a.BidiStreamingClient.Send(a.before)
	}
	a.before = proto.Clone(r).(*wire.Arrival)
	return err
}
