package pod

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/narration"
)

// TestNarration runs the stories of testdata, which narrate the actions of the table.
//
//	job workers=2 servers=1         a job of which no pod is wanted yet; see perform for more
//	start                           the job starts
//	started                         the job starts, and all its pods run
//	pending worker-0 [waiting=why]  the pod is there and does not run; hopeless=yes: it never will
//	running ps-0 [incarnation=2]    the pod runs
//	leaving worker-0                the pod was asked to leave
//	failed worker-0 code=1          the pod has ended; see event for the other causes
//	succeeded worker-0              the pod has ended with code 0
//	deleted worker-0                the pod is deleted
//	refused worker-0 quota          it could not be created; full=yes: for want of resources
//	scale 3                         3 workers are wanted
//	replace worker-0 silent         the pod does not do its work
//	hold                            no pod is created any more
//	end 5s                          the job is over; workers may leave for 5 s
//	wait 2s                         time passes
//	listed worker-0 running         the runtime lists this pod to the next master
//	restart                         another master restores the table, with all pods listed
//
// Questions, whose narration is the answer:
//
//	deadline                        how long until Tick is to be called
//	pods                            all pods
//	workers                         how many workers there are or will be
//	ended                           whether no pod is left
func TestNarration(t *testing.T) {
	narration.Play(t, "testdata/*.txt", func(t *testing.T) narration.Perform {
		s := &stage{t: t, now: start}
		return s.perform
	})
}

// stage runs a story.
type stage struct {
	t      *testing.T
	policy Policy
	table  *Table
	now    time.Time
	// of the next master
	listed []Event
	// the error that was shown last
	failed string
}

func (s *stage) perform(c *narration.Command) []string {
	if c.Name == "job" {
		s.policy = Policy{Servers: c.IntOf("servers", 0), Workers: c.IntOf("workers", 0),
			MinWorkers: c.IntOf("min_workers", 0), Relaunches: c.IntOf("relaunches", 0),
			MaxOOMs: map[Role]int{Worker: c.IntOf("memory_doubles", 0)}}
		s.table = New(s.policy)
		return nil
	}
	if s.table == nil {
		s.t.Fatal("the story does not begin with job")
	}
	if answer := s.answer(c); answer != nil {
		return answer
	}
	var did []string
	for _, a := range s.event(c) {
		did = append(did, action(a))
	}
	if err := s.table.Err(); err != nil && err.Error() != s.failed {
		s.failed = err.Error()
		did = append(did, "the job fails: "+s.failed)
	}
	return did
}

// action returns an action as text, with what a creation is given.
func action(a Action) string {
	text := a.String()
	if a.Verb != Create {
		return text
	}
	if a.Original != a.ID.Index {
		text += fmt.Sprintf(", in the place of worker-%d", a.Original)
	}
	if a.Address != "" {
		text += ", at " + a.Address
	}
	if a.OOMs > 0 {
		text += fmt.Sprintf(", its memory doubled %d times", a.OOMs)
	}
	return text
}

func (s *stage) event(c *narration.Command) []Action {
	switch c.Name {
	case "start":
		return s.table.Start(s.now)
	case "started":
		var all []Action
		for todo := s.table.Start(s.now); len(todo) > 0; todo = todo[1:] {
			all = append(all, todo[0])
			id := todo[0].ID
			ran := Event{ID: id, Phase: Running, Address: "host-" + id.String()}
			todo = append(todo, s.table.Observe(ran, s.now)...)
		}
		return all
	case "scale":
		return s.table.Scale(c.Int(0), s.now)
	case "replace":
		return s.table.Replace(pod(c), c.Arg(1), s.now)
	case "refused":
		return s.table.Refused(pod(c), c.IntOf("incarnation", 1), Refusal{Reason: c.Arg(1), Full: c.Is("full"),
			Denied: c.Is("denied"), Hopeless: c.Is("hopeless")}, s.now)
	case "hold":
		s.table.Hold()
	case "end":
		return s.table.End(c.Duration(0), s.now)
	case "wait":
		s.now = s.now.Add(c.Duration(0))
		return s.table.Tick(s.now)
	case "listed":
		s.listed = append(s.listed, event(c, c.Arg(1)))
	case "restart":
		return s.restart()
	default:
		return s.table.Observe(event(c, c.Name), s.now)
	}
	return nil
}

// restart restores the table from its stored snapshot.
func (s *stage) restart() []Action {
	text, err := json.Marshal(s.table.Snapshot())
	if err != nil {
		s.t.Fatal(err)
	}
	var saved Snapshot
	if err := json.Unmarshal(text, &saved); err != nil {
		s.t.Fatal(err)
	}
	table, actions, err := Restore(s.policy, saved, s.listed, s.now)
	if err != nil {
		s.t.Fatalf("%s: %v", text, err)
	}
	s.table, s.listed = table, nil
	return actions
}

// event returns what a command says of a pod.
func event(c *narration.Command, phase string) Event {
	ev := Event{ID: pod(c), Incarnation: c.IntOf("incarnation", 0), Waiting: c.Of("waiting", ""),
		Hopeless: c.Is("hopeless"), Phase: Phase(slices.IndexFunc(phases[:], func(name string) bool {
			return name != "" && strings.ToLower(name) == phase
		}))}
	if ev.Phase < Pending {
		c.Unknown()
	}
	ev.Exit = Exit{Code: c.IntOf("code", 0), Signal: c.IntOf("signal", 0), OOM: c.Is("oom"),
		Evicted: c.Is("evicted"), Preempted: c.Is("preempted"), NodeLost: c.Is("node_lost"),
		Deleted: c.Is("deleted"), Rejected: c.Is("rejected"), Reason: c.Of("reason", "")}
	return ev
}

// pod returns the pod of a command, as in "worker-3".
func pod(c *narration.Command) ID {
	var id ID
	name, index, _ := strings.Cut(c.Arg(0), "-")
	for _, role := range []Role{PS, Worker} {
		if role.String() == name {
			id.Role = role
		}
	}
	if _, err := fmt.Sscan(index, &id.Index); err != nil || id.Role == 0 {
		c.Fail("expected a pod, as in worker-3, found %q", c.Arg(0))
	}
	return id
}

// answer answers a question, nil if the command is none.
func (s *stage) answer(c *narration.Command) []string {
	switch c.Name {
	case "deadline":
		if due, ok := s.table.Deadline(); ok {
			return []string{"in " + due.Sub(s.now).String()}
		}
		return []string{"none"}
	case "workers":
		return []string{fmt.Sprint(s.table.Workers())}
	case "ended":
		return []string{fmt.Sprint(s.table.Ended())}
	case "pods":
		all := []string{}
		for _, p := range s.table.List() {
			text := fmt.Sprintf("%v %v", p.ID, p.Phase)
			if p.Incarnation > 1 {
				text += fmt.Sprintf(", incarnation %d", p.Incarnation)
			}
			if p.Phase.Ended() {
				text += ", " + p.Exit.String()
			}
			if p.GivenUp {
				text += ", given up"
			}
			if p.Waiting != "" {
				text += ": " + p.Waiting
			}
			all = append(all, text)
		}
		return all
	}
	return nil
}
