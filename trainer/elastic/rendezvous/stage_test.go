package rendezvous

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

var start = time.Unix(1e9, 0)

// stage runs a script. Each line is a call of the rendezvous, and the actions that it returns:
//
//	expect 4                        4 workers are expected
//	join 3/2 [from 1] [round 7]     session 2 (default: 1) of worker 3 arrives for the first time
//	back 3 [from 1] [round 7]       worker 3 arrives from the last world, or from formation 1
//	join 3 aside 1                  worker 3 arrives, and takes no part in the rounds of its next
//	                                world
//	finish 3                        worker 3 has finished in the last world
//	depart 3                        worker 3 is asked to leave
//	broken 3 [suspect 1] [round 7]  worker 3 arrives because its link to worker 1 broke
//	fell 3                          worker 3 arrives, and left in the middle of a round
//	leave 3/2 killed                session 2 (default: the newest) of worker 3 has left
//	wait 300ms                      time passes
//	due 300ms, due never            the deadline, from now
//	state 1 waiting for …           the results of Waiting
type stage struct {
	t   *testing.T
	r   *Rendezvous
	now time.Time
}

func (s *stage) play(script string) {
	s.t.Helper()
	for line := range strings.Lines(script) {
		line, want, _ := strings.Cut(strings.TrimSpace(line), " -> ")
		if line == "" {
			continue
		}
		verb, rest, _ := strings.Cut(line, " ")
		var got []string
		for _, a := range s.tell(verb, rest) {
			got = append(got, a.String())
		}
		if text := strings.Join(got, " | "); text != want {
			s.t.Errorf("%s\n\tgot  %s\n\twant %s", line, text, want)
		}
	}
}

func (s *stage) tell(verb, rest string) []Action {
	s.t.Helper()
	words := strings.Fields(rest)
	number := func(text string) int {
		n, err := strconv.Atoi(text)
		if err != nil {
			s.t.Fatalf("%s %s: %v", verb, rest, err)
		}
		return n
	}
	value := func(name string, other int) int {
		if i := slices.Index(words, name); i >= 0 {
			return number(words[i+1])
		}
		return other
	}
	who := func(other int) (int, int64) {
		worker, session, ok := strings.Cut(words[0], "/")
		if !ok {
			return number(worker), int64(other)
		}
		return number(worker), int64(number(session))
	}
	world, _ := s.r.World()
	switch verb {
	case "expect":
		return s.r.Expect(number(rest), s.now)
	case "join", "back", "broken", "fell":
		w, session := who(1)
		from := int(world.Formation)
		if verb == "join" {
			from = 0
		}
		return s.r.Arrive(Arrival{
			Member:    Member{Worker: w, Session: session, Address: "host-" + words[0]},
			Formation: int64(value("from", from)), Round: int64(value("round", -1)),
			Broken: verb == "broken", Suspect: value("suspect", -1), Idle: value("idle", 0) > 0,
			Aside:    value("aside", 0) > 0,
			BrokeOff: verb == "fell",
		}, s.now)
	case "finish":
		return s.r.Finish(number(rest), world.Formation, s.now)
	case "depart":
		return s.r.Depart(number(rest), s.now)
	case "over":
		if s.r.Over() != (rest == "true") {
			s.t.Errorf("over: %t, want %s", s.r.Over(), rest)
		}
	case "leave":
		w, session := who(0)
		return s.r.Leave(w, session, strings.Join(words[1:], " "), s.now)
	case "wait":
		d, err := time.ParseDuration(rest)
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
		return s.r.Tick(s.now)
	case "due":
		got := "never"
		if at, ok := s.r.Deadline(); ok {
			got = at.Sub(s.now).String()
		}
		if got != rest {
			s.t.Errorf("due %s, want %s", got, rest)
		}
	case "state":
		arrived, why := s.r.Waiting()
		if got := strings.TrimSpace(fmt.Sprint(arrived, " ", why)); got != rest {
			s.t.Errorf("state %s, want %s", got, rest)
		}
	default:
		s.t.Fatalf("what is %q?", verb)
	}
	return nil
}
