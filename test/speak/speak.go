// Package speak lets a test speak for any pod of a job, and answer for it: as whom is decided call by call.
package speak

import (
	"context"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"

	"github.com/elasticdl/elasticdl/trainer/identity"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Header says as whom a request is made. Of a stream there is no request yet.
type Header func(ctx context.Context, request any) identity.Header

type asKey struct{}

// As makes calls with the context those of a pod, whatever their requests say.
func As(ctx context.Context, id pod.ID) context.Context { return context.WithValue(ctx, asKey{}, id) }

// ID returns the pod that a request names, or that the context was given; where there is none, a user.
func ID(ctx context.Context, request any) pod.ID {
	if id, ok := ctx.Value(asKey{}).(pod.ID); ok {
		return id
	}
	switch r := request.(type) {
	case interface {
		GetRole() wire.Role
		GetIndex() int32
	}:
		return pod.ID{Role: pod.Role(r.GetRole()), Index: int(r.GetIndex())}
	case interface{ GetWorker() int32 }:
		return pod.ID{Role: pod.Worker, Index: int(r.GetWorker())}
	}
	return pod.ID{Role: identity.User}
}

// Connect makes a connection whose calls are made as header says. Nobody checks who answers.
func Connect(dial func(ctx context.Context) (net.Conn, error), header Header) (*grpc.ClientConn, error) {
	speaks := func(ctx context.Context, request any) context.Context {
		return metadata.AppendToOutgoingContext(ctx, wire.HeaderKey, wire.Text(header(ctx, request)))
	}
	return grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx) }),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, request, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, options ...grpc.CallOption) error {
			return invoke(speaks(ctx, request), method, request, reply, conn, options...)
		}),
		grpc.WithStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, streamer grpc.Streamer, options ...grpc.CallOption) (grpc.ClientStream, error) {
			return streamer(speaks(ctx, nil), desc, conn, method, options...)
		}))
}

// Server makes a gRPC server that answers as header says, whoever calls.
func Server(header func() identity.Header) *grpc.Server {
	return grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
		grpc.SetHeader(ctx, metadata.Pairs(wire.HeaderKey, wire.Text(header())))
		return handle(ctx, request)
	}))
}
