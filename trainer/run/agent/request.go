package agent

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/tcpstore"
)

// request is a message that is answered.
type request interface {
	answer(ctx context.Context, c *script, at time.Time) (any, error)
}

// operation is a request to the store of a world.
type operation interface {
	generation() int64
	operate(ctx context.Context, store *tcpstore.Client) (any, error)
}

func (m unknownMessage) answer(context.Context, *script, time.Time) (any, error) {
	return nil, fmt.Errorf("unknown request %q", m.op)
}

func (m datasetRequest) answer(ctx context.Context, c *script, _ time.Time) (any, error) {
	return struct{}{}, c.owner.records.declare(ctx, m)
}

func (m checkpointRequest) answer(ctx context.Context, c *script, at time.Time) (any, error) {
	number, err := c.owner.records.claim(ctx, m.Path, at)
	return claimReply{number}, err
}

func (m explainRequest) answer(ctx context.Context, c *script, at time.Time) (any, error) {
	return c.owner.inWorld(ctx, m.F, func(ctx context.Context, _ served) (any, error) {
		return nil, c.owner.unexplained(ctx, at)
	})
}

// inWorld executes a request that belongs to a world, until the world ends.
func (s *scripts) inWorld(ctx context.Context, generation int64,
	execute func(context.Context, served) (any, error)) (any, error) {
	world := s.served()
	if world.generation != generation || world.ctx.Err() != nil {
		return nil, errOver
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(world.ctx, cancel)()
	ok, err := execute(ctx, world)
	if err != nil && world.ctx.Err() != nil {
		return nil, errOver
	}
	return ok, err
}

// operate executes an operation on a store. Each has its own connection, as some wait.
func (s *scripts) operate(ctx context.Context, address string, o operation) (any, error) {
	conn, err := s.dial(ctx, address)
	if err != nil {
		return nil, err
	}
	client, err := tcpstore.NewClient(ctx, conn)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return o.operate(ctx, client)
}

func (m setRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	err := store.Set(ctx, m.K, m.V)
	if err == nil {
		// its answer proves that the write before is applied
		_, err = store.Check(ctx, m.K)
	}
	return nil, err
}

func (m getRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return text(store.Get(ctx, m.K))
}

// text encodes a value of a store.
func text(value []byte, err error) (any, error) { return base64.StdEncoding.EncodeToString(value), err }

func (m waitRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return nil, store.Wait(ctx, m.Ks...)
}

func (m checkRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return store.Check(ctx, m.Ks...)
}

func (m addRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return store.Add(ctx, m.K, m.N)
}

func (m compareSetRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return text(store.CompareSet(ctx, m.K, m.E, m.V))
}

func (m deleteRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return store.Delete(ctx, m.K)
}

func (m numRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return store.Keys(ctx)
}
