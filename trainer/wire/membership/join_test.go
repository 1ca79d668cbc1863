package membership

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// answer is a master's answer to a Join.
type answer struct {
	reply *wire.JoinReply
	err   error
}

// absent is the answer for a master that is away.
var absent = answer{err: status.Error(codes.Unavailable, "connection refused")}

// scripted is a master that gives its answers in order, and the last one again and again.
type scripted struct {
	wire.MasterClient
	answers []answer
	asked   []*wire.JoinRequest
}

func (s *scripted) Join(_ context.Context, r *wire.JoinRequest, _ ...grpc.CallOption) (*wire.JoinReply, error) {
	now := s.answers[min(len(s.asked), len(s.answers)-1)]
	s.asked = append(s.asked, r)
	return now.reply, now.err
}

// hour returns a context that ends after an hour, so that a worker that joins for ever fails its
// test.
func hour(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	t.Cleanup(cancel)
	return ctx
}

// newcomer returns worker 3 of the master.
func newcomer(s *scripted) Member {
	return Member{Master: s, Self: rpc.NewSelf(identity.Header{Role: pod.Worker, Index: 3}, nil)}
}

// jobOf returns a job of a type and strategy as the master sends it.
func jobOf(t *testing.T, kind job.Type, strategy job.Strategy) []byte {
	t.Helper()
	j := job.Default()
	j.Type, j.Strategy = kind, strategy
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// A worker joins until the master answers with all that the job needs: only a job that trains with
// parameter servers waits for them. The worker's model generation is the master's then.
func TestJoin(t *testing.T) {
	servers := []*wire.Server{{Address: "ps-0:1", Incarnation: 2}}
	for name, c := range map[string]struct {
		kind     job.Type
		strategy job.Strategy
		servers  []*wire.Server
		// answers before the last one
		before []answer
	}{
		"a program":            {kind: job.Run, strategy: job.ParameterServer},
		"a prediction":         {kind: job.Predict, strategy: job.ParameterServer},
		"a ring":               {kind: job.Train, strategy: job.AllReduce},
		"servers":              {kind: job.Train, strategy: job.ParameterServer, servers: servers},
		"a master that starts": {kind: job.Run, before: []answer{absent, absent}},
		"servers that start": {kind: job.Train, strategy: job.ParameterServer, servers: servers, before: []answer{
			{reply: &wire.JoinReply{Job: jobOf(t, job.Train, job.ParameterServer), ModelGeneration: 1}}, absent}},
	} {
		synctest.Test(t, func(t *testing.T) {
			last := &wire.JoinReply{Job: jobOf(t, c.kind, c.strategy), Servers: c.servers,
				Base: &wire.Base{Number: 5}, Keeps: true, ModelGeneration: 4}
			s := &scripted{answers: append(c.before, answer{reply: last})}
			m := newcomer(s)
			joined, err := m.Join(hour(t))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if joined.Job.Type != c.kind || len(joined.Servers) != len(c.servers) || joined.Base != last.Base ||
				!joined.Keeps {
				t.Errorf("%s: joined with %+v", name, joined)
			}
			if g := m.Self.Header().ModelGeneration; g != 4 {
				t.Errorf("%s: the worker's model generation is %d, want 4", name, g)
			}
			if len(s.asked) != len(c.before)+1 || s.asked[0].Role != wire.Role_WORKER || s.asked[0].Index != 3 ||
				s.asked[0].Pid == 0 {
				t.Errorf("%s: %d calls, the first %v, want %d calls of worker 3", name, len(s.asked), s.asked[0],
					len(c.before)+1)
			}
		})
	}
}

// A worker does not join again if the master refuses it, or sends a job that it cannot read.
func TestJoinEnds(t *testing.T) {
	const unreadable = "rpc error: code = InvalidArgument desc = job of the master: unexpected end of JSON input"
	for want, last := range map[string]answer{
		unreadable:          {reply: &wire.JoinReply{}},
		ErrReplaced.Error(): {err: status.Error(codes.NotFound, "worker-3 is not of this job")},
		"rpc error: code = FailedPrecondition desc = ended": {err: status.Error(codes.FailedPrecondition, "ended")},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &scripted{answers: []answer{absent, last}}
			if _, err := newcomer(s).Join(hour(t)); err == nil || err.Error() != want || len(s.asked) != 2 {
				t.Errorf("after %d calls: %v, want %s after 2", len(s.asked), err, want)
			}
		})
	}
}

// A worker that never reaches its master ends after the limit, and without one continues to join.
func TestJoinGivesItsMasterUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newcomer(&scripted{answers: []answer{absent}})
		m.Abandoned = 10 * time.Minute
		began := time.Now()
		if _, err := m.Join(hour(t)); !errors.Is(err, ErrAbandoned) {
			t.Error(err)
		}
		if took := time.Since(began).Round(time.Minute); took != m.Abandoned {
			t.Errorf("it ended after %v, want %v", took, m.Abandoned)
		}
		m.Abandoned = 0
		if _, err := m.Join(hour(t)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrAbandoned) {
			t.Error(err)
		}
	})
}

// A worker that is asked to leave before it has joined ends.
func TestWorkerLeavesBeforeItHasJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		leave := make(chan struct{})
		m := newcomer(&scripted{answers: []answer{absent}})
		m.Leave = leave
		time.AfterFunc(time.Second, func() { close(leave) })
		if _, err := m.Join(hour(t)); !errors.Is(err, ErrLeft) {
			t.Error(err)
		}
	})
}
