package rpc

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/timing"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// An attempt to connect that is not answered is repeated soon, as the network may have lost its
// first packet.
func TestConnectTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		again := make(chan struct{})
		began, attempts := time.Now(), 0
		conn, err := Connect("nowhere:1", func(ctx context.Context, _ string) (net.Conn, error) {
			if attempts++; attempts == 2 {
				close(again)
			}
			if attempts == 1 {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return nil, errors.New("refused")
		}, self(identity.Header{Job: "uid", Role: pod.Worker}), Callee{ID: pod.ID{Role: pod.Master}})
		if err != nil {
			t.Fatal(err)
		}
		conn.Connect()
		<-again
		if took := time.Since(began); took > timing.Connect+time.Second {
			t.Errorf("tried again after %v", took)
		}
		conn.Close()
	})
}

func TestTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	conn, err := TCP(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	l.Close()
	if _, err := TCP(t.Context(), addr); err == nil {
		t.Error("nobody listens, and it is connected")
	}
}
