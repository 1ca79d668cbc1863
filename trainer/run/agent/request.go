package agent

import (
	"context"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/tcpstore"
)

// request is a message that gets an answer. at is the time at which it was received.
type request interface {
	answer(ctx context.Context, c *script, at time.Time) (any, error)
}

// operation is a request to the key-value store of a world.
type operation interface {
	generation() int64
	operate(ctx context.Context, store *tcpstore.Client) (any, error)
}

func (m unknownMessage) answer(context.Context, *script, time.Time) (any, error) {
	return nil, fmt.Errorf("unknown request %q", m.op)
}

func (m datasetRequest) answer(ctx context.Context, c *script, _ time.Time) (any, error) {
	return datasetReply{m.Stream}, c.owner.records.declare(ctx, m)
}

func (m checkpointRequest) answer(ctx context.Context, c *script, at time.Time) (any, error) {
	number, err := c.owner.records.claim(ctx, m.Path, at)
	return claimReply{number}, err
}

func (m explainRequest) answer(ctx context.Context, c *script, at time.Time) (any, error) {
	return c.owner.inWorld(ctx, m.Generation, func(ctx context.Context, _ served) (any, error) {
		return nil, c.owner.unexplained(ctx, at)
	})
}

// inWorld executes a request that belongs to the world of a generation. When that world ends the
// request is cancelled, and the error is [errOver].
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

// operate executes an operation on the store at an address. Each operation has its own connection,
// because some of them wait.
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
	err := store.Set(ctx, m.Key, m.Value)
	if err == nil {
		// the store does not answer a set: the answer to a later request proves that it is applied
		_, err = store.Check(ctx, m.Key)
	}
	return nil, err
}

func (m getRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return text(store.Get(ctx, m.Key))
}

// text encodes a value of a store as base64.
func text(value []byte, err error) (any, error) { return base64.StdEncoding.EncodeToString(value), err }

func (m waitRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return nil, store.Wait(ctx, m.Keys...)
}

func (m checkRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return store.Check(ctx, m.Keys...)
}

func (m addRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return store.Add(ctx, m.Key, m.Delta)
}

func (m compareSetRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return text(store.CompareSet(ctx, m.Key, m.Expected, m.Value))
}

func (m deleteRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return store.Delete(ctx, m.Key)
}

func (m numRequest) operate(ctx context.Context, store *tcpstore.Client) (any, error) {
	return store.Keys(ctx)
}
