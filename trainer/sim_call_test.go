package trainer_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// observer is a worker's client of the master that sees which task it leases. Its calls go wrong at
// times: they are made twice, or what they did is not heard of, or they arrive once more much
// later.
type observer struct {
	wire.MasterClient
	wire.JobClient
	epoch atomic.Int32
	// the last lease is the export's
	exporting atomic.Bool
	garble    func() garbling
	// makes a call once more, in a while
	later func(call func(context.Context, wire.MasterClient))
	// hear of the arrivals, and of leases that are granted after their end was reported; nil: none
	arrives   func(*wire.Arrival)
	regranted func(lease int64)
	reported  sync.Map
}

type garbling int

const (
	well  garbling = iota
	twice          // the call is made again
	// and arrives again in a while, after others
	late
	mute // the answer is lost
)

var errMute = status.Error(codes.Unavailable, "the answer was lost")

// garbled makes a call as it goes wrong.
func garbled[Q, R any](ctx context.Context, o *observer, r Q,
	call func(wire.MasterClient, context.Context, Q, ...grpc.CallOption) (R, error)) (R, error) {
	reply, err := call(o.MasterClient, ctx, r)
	if err != nil {
		return reply, err
	}
	switch o.garble() {
	case mute:
		var none R
		return none, errMute
	case twice:
		call(o.MasterClient, ctx, r)
	case late:
		o.later(func(ctx context.Context, client wire.MasterClient) { call(client, ctx, r) })
	}
	return reply, nil
}

func (o *observer) GetTask(ctx context.Context, r *wire.GetTaskRequest,
	_ ...grpc.CallOption) (*wire.GetTaskReply, error) {
	reply, err := garbled(ctx, o, r, wire.MasterClient.GetTask)
	if err == nil {
		o.exporting.Store(reply.Task.Kind == wire.TaskKind_EXPORT)
	}
	if err == nil && reply.Task.Kind == wire.TaskKind_TRAINING {
		o.epoch.Store(reply.Task.Epoch)
		if _, again := o.reported.Load(reply.Task.Lease); again && o.regranted != nil {
			o.regranted(reply.Task.Lease)
		}
	}
	return reply, err
}

func (o *observer) ReportTask(ctx context.Context, r *wire.ReportTaskRequest,
	_ ...grpc.CallOption) (*wire.ReportTaskReply, error) {
	o.reported.Store(r.Lease, true)
	return garbled(ctx, o, r, wire.MasterClient.ReportTask)
}

func (o *observer) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest,
	_ ...grpc.CallOption) (*wire.HeartbeatReply, error) {
	return garbled(ctx, o, r, wire.MasterClient.Heartbeat)
}

func (o *observer) Rendezvous(ctx context.Context,
	options ...grpc.CallOption) (grpc.BidiStreamingClient[wire.Arrival, wire.Assembly], error) {
	stream, err := o.MasterClient.Rendezvous(ctx, options...)
	return &arrivals{BidiStreamingClient: stream, garble: o.garble, heard: o.arrives}, err
}

// arrivals are a worker's, on one stream.
type arrivals struct {
	grpc.BidiStreamingClient[wire.Arrival, wire.Assembly]
	garble func() garbling
	heard  func(*wire.Arrival)
	mu     sync.Mutex
	before *wire.Arrival
}

func (a *arrivals) Send(r *wire.Arrival) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.heard != nil {
		a.heard(r)
	}
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

// garbler says what goes wrong with the calls of one pod.
func (s *simulation) garbler(p *host) func() garbling {
	var mu sync.Mutex
	r := s.source(p.name, p.incarnation, "garble")
	return func() garbling {
		mu.Lock()
		defer mu.Unlock()
		bad := false
		s.note(func() { bad = time.Now().Before(s.garbled) })
		if !bad || r.IntN(4) > 0 {
			return well
		}
		return garbling(r.IntN(int(mute) + 1))
	}
}

// repeater makes calls of one pod once more, as late as packets can be: with the pod's header of
// that time, among its present calls.
func (s *simulation) repeater(h *host, who *rpc.Self) func(func(context.Context, wire.MasterClient)) {
	var mu sync.Mutex
	r := s.source(h.name, h.incarnation, "late")
	return func(call func(context.Context, wire.MasterClient)) {
		mu.Lock()
		wait := time.Duration(r.Int64N(int64(5 * time.Second)))
		mu.Unlock()
		then := rpc.NewSelf(who.Header(), who.Credential())
		s.pods.wg.Go(func() {
			select {
			case <-time.After(wait):
			case <-s.pods.over():
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			go func() {
				select {
				case <-s.pods.over():
					cancel()
				case <-ctx.Done():
				}
			}()
			connection, err := rpc.Connect(masterAddress, s.network.dial(h), then,
				rpc.Callee{ID: pod.ID{Role: pod.Master}})
			if err != nil {
				return
			}
			defer connection.Close()
			call(ctx, wire.NewMasterClient(connection))
		})
	}
}

// source is the random numbers of one actor for one purpose: what the others draw changes nothing
// about them.
func (s *simulation) source(name string, incarnation int, purpose string) *rand.Rand {
	h := hash(name, purpose)
	return rand.New(rand.NewPCG(s.job.Seed, h^uint64(incarnation)))
}
