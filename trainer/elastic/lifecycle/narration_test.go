package lifecycle

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/narration"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

var start = time.Unix(1e9, 0).UTC()

var policy = Policy{Grace: 15 * time.Second, Farewell: 10 * time.Second, End: time.Minute}

// stage runs a story.
type stage struct {
	t   *testing.T
	l   *Lifecycle
	now time.Time
	f   Facts
}

// TestNarration runs the stories of testdata, which narrate the actions of the lifecycle, and
// changes of the stage.
//
//	plan                        the data, the checkpoints and the pods are known
//	recovered                   it is known what is in the model
//	grant                       a task is granted
//	complete                    every record was trained on
//	rollback                    a generation of the model begins
//	model 7                     the newest known version of the model is 7
//	checkpoint 7                the newest checkpoint has version 7
//	pods ended                  all pods have ended
//	processes write             processes have yet to write a checkpoint of their own; then "ready"
//	leave, suspend              notices
//	stop [again=yes] why        somebody stops the job
//	end Failed why              the job ends in a state, for a reason
//	superseded                  another master has begun
//	wait 5s                     time passes, and Step is called
//	restart                     another master restores the lifecycle from the last record
//
// Questions: "stage", "deadline", "need" (whether a checkpoint is to be made), "done" (whether Run
// returns), "record" (what is stored), "unsaved" (why processes have saved nothing).
func TestNarration(t *testing.T) {
	narration.Play(t, "testdata/*.txt", func(t *testing.T) narration.Perform {
		s := &stage{t: t, l: New(policy, start), now: start, f: Facts{Checkpoints: true, Pods: true}}
		return s.perform
	})
}

func (s *stage) perform(c *narration.Command) []string {
	before := s.l.Stage()
	if lines, ok := s.answer(c); ok {
		return lines
	}
	lines := narration.Lines(s.tell(c))
	if after := s.l.Stage(); after != before {
		lines = append(lines, "stage "+after.String())
	}
	return lines
}

// answer answers a question.
func (s *stage) answer(c *narration.Command) ([]string, bool) {
	switch c.Name {
	case "stage":
		return []string{fmt.Sprintf("%v, the job is %v", s.l.Stage(), s.l.State())}, true
	case "deadline":
		if at, ok := s.l.Deadline(); ok {
			return []string{at.Sub(s.now).String()}, true
		}
		return []string{"none"}, true
	case "need":
		return []string{[...]string{"never", "when due", "at once"}[s.l.Checkpoint(s.f.Covered)]}, true
	case "done":
		return []string{fmt.Sprint(s.l.Done(!s.f.Pods, s.now), ", ", s.l.Left(), ", ", s.l.Err())}, true
	case "record":
		return []string{s.record()}, true
	case "unsaved":
		return []string{s.l.Unsaved()}, true
	}
	return nil, false
}

func (s *stage) record() string {
	text, err := json.Marshal(s.l.Snapshot())
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}

// tell tells the lifecycle what happens.
func (s *stage) tell(c *narration.Command) []Action {
	switch c.Name {
	case "plan":
		return s.l.Plan(s.now)
	case "recovered":
		s.l.Recovered()
	case "grant":
		return s.l.Grant()
	case "complete":
		s.l.Complete()
	case "rollback":
		s.l.Rollback()
	case "model":
		s.f.Version = int64(c.Int(0))
	case "checkpoint":
		s.f.Covered = int64(c.Int(0))
	case "pods":
		s.f.Pods = c.Arg(0) != "ended"
	case "processes":
		s.f.Processes = &Processes{Asked: true, Trained: true, Hold: true, Rested: c.Arg(0) == "ready"}
	case "leave", "suspend":
		did, _ := s.l.Close(map[string]Notice{"leave": Leave, "suspend": Suspend}[c.Name], s.f, s.now)
		return append(did, s.l.Step(s.f, s.now)...)
	case "stop":
		did, _ := s.l.Stop(errors.New(c.Arg(0)), c.Is("again"), s.f, s.now)
		return append(did, s.l.Step(s.f, s.now)...)
	case "end":
		var err error
		if state := job.State(c.Arg(0)); state != job.Succeeded {
			err = errors.New(c.Arg(1))
		}
		return s.l.End(job.State(c.Arg(0)), err, s.f.Undone, s.now)
	case "superseded":
		return s.l.Supersede(errors.New("another master has begun"))
	case "wait":
		s.now = s.now.Add(c.Duration(0))
	case "restart":
		var saved Snapshot
		if err := json.Unmarshal([]byte(s.record()), &saved); err != nil {
			s.t.Fatal(err)
		}
		l, err := Restore(policy, saved, s.now)
		if err != nil {
			s.t.Fatal(err)
		}
		s.l = l
		return nil
	default:
		c.Unknown()
		return nil
	}
	return s.l.Step(s.f, s.now)
}
