package rpc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

// Self holds this process's current identity in its job, and its credential. It is safe for
// concurrent use.
type Self struct {
	fixed                   identity.Header
	credential              *credential.Credential
	master, modelGeneration atomic.Int64
	last                    atomic.Pointer[said]
}

// said is a header, and as it stands in the metadata of calls. Nobody changes it.
type said struct {
	identity.Header
	md metadata.MD
}

// NewSelf makes a Self that begins as h, which c proves; nil: it neither calls nor is called.
func NewSelf(h identity.Header, c *credential.Credential) *Self {
	s := &Self{fixed: h, credential: c}
	s.master.Store(int64(h.Master))
	s.modelGeneration.Store(h.ModelGeneration)
	return s
}

// Header returns what this process says of itself now.
func (s *Self) Header() identity.Header {
	h := s.fixed
	h.Master, h.ModelGeneration = int(s.master.Load()), s.modelGeneration.Load()
	return h
}

// Credential returns what this process proves itself with.
func (s *Self) Credential() *credential.Credential { return s.credential }

func newSaid(h identity.Header) *said { return &said{h, metadata.Pairs(HeaderKey, Text(h))} }

// in returns the same of another generation.
func (s *said) in(modelGeneration int64) *said {
	h := s.Header
	h.ModelGeneration = modelGeneration
	return newSaid(h)
}

// say returns what this process says of itself now, to be sent.
func (s *Self) say() *said {
	h := s.Header()
	last := s.last.Load()
	if last == nil || last.Header != h {
		last = newSaid(h)
		s.last.Store(last)
	}
	return last
}

// ModelGeneration returns the model generation that this process works with.
func (s *Self) ModelGeneration() int64 { return s.modelGeneration.Load() }

// SetModelGeneration makes this process one that works with the model of that generation.
func (s *Self) SetModelGeneration(modelGeneration int64) { s.modelGeneration.Store(modelGeneration) }

// hear notes which incarnation of the master has spoken. The newest counts.
func (s *Self) hear(master int) {
	for {
		before := s.master.Load()
		if int64(master) <= before || s.master.CompareAndSwap(before, int64(master)) {
			return
		}
	}
}

// modelGenerationKey finds in a context the generation that its calls are of.
type modelGenerationKey struct{}

// InModelGeneration returns a context for a call that tells of the model as it was in that
// generation, whichever the process has come to.
func InModelGeneration(ctx context.Context, modelGeneration int64) context.Context {
	return context.WithValue(ctx, modelGenerationKey{}, modelGeneration)
}

// HeaderKey names the metadata of a call, and of its answer, that identifies the sender: [Text].
const HeaderKey = "elasticdl-speaker"

// Text returns a header as it stands in metadata. gRPC would make the same of bytes, at each call
// again.
func Text(h identity.Header) string { return base64.RawStdEncoding.EncodeToString(h.Append(nil)) }

// callerKey finds the caller in a context.
type callerKey struct{}

// Caller returns who makes the call whose context this is; a server of [NewServer] has checked it.
func Caller(ctx context.Context) identity.Header {
	h, _ := admitted(ctx)
	return h
}

// admitted returns who makes a call. ok is false of a call that needs no header.
func admitted(ctx context.Context) (caller identity.Header, ok bool) {
	caller, ok = ctx.Value(callerKey{}).(identity.Header)
	return caller, ok
}

// refusals are the codes of what is wrong with a header.
var refusals = []struct {
	err  error
	code codes.Code
}{
	{identity.ErrForeign, codes.Unauthenticated},
	{identity.ErrForbidden, codes.PermissionDenied},
	{identity.ErrModelGeneration, codes.Aborted},
	{identity.ErrReplaced, codes.Unavailable}, // the one that is called may yet answer
	{errNoCall, codes.Unimplemented},
}

// Refusal returns what is wrong with a header as a gRPC status; nil stays nil.
func Refusal(err error) error {
	for _, r := range refusals {
		if errors.Is(err, r.err) {
			return status.Error(r.code, err.Error())
		}
	}
	return err
}

// NewServer makes a gRPC server that admits the calls of identity.Calls by their roles, and sends
// its identity with each answer. Peers without a certificate are admitted only if strangers is
// true, for the calls of identity.Open. A connection that is a [credential.Conn] already was proved
// before.
func NewServer(self *Self, strangers bool) *grpc.Server {
	d := newDoor(self, strangers)
	unary := func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		if caller, ok := admitted(ctx); ok {
			if err := speaksOfItself(caller, request); err != nil {
				return nil, Refusal(err)
			}
			grpc.SetHeader(ctx, self.say().md)
		}
		return handle(ctx, request)
	}
	stream := func(service any, s grpc.ServerStream, _ *grpc.StreamServerInfo, handle grpc.StreamHandler) error {
		if _, ok := admitted(s.Context()); ok {
			s.SetHeader(self.say().md)
		}
		return handle(service, s)
	}
	return grpc.NewServer(append(serving(), grpc.Creds(d), grpc.InTapHandle(d.tap),
		grpc.UnaryInterceptor(unary), grpc.StreamInterceptor(stream))...)
}

// NewOpenServer makes a gRPC server that neither authenticates its callers nor encrypts. Its
// listener must be reachable only by those who may make all of its calls.
func NewOpenServer() *grpc.Server { return grpc.NewServer(serving()...) }

// listener reads the headers of one speaker, which are mostly the same.
type listener struct{ last atomic.Pointer[heard] }

// heard is a header, and the text that it was read from.
type heard struct {
	identity.Header
	text string
}

// header reads the header of a call or an answer from the metadata of that name.
func (l *listener) header(texts []string) (identity.Header, error) {
	if len(texts) != 1 {
		return identity.Header{}, fmt.Errorf("%w: it does not say who it is", identity.ErrForeign)
	}
	if last := l.last.Load(); last != nil && last.text == texts[0] {
		return last.Header, nil
	}
	b, err := base64.RawStdEncoding.DecodeString(texts[0])
	if err != nil {
		return identity.Header{}, fmt.Errorf("%w: %w", identity.ErrForeign, err)
	}
	h, err := identity.Parse(b)
	if err == nil {
		l.last.Store(&heard{h, texts[0]})
	}
	return h, err
}

// speaksOfItself refuses a pod's request that names another pod than the header does.
func speaksOfItself(caller identity.Header, request any) error {
	says := caller.ID()
	switch r := request.(type) {
	case interface {
		GetRole() wire.Role
		GetIndex() int32
	}:
		says = pod.ID{Role: pod.Role(r.GetRole()), Index: int(r.GetIndex())}
	case interface{ GetWorker() int32 }:
		if caller.Role == pod.Worker {
			says.Index = int(r.GetWorker())
		}
	}
	if says != caller.ID() {
		return fmt.Errorf("%w: %v speaks for %v", identity.ErrForbidden, caller.ID(), says)
	}
	return nil
}

// Callee is the pod that must answer the calls of a connection.
type Callee struct {
	pod.ID
	Incarnation int // 0: any
}

// calls makes a connection say who calls, and check who answers. A call without a deadline gets
// one.
func calls(self *Self, callee Callee) []grpc.DialOption {
	speak := func(ctx context.Context) context.Context {
		said := self.say()
		if modelGeneration, ok := ctx.Value(modelGenerationKey{}).(int64); ok &&
			modelGeneration != said.ModelGeneration {
			said = said.in(modelGeneration)
		}
		return metadata.NewOutgoingContext(ctx, said.md)
	}
	var answerer listener
	check := func(md metadata.MD, by *peer.Peer) error {
		answers, err := answerer.header(md[HeaderKey])
		if err == nil {
			err = identity.Expect(self.Header(), answers, proved(by), callee.ID, callee.Incarnation)
		}
		if err == nil && callee.Role == pod.Master {
			self.hear(answers.Incarnation)
		}
		return Refusal(err)
	}
	unary := func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn,
		invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
		ctx, end := limited(ctx)
		var md metadata.MD
		var by peer.Peer
		if err := end(invoke(speak(ctx), method, request, reply, conn,
			append(options, grpc.Header(&md), grpc.Peer(&by))...)); err != nil {
			return err
		}
		return check(md, &by)
	}
	stream := func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string,
		streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := streamer(speak(ctx), desc, conn, method, options...)
		if err != nil {
			return nil, err
		}
		return &checked{ClientStream: s, check: check}, nil
	}
	return []grpc.DialOption{grpc.WithUnaryInterceptor(unary), grpc.WithStreamInterceptor(stream)}
}

// checked is a stream that delivers no message before it has checked the sender.
type checked struct {
	grpc.ClientStream
	check func(metadata.MD, *peer.Peer) error
	once  sync.Once
	err   error
}

func (s *checked) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	s.once.Do(func() {
		md, err := s.Header()
		if err == nil {
			by, _ := peer.FromContext(s.Context())
			err = s.check(md, by)
		}
		s.err = err
	})
	return s.err
}
