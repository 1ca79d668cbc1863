package master

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The stacks of all workers that run are gathered as soon as each has answered, without those of an
// earlier request; a worker that does not answer is named.
func TestStacks(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, a, b := startProgram(t, 0)
		// asked returns the number of the request that a heartbeat brings
		asked := func(p *peer) int64 {
			t.Helper()
			return p.says(trains).Stacks
		}
		answers := func(worker int, number int64, text string) {
			t.Helper()
			_, err := w.ReportStacks(t.Context(), &wire.ReportStacksRequest{Worker: int32(worker), Number: number,
				Stacks: []*wire.ProcessStack{{Rank: int32(worker), Text: text}}})
			if err != nil {
				t.Error(err)
			}
		}
		if n := asked(a); n != 0 {
			t.Errorf("request %d, and nobody has asked", n)
		}
		type result struct {
			reply *wire.StacksReply
			err   error
			took  time.Duration
		}
		ask := func() chan result {
			got := make(chan result, 1)
			go func() {
				began := time.Now()
				reply, err := w.Stacks(context.Background(), &wire.StacksRequest{})
				got <- result{reply, err, time.Since(began)}
			}()
			time.Sleep(time.Millisecond)
			return got
		}
		first := ask()
		n := asked(a)
		answers(1, n, "b1")
		time.Sleep(time.Second)
		answers(0, n, "a1")
		r := <-first
		if r.err != nil || len(r.reply.Stacks) != 2 || r.reply.Stacks[0].Text != "a1" ||
			r.reply.Stacks[1].Text != "b1" || r.reply.Stacks[1].Worker != 1 ||
			len(r.reply.Missing) > 0 || r.took > 2*time.Second {
			t.Errorf("%v", r)
		}
		second := ask()
		if next := asked(b); next <= n {
			t.Errorf("request %d after %d", next, n)
		} else {
			answers(1, next, "b2")
		}
		answers(0, n, "late")
		if r = <-second; r.err != nil || len(r.reply.Stacks) != 1 || r.reply.Stacks[0].Text != "b2" ||
			len(r.reply.Missing) != 1 || r.reply.Missing[0] != 0 || r.took > longPoll+time.Second {
			t.Errorf("%v", r)
		}
	})
}

// Only programs have Python stacks.
func TestStacksOfAModelInGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, nil)
		if _, err := w.Stacks(t.Context(), &wire.StacksRequest{}); status.Code(err) != codes.FailedPrecondition {
			t.Error(err)
		}
	})
}

// The first request of a master is none that an earlier one has numbered.
func TestNumbersOfStackRequests(t *testing.T) {
	var first, second stackRequests
	for range 3 {
		first.ask(1)
	}
	if n := second.ask(2); n <= first.number || second.ask(2) != n+1 {
		t.Errorf("%d after %d", n, first.number)
	}
}
