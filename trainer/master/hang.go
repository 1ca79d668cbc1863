package master

import (
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/elastic/stacks"
	"github.com/elasticdl/elasticdl/trainer/elastic/stuck"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	// hangEvery is the least time between two observations of a program: agents look at its
	// processes as often.
	hangEvery = 2 * time.Second
	// hangStale is the age of a worker's report after which nothing is known of its processes.
	hangStale = 3 * time.Second
	// hangStacks limits the wait for the stacks of all workers.
	hangStacks = 4 * time.Second
)

// hang observes whether the processes of a program make progress, and says where they stand if they
// do not. It decides nothing: see package stuck. The caller of each method holds the mutex.
type hang struct {
	shared
	program  *program
	contacts *contacts
	work     *work
	fleet    *fleet
	stacks   *stackRequests
	inquiry  *stuck.Inquiry
	// when it was observed last, by clock
	observed time.Time
	// number of the request for stacks that has no answer yet, 0 if there is none, and when it is
	// given up, by clock
	asked   int64
	askedBy time.Time
	// by worker: the processes that it is to kill
	kills map[int][]*wire.Hung
	// time of the last sign of life of a program that is stuck, in Unix milliseconds
	since int64
}

func newHang(m *master) *hang {
	return &hang{shared: m.shared, program: m.program, contacts: m.contacts, work: m.work, fleet: m.fleet,
		stacks: &m.stacks, inquiry: stuck.NewInquiry(stuck.Policy{Kill: m.Job.Program.Hang.Duration})}
}

// answered takes the stacks when all workers have answered, or could have.
func (h *hang) answered(now time.Time) {
	if h.asked == 0 {
		return
	}
	present := h.clock.at(now)
	all, missing := h.stacks.gathered(h.asked, h.fleet.table.List())
	if len(missing) > 0 && present.Before(h.askedBy) {
		return
	}
	h.close()
	h.perform(h.inquiry.Answer(present, h.ranks(all)), now)
}

// step takes what the workers report by now.
func (h *hang) step(now time.Time) {
	present := h.clock.at(now)
	if h.asked > 0 && !present.Before(h.askedBy) {
		h.answered(now)
	}
	if present.Sub(h.observed) < hangEvery {
		return
	}
	h.observed = present
	o, works, known := h.observation(present)
	switch {
	case !works:
		clear(h.kills)
		h.perform(h.inquiry.Reset(present), now)
	case known:
		h.perform(h.inquiry.Observe(present, o), now)
	}
}

// members returns the workers of the world whose processes work; false if one has to come to it, or
// it is about to end.
func (h *hang) members() ([]rendezvous.Member, bool) {
	g := h.program
	world, _ := g.ring.meeting.World()
	closing, _, _ := h.stage.Closing()
	if h.stage.Over() || h.stage.Recovering() || closing != 0 || len(world.Members) == 0 {
		return nil, false
	}
	var members []rendezvous.Member
	for _, m := range world.Members {
		if g.ring.meeting.Finished(m.Worker) {
			continue
		}
		s, c := g.ring.participants[m.Worker], h.contacts.get(pod.ID{Role: pod.Worker, Index: m.Worker})
		if s == nil || s.session != m.Session || s.waits || c == nil || c.generation != world.Generation {
			return nil, false
		}
		members = append(members, m)
	}
	return members, len(members) > 0
}

// observation returns what the workers have reported. works is false if nothing is expected of the
// processes, and known if a worker has reported nothing lately.
func (h *hang) observation(present time.Time) (o stuck.Observation, works, known bool) {
	members, works := h.members()
	if !works {
		return o, false, false
	}
	o.Progress = h.program.ring.version() + h.work.queue.Stats().Done + h.program.saved.GetUnixMs()
	for _, m := range members {
		c := h.contacts.get(pod.ID{Role: pod.Worker, Index: m.Worker})
		age := present.Sub(c.heard)
		if age > hangStale {
			return o, true, false
		}
		o.Progress += c.steps
		for _, r := range c.reports {
			if r.Rank < 0 {
				continue
			}
			s := stuck.Sample{Rank: int(r.Rank), Process: m.Worker<<32 | int(r.Pid), Quiet: -1, Cores: float64(r.Cores),
				Ready: r.Ready, Moved: r.Moved, Held: r.Held}
			if r.QuietMs >= 0 {
				s.Quiet = time.Duration(r.QuietMs)*time.Millisecond + age
			}
			o.Ranks = append(o.Ranks, s)
		}
	}
	return o, len(o.Ranks) > 0, true
}

// ranks returns the stacks of the processes that work in the world. Those of a worker that has not
// answered have a reason.
func (h *hang) ranks(all []*wire.ProcessStack) (ranks []stacks.Rank) {
	members, _ := h.members()
	for _, m := range members {
		answered := false
		for _, p := range all {
			if int(p.Worker) == m.Worker {
				answered = true
				if p.Rank >= 0 {
					ranks = append(ranks, stacks.Rank{Rank: int(p.Rank), Text: p.Text, Why: p.Why, Call: p.Call,
						Looks: int(p.Looks), Moved: p.Moved})
				}
			}
		}
		if answered {
			continue
		}
		for _, r := range h.contacts.get(pod.ID{Role: pod.Worker, Index: m.Worker}).reports {
			if r.Rank >= 0 {
				ranks = append(ranks, stacks.Rank{Rank: int(r.Rank), Why: "no stacks: its worker did not answer"})
			}
		}
	}
	return ranks
}

// perform performs what the inquiry orders.
func (h *hang) perform(actions []stuck.Action, now time.Time) {
	for _, a := range actions {
		switch a := a.(type) {
		case stuck.Ask:
			h.close()
			h.asked = h.stacks.ask(h.Self.Header().Incarnation)
			h.askedBy = h.clock.at(now).Add(hangStacks)
			h.stacks.open++
		case stuck.State:
			e := Stuck{For: a.For, Ranks: a.Differ, Text: a.Text}
			h.since = now.Add(-a.For).UnixMilli()
			h.Log.Warn("The program makes no progress", "for", seconds(a.For), "ranks", a.Text)
			h.events.happen(e)
		case stuck.Clear:
			e := Unstuck{After: a.After, Restarted: a.Restarted}
			h.Log.Info(e.Words())
			h.events.happen(e)
		case stuck.Kill:
			h.kill(a)
		}
	}
}

// kill has the agents kill the processes of ranks.
func (h *hang) kill(a stuck.Kill) {
	world, _ := h.program.ring.meeting.World()
	h.kills = make(map[int][]*wire.Hung)
	for _, m := range world.Members {
		c := h.contacts.get(pod.ID{Role: pod.Worker, Index: m.Worker})
		if c == nil {
			continue
		}
		for _, r := range c.reports {
			if r.Rank < 0 || !slices.Contains(a.Ranks, int(r.Rank)) {
				continue
			}
			why := logline.Escape(a.Why[int(r.Rank)])
			h.Log.Warn("Killing a process that makes no progress", "rank", r.Rank, "worker", m.Worker, "pid", r.Pid,
				"why", why)
			h.kills[m.Worker] = append(h.kills[m.Worker], &wire.Hung{Pid: r.Pid, Generation: world.Generation,
				Why: why})
		}
	}
}

// orders returns the processes that a worker is to kill, and that it still reports.
func (h *hang) orders(worker int, r *wire.HeartbeatRequest) (all []*wire.Hung) {
	for _, k := range h.kills[worker] {
		if k.Generation == r.Generation && slices.ContainsFunc(r.Processes, func(p *wire.ProcessReport) bool {
			return p.Pid == k.Pid
		}) {
			all = append(all, k)
		}
	}
	return all
}

// close ends the request for stacks.
func (h *hang) close() {
	if h.asked > 0 {
		h.asked = 0
		h.stacks.close()
	}
}

// describe adds to the status that the program is stuck.
func (h *hang) describe(s *wire.JobStatus) {
	if f := h.inquiry.Finding(); f != nil {
		s.Stuck, s.StuckSinceUnixMs = logline.Escape(f.Text), h.since
	}
}

// stuckSince returns the time of the last sign of life of a program that is stuck, in Unix
// milliseconds; 0: it is not.
func (h *hang) stuckSince() int64 {
	if h.inquiry.Finding() == nil {
		return 0
	}
	return h.since
}
