package agent

import (
	"context"
	"fmt"
	"math"
	"net"
	"strconv"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// seat is the position of this worker's processes in a world.
type seat struct {
	// number of this worker among the workers, and how many there are
	group, groups int
	// rank of its first process, and the number of processes of all workers
	first, size int
	// rank of the process that has the newest state; -1: none has
	source int
	host   string
	// port of the store
	port int
}

// seatIn returns this worker's seat in a world. Ranks follow the order of members.
func seatIn(w *wire.World, index int) (seat, error) {
	s := seat{group: -1, groups: len(w.Members), source: -1}
	for i, m := range w.Members {
		if m.Crew == nil {
			return s, fmt.Errorf("world %d: worker %d has not said which processes it brings", w.Id, m.Worker)
		}
		if int(m.Worker) == index {
			s.group, s.first = i, s.size
		}
		if len(w.Sources) > 0 && int(w.Sources[0]) == i {
			s.source = s.size + int(m.Crew.Source)
		}
		s.size += int(m.Crew.Processes)
	}
	if s.group < 0 {
		return s, fmt.Errorf("world %d does not have worker %d as a member", w.Id, index)
	}
	host, port, err := net.SplitHostPort(w.Members[0].Crew.Store)
	if err == nil {
		s.host = host
		s.port, err = strconv.Atoi(port)
	}
	if err != nil {
		return s, fmt.Errorf("world %d: the store of worker %d: %w", w.Id, w.Members[0].Worker, err)
	}
	return s, nil
}

// live works in one world until the world is to change. It returns the processes that failed by
// themselves.
func (a *agent) live(ctx context.Context, w membership.World) ([]*wire.Failure, error) {
	s, err := seatIn(w.World, a.Self.Header().Index)
	if err != nil {
		return nil, err
	}
	a.brokeOff = true // unless they leave it after a round
	a.unknown = false
	a.last = a.release(a.last) // all processes have left that world
	if s.group > 0 {           // the store of the first worker is used
		a.store = a.release(a.store)
	}
	world, shut := context.WithCancel(ctx)
	defer shut()
	v := &vigil{agent: a, world: w, seat: s, shut: shut, stops: make(map[int]time.Time),
		frozen: make(map[int]bool), grace: a.Job.Program.Grace.Duration}
	// a process that waited for this world and has ended meanwhile was its member
	a.absorb(v.fails)
	here := w.Members[s.group].Crew
	v.here = int(here.Processes)
	if own := s.source - s.first; len(v.failed) > 0 || own >= 0 && own < int(here.Processes) && !a.has(own) {
		return v.failures(), nil
	}
	a.records.enter(w.Floor, int(w.Settled))
	a.scripts.serve(world, w.Formation, net.JoinHostPort(s.host, strconv.Itoa(s.port)))
	if a.rested = !v.rest(ctx); a.rested {
		return v.failures(), nil
	}
	v.ooms = oomKills()
	if err := v.start(ctx); err != nil {
		return nil, err
	}
	a.Log.Info(fmt.Sprintf("World %d: %s of %d", w.Id, ranks(s.first, int(here.Processes)), s.size),
		"formation", w.Formation, "store", w.Members[0].Crew.Store)
	// until all processes have left: what they tell of their state meanwhile counts, too
	a.beats.world(w.Formation)
	defer a.beats.world(0)
	for stays := true; stays; {
		err := v.keep(ctx)
		if err == nil {
			stays, err = v.part(ctx)
		}
		if err != nil {
			return nil, err
		}
	}
	return v.failures(), nil
}

// has reports whether the n-th of the processes that take part has a state, and waits.
func (a *agent) has(n int) bool {
	crew := a.crew(math.MaxInt64)
	return n < len(crew) && crew[n].keeps() && crew[n].waits != nil && crew[n].waits.Round >= 0
}

// ranks returns a range of n ranks as text, such as "rank 2" or "ranks 2-5".
func ranks(first, n int) string {
	switch n {
	case 0:
		return "no rank"
	case 1:
		return fmt.Sprintf("rank %d", first)
	}
	return fmt.Sprintf("ranks %d-%d", first, first+n-1)
}

// networkInterface returns the name of the network interface that has the worker's address, for
// gloo and NCCL; "" if none is found.
func (a *agent) networkInterface() string {
	if name := a.Job.Program.Interface; name != "" {
		return name
	}
	all, err := net.Interfaces()
	if err != nil {
		return ""
	}
	ip := net.ParseIP(a.Host)
	for _, i := range all {
		addrs, _ := i.Addrs() // none: it is not that one
		for _, addr := range addrs {
			if n, ok := addr.(*net.IPNet); ok && n.IP.Equal(ip) {
				return i.Name
			}
		}
	}
	return ""
}
