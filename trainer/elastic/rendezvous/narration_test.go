package rendezvous

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/narration"
)

var start = time.Unix(1e9, 0)

// TestNarration runs the stories of testdata, which narrate the actions of the rendezvous.
//
//	policy min=2 settle=1s          parameters; the first command of a story
//	expect 4                        4 workers are expected
//	join 3/2 [from=1] [round=7]     session 2 (default: 1) of worker 3 arrives for the first time
//	join 3 aside=yes                worker 3 arrives, and takes no part in the rounds of its next
//	                                world
//	world 3 [aside=1]               3 workers are expected and join; worker 1 takes no part
//	back 3 [from=1] [round=7]       worker 3 arrives from the last world, or from generation 1
//	back 3 round=7 since=2          the rounds are those since generation 2
//	broken 3 [suspect=1] [round=7]  worker 3 arrives because its link to worker 1 broke
//	broken 3 idle=yes               the link broke when there was no work for a round
//	breakoff 3                      worker 3 arrives, and may have left in the middle of a round
//	finish 3                        worker 3 has finished in the last world
//	depart 3                        worker 3 is asked to leave
//	leave 3/2 killed                session 2 (default: the newest) of worker 3 has left
//	disconnected 3                  the stream of worker 3 has ended
//	present 3 [generation=1]        worker 3 has a stream again, and works in the last world
//	wait 300ms                      time passes
//	restart [min=1] [given=7]       another master restores the rendezvous
//	twin                            a second rendezvous, restored from the first, does the same
//
// Questions, whose narration is the answer:
//
//	deadline                        how long until Tick is to be called
//	waiting                         how many have arrived, and what is waited for
//	over                            whether all members have finished
//	last [session=1]                the workers without which the state is lost
//	given                           the highest generation number that was given out
func TestNarration(t *testing.T) {
	narration.Play(t, "testdata/*.txt", func(t *testing.T) narration.Perform {
		s := &stage{t: t, all: []*Rendezvous{New(Policy{})}, now: start}
		return s.perform
	})
}

// stage runs a story.
type stage struct {
	t      *testing.T
	policy Policy
	// the rendezvous, and its twin if there is one
	all []*Rendezvous
	now time.Time
}

// perform performs a command, and compares what the twin does.
func (s *stage) perform(c *narration.Command) []string {
	switch c.Name {
	case "policy":
		s.policy = Policy{Min: c.IntOf("min", 0), Max: c.IntOf("max", 0), Settle: c.DurationOf("settle"),
			Gather: c.DurationOf("gather"), Patience: c.DurationOf("patience"), Attempts: c.IntOf("attempts", 0),
			Absence: c.DurationOf("absence")}
		s.all = []*Rendezvous{New(s.policy)}
		return nil
	case "wait":
		s.now = s.now.Add(c.Duration(0))
	case "restart":
		s.policy.Min = c.IntOf("min", s.policy.Min)
		s.all = []*Rendezvous{s.restored(int64(c.IntOf("given", 0)))}
		return nil
	case "twin":
		s.all = append(s.all, s.restored(0))
		return nil
	}
	var did []string
	for i, r := range s.all {
		again := s.tell(r, c)
		if i > 0 && !slices.Equal(did, again) {
			s.t.Errorf("%s: the restored rendezvous did %q, and the other %q", c.Name, again, did)
		}
		did = again
	}
	return did
}

// restored returns a rendezvous with the stored state of the present one.
func (s *stage) restored(given int64) *Rendezvous {
	text, err := json.Marshal(s.all[0].Snapshot())
	if err != nil {
		s.t.Fatal(err)
	}
	var saved Snapshot
	if err := json.Unmarshal(text, &saved); err != nil {
		s.t.Fatal(err)
	}
	saved.Given = max(saved.Given, given)
	r, err := Restore(s.policy, saved, s.now)
	if err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	return r
}

// tell tells a rendezvous what happens, and returns its actions.
func (s *stage) tell(r *Rendezvous, c *narration.Command) []string {
	switch c.Name {
	case "deadline", "waiting", "over", "last", "given":
		return []string{s.answer(r, c)}
	case "world":
		did := r.Expect(c.Int(0), s.now)
		for w := range c.Int(0) {
			m := Member{Worker: w, Session: 1, Address: fmt.Sprintf("host-%d", w)}
			did = append(did, r.Arrive(Arrival{Member: m, Position: NoState, Suspect: -1,
				Aside: w == c.IntOf("aside", -1)}, s.now)...)
		}
		return narration.Lines(did)
	}
	return narration.Lines(s.event(r, c))
}

func (s *stage) event(r *Rendezvous, c *narration.Command) []Action {
	world, _ := r.World()
	switch c.Name {
	case "expect":
		return r.Expect(c.Int(0), s.now)
	case "join", "back", "broken", "breakoff":
		from := int(world.Generation)
		if c.Name == "join" {
			from = 0
		}
		return r.Arrive(Arrival{
			Member:     member(c, 1),
			Position:   Position{Beginning: int64(c.IntOf("since", 0)), Round: int64(c.IntOf("round", -1))},
			Generation: int64(c.IntOf("from", from)),
			Broken:     c.Name == "broken", Suspect: c.IntOf("suspect", -1), Idle: c.Is("idle"),
			Aside: c.Is("aside"), BrokeOff: c.Name == "breakoff",
		}, s.now)
	case "finish":
		return r.Finish(c.Int(0), world.Generation, s.now)
	case "depart":
		return r.Depart(c.Int(0), s.now)
	case "leave":
		m := member(c, 0)
		return r.Leave(m.Worker, m.Session, c.Arg(1), s.now)
	case "disconnected":
		m := member(c, 1)
		return r.Disconnected(m.Worker, m.Session, "its stream ended", s.now)
	case "present":
		return r.Present(member(c, 1), int64(c.IntOf("generation", int(world.Generation))), s.now)
	case "wait":
		return r.Tick(s.now)
	}
	c.Unknown()
	return nil
}

// answer answers a question.
func (s *stage) answer(r *Rendezvous, c *narration.Command) string {
	switch c.Name {
	case "deadline":
		if at, ok := r.Deadline(); ok {
			return "in " + at.Sub(s.now).String()
		}
		return "none"
	case "waiting":
		arrived, why := r.Waiting()
		return strings.TrimSuffix(fmt.Sprintf("%d arrived, %s", arrived, why), ", ")
	case "over":
		return fmt.Sprint(r.Over())
	case "last":
		var last []string
		for worker := range 10 {
			if m := (Member{Worker: worker}); r.Last(worker, int64(c.IntOf("session", 1))) {
				last = append(last, m.String())
			}
		}
		if len(last) == 0 {
			return "none"
		}
		return strings.Join(last, ", ")
	case "given":
		return fmt.Sprint(r.Snapshot().Given)
	}
	return ""
}

// member returns the process of a command, as in "3/2": session 2 of worker 3. Without a session it
// is other.
func member(c *narration.Command, other int64) Member {
	m := Member{Session: other, Address: "host-" + c.Arg(0)}
	if n, err := fmt.Sscanf(c.Arg(0), "%d/%d", &m.Worker, &m.Session); err != nil && n != 1 {
		c.Fail("expected a worker, as in 3 or 3/2, found %q", c.Arg(0))
	}
	return m
}
