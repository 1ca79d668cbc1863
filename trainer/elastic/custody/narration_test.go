package custody

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/narration"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
)

// TestNarration runs the stories of testdata. The first command of a story makes the machine:
// "servers 2", "ring" or "cut holders=2". The narration says what a call returned, and what has
// changed since the last command: the model generation, and the orders that are due.
//
// A ledger is written like "0,1:3": all records of task 0, and 3 records of task 1. A task has 8
// records.
func TestNarration(t *testing.T) {
	narration.Play(t, "testdata/*.txt", func(t *testing.T) narration.Perform {
		var perform narration.Perform
		return func(c *narration.Command) []string {
			switch c.Name {
			case "servers":
				perform = (&serversStage{s: NewServers(c.Int(0)), n: c.Int(0), shown: make(map[string]string)}).perform
				return nil
			case "ring":
				perform = (&ringStage{r: NewRing(int64(c.IntOf("model_generation", 1)), 0)}).perform
				return nil
			case "cut":
				perform = newCutStage(c).perform
				return nil
			}
			if perform == nil {
				t.Fatal("the story does not begin with servers, ring or cut")
			}
			return perform(c)
		}
	})
}

const size = 8 // records of each task

// has returns the ledger of a command, nil without one.
func has(c *narration.Command, name string) (l ledger.Ledger) {
	for part := range strings.SplitSeq(c.Of(name, ""), ",") {
		if part == "" {
			continue
		}
		number, records, some := strings.Cut(part, ":")
		n, err := strconv.Atoi(number)
		of := size
		if some && err == nil {
			of, err = strconv.Atoi(records)
		}
		if err != nil {
			c.Fail("expected tasks, as in 0,1:3, found %q", part)
		}
		l.Add(ledger.Task{Epoch: 1, Number: n}, int64(of), size)
	}
	return l
}

// tell returns a ledger as text.
func tell(l *ledger.Ledger) string {
	var all []string
	for n := range l.Highest(1) + 1 {
		switch records, whole := l.Progress(ledger.Task{Epoch: 1, Number: n}); {
		case whole:
			all = append(all, strconv.Itoa(n))
		case records > 0:
			all = append(all, fmt.Sprintf("%d:%d", n, records))
		}
	}
	if len(all) == 0 {
		return "no records"
	}
	return "records " + strings.Join(all, ",")
}

// serversStage runs a story of servers.
type serversStage struct {
	s *Servers
	n int
	// what was shown last, by what it is about
	shown map[string]string
}

// who returns the server and the incarnation of a command, as in "0/2": incarnation 2 of server 0.
// Without one it is incarnation 1.
func who(c *narration.Command) (index, incarnation int) {
	incarnation = 1
	if n, _ := fmt.Sscanf(c.Arg(0), "%d/%d", &index, &incarnation); n == 0 {
		c.Fail("expected a server, as in 0 or 0/2, found %q", c.Arg(0))
	}
	return index, incarnation
}

// base returns the checkpoint of a command, as in "dir/100".
func base(c *narration.Command, text string) Base {
	dir, number, _ := strings.Cut(text, "/")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil {
		c.Fail("expected a checkpoint, as in dir/100, found %q", text)
	}
	return Base{Dir: dir, Number: n}
}

func (s *serversStage) perform(c *narration.Command) []string {
	return append(s.event(c), s.changes()...)
}

func (s *serversStage) event(c *narration.Command) []string {
	lost := func(lost bool) []string {
		if lost {
			return []string{"values are lost"}
		}
		return nil
	}
	switch c.Name {
	case "join":
		index, incarnation := who(c)
		values, err := s.s.Join(index, incarnation, uint64(c.IntOf("process", incarnation)), "host",
			int64(c.IntOf("holds", 0)))
		if err != nil {
			return []string{"refused: " + err.Error()}
		}
		return lost(values)
	case "leave":
		return lost(s.s.Leave(who(c)))
	case "acknowledge":
		index, incarnation := who(c)
		o, _, _ := s.s.Due(index)
		if generation := c.IntOf("model_generation", 0); generation > 0 {
			o = Order{ModelGeneration: int64(generation)}
		}
		s.s.Acknowledged(index, incarnation, o, int64(c.IntOf("version", 0)))
	case "report":
		index, incarnation := who(c)
		if !s.s.Heard(index, incarnation, int64(c.IntOf("model_generation", int(s.s.ModelGeneration()))),
			int64(c.IntOf("version", 0)), int64(c.IntOf("snapshot", 0))) {
			return []string{"ignored"}
		}
	case "want":
		s.s.Want(c.IntOf("contributors", 0), c.IntOf("settled", 0), int64(c.IntOf("release", 0)),
			CutOrder{Number: int64(c.IntOf("cut", 0))})
	case "kept":
		s.s.Kept(base(c, c.Arg(0)))
	case "unreadable":
		s.s.Rebase(base(c, c.Arg(0)))
	case "recover":
		s.s = NewServers(s.n)
		s.s.Recover(int64(c.IntOf("model_generation", 1)), int64(c.IntOf("highest", 0)), base(c, c.Of("base", "dir/0")))
	case "recovered":
		if s.s.Recovered(c.IntOf("settled", 0), base(c, c.Of("base", "dir/0"))) {
			return []string{"the model generation continues"}
		}
		return []string{"a new model generation begins"}
	case "version":
		return []string{fmt.Sprint(s.s.Version())}
	case "snapshot":
		return []string{fmt.Sprint(s.s.Snapshot(c.Int(0)))}
	default:
		return c.Unknown()
	}
	return nil
}

// changes returns what has changed since it was called last.
func (s *serversStage) changes() (all []string) {
	show := func(about, text string) {
		if before, ok := s.shown[about]; (ok || text != "") && before != text {
			s.shown[about] = text
			if text != "" {
				all = append(all, about+text)
			}
		}
	}
	show("model generation ", fmt.Sprint(s.s.ModelGeneration()))
	for i := range s.n {
		text := ""
		if o, _, ok := s.s.Due(i); ok {
			text = orderText(o)
		}
		show(fmt.Sprintf("order for ps-%d: ", i), text)
	}
	text := ""
	if s.s.Current() {
		text = "have acknowledged an order of this model generation"
	}
	show("all servers ", text)
	return all
}

func orderText(o Order) string {
	text := fmt.Sprintf("model generation %d of ", o.ModelGeneration)
	if o.Base.Dir == "" {
		text += "initial values"
	} else {
		text += fmt.Sprintf("%s/%d", o.Base.Dir, o.Base.Number)
	}
	if o.Contributors > 0 {
		text += fmt.Sprintf(", %d contributors", o.Contributors)
	}
	if o.Settled > 0 {
		text += fmt.Sprintf(", %d epochs settled", o.Settled)
	}
	if o.Release > 0 {
		text += fmt.Sprintf(", release snapshots up to %d", o.Release)
	}
	if o.Cut.Number > 0 {
		text += fmt.Sprintf(", cut %d", o.Cut.Number)
	}
	return text
}

// ringStage runs a story of a ring.
type ringStage struct {
	r     *Ring
	shown string
}

func (s *ringStage) perform(c *narration.Command) []string {
	did := s.event(c)
	text := fmt.Sprintf("model generation %d, version %d", s.r.ModelGeneration(), s.r.Version())
	if s.r.Owed() > 0 {
		text += fmt.Sprintf(", order %d to apply the accumulated gradients", s.r.Owed())
	}
	if text != s.shown {
		s.shown = text
		did = append(did, text)
	}
	return did
}

func (s *ringStage) event(c *narration.Command) []string {
	switch c.Name {
	case "formed":
		w := rendezvous.World{Generation: int64(c.Int(0)), Sources: c.IntsOf("sources"), Behind: c.IntsOf("behind")}
		for _, n := range c.IntsOf("members") {
			w.Members = append(w.Members, rendezvous.Member{Worker: n, Session: 1})
		}
		return settlements(s.r.Formed(w, has(c, "ledger"), int64(c.IntOf("version", 0))))
	case "lose":
		return settlements(s.r.Reclaim(c.Int(0), c.Is("trains"), c.Of("fault", "")))
	case "report":
		snapshot, settled := s.r.Heard(State{Generation: int64(c.IntOf("generation", 0)),
			Version: int64(c.IntOf("version", 0)), Snapshot: int64(c.IntOf("snapshot", 0)),
			Flushed: int64(c.IntOf("flushed", 0))})
		did := settlements(settled)
		if snapshot > 0 {
			did = append(did, fmt.Sprintf("a worker has a snapshot of version %d", snapshot))
		}
		return did
	case "lost":
		var did []string
		gone := s.r.Lost(c.Is("trained"), int64(c.IntOf("version", 0)))
		for worker := range 10 {
			if fault, ok := gone[worker]; ok {
				did = append(did, fmt.Sprintf("worker-%d: its leases are taken back, none of their records is "+
					"in the model%s", worker, counted(fault)))
			}
		}
		return did
	case "apply":
		if s.r.Flush() == 0 {
			return []string{"ordered before"}
		}
	case "restart":
		s.r = RestoreRing(s.r.ModelGeneration(),
			int64(c.IntOf("highest", int(s.r.HighestGeneration()))), s.r.World(), s.r.Save())
	case "recovered":
		return settlements(s.r.Recovered(has(c, "ledger")))
	default:
		return c.Unknown()
	}
	return nil
}

func counted(fault string) string {
	if fault == "" {
		return ""
	}
	return "; counted: " + fault
}

func settlements(all []Settlement) (did []string) {
	for _, s := range all {
		did = append(did, fmt.Sprintf("worker-%d: its leases are taken back, %s are in the model%s", s.Worker,
			tell(&s.Ledger), counted(s.Fault)))
	}
	return did
}

// cutStage runs a story of cuts.
type cutStage struct {
	c     *Cut
	now   time.Time
	shown string
}

func newCutStage(c *narration.Command) *cutStage {
	now := time.Unix(1e9, 0)
	return &cutStage{now: now, shown: orderOfCut(CutOrder{}), c: NewCut(CutPolicy{
		Holders: c.IntOf("holders", 1), Steps: int64(c.IntOf("steps", 0)), Interval: c.DurationOf("interval"),
		Hold: 2 * time.Second, HoldMost: 8 * time.Second, Write: time.Minute, Pause: 5 * time.Second,
	}, 0, now)}
}

func (s *cutStage) perform(c *narration.Command) []string {
	did := s.event(c)
	if text := orderOfCut(s.c.Order()); text != s.shown {
		s.shown = text
		did = append(did, text)
	}
	return did
}

func orderOfCut(o CutOrder) string {
	switch {
	case o.Number == 0:
		return "order: no cut"
	case o.Target == nil:
		return fmt.Sprintf("order: cut %d: accept no gradients, and report the ledger", o.Number)
	}
	return fmt.Sprintf("order: cut %d: copy when the model has %s", o.Number, tell(o.Target))
}

// phases are the names of what a holder reports.
var phases = []string{Held: "held", Copied: "copied", Written: "written", Failed: "failed"}

func (s *cutStage) event(c *narration.Command) []string {
	given := func(failed string) []string {
		if failed == "" {
			return nil
		}
		return []string{"given up: " + failed}
	}
	switch c.Name {
	case "begin":
		s.c.Begin(int64(c.IntOf("version", 0)), s.now)
	case "due":
		return []string{fmt.Sprint(s.c.Due(int64(c.IntOf("version", 0)), s.now))}
	case "covers":
		return []string{fmt.Sprint(s.c.Covers(int64(c.IntOf("version", 0))))}
	case "report":
		phase := slices.Index(phases, c.Arg(1))
		if phase < int(Held) {
			c.Fail("expected held, copied, written or failed, found %q", c.Arg(1))
			return nil
		}
		done, failed := s.c.Heard(c.Int(0), Report{Number: int64(c.IntOf("cut", int(s.c.Order().Number))),
			Phase: Phase(phase), Ledger: has(c, "ledger"), Version: int64(c.IntOf("version", 0)),
			Err: c.Of("error", "")}, s.now)
		if done != nil {
			return []string{fmt.Sprintf("commit of cut %d: %s, versions %v", done.Number, tell(&done.Ledger),
				done.Versions)}
		}
		return given(failed)
	case "wait":
		s.now = s.now.Add(c.Duration(0))
		return given(s.c.Tick(s.now))
	case "deadline":
		if at, ok := s.c.Deadline(); ok {
			return []string{"in " + at.Sub(s.now).String()}
		}
		return []string{"none"}
	case "lost":
		if s.c.GiveUp(s.now) {
			return []string{"given up"}
		}
	case "back":
		s.c.Rollback(int64(c.IntOf("version", 0)))
	case "rewind":
		s.c.Rewind(int64(c.IntOf("version", 0)), s.now)
	case "unwritten":
		s.c.Unwritten(int64(c.IntOf("version", 0)), s.now)
	default:
		return c.Unknown()
	}
	return nil
}
