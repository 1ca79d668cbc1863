package agent

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/elasticdl/elasticdl/trainer/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/worker"
)

// seat is this worker's place in a world.
type seat struct {
	group, groups int // of this worker among all
	first, size   int // rank of its first process, and processes of all
	host          string
	port          int // of the store
}

// seatIn finds this worker's place. Ranks go by the order of members.
func seatIn(w *wire.World, index int) (seat, error) {
	s := seat{group: -1, groups: len(w.Members)}
	for i, m := range w.Members {
		if m.Crew.GetProcesses() < 1 {
			return s, fmt.Errorf("world %d: worker %d brings no processes", w.Id, m.Worker)
		}
		if int(m.Worker) == index {
			s.group, s.first = i, s.size
		}
		s.size += int(m.Crew.Processes)
	}
	if s.group < 0 {
		return s, fmt.Errorf("world %d has no place for worker %d", w.Id, index)
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

// live is the time in one world. It ends when the world is to change; then it returns the processes that failed by themselves.
func (a *agent) live(ctx context.Context, w worker.Place) ([]*wire.Failure, error) {
	s, err := seatIn(w.World, a.Self.Header().Index)
	if err != nil {
		return nil, err
	}
	if s.group > 0 { // the first worker's is used
		a.release()
	}
	if a.stopped != nil {
		<-a.stopped
	}
	a.group, err = a.program.Start(ctx, program.Place{
		Formation: w.Formation, FirstRank: s.first, WorldSize: s.size, LocalSize: a.count, GroupRank: s.group, GroupWorldSize: s.groups,
		Restarts: int(w.Restarts), MasterAddr: s.host, MasterPort: s.port, Interface: a.networkInterface(),
	})
	if err != nil {
		return nil, fmt.Errorf("start the program: %w", err)
	}
	a.Log.Info(fmt.Sprintf("World %d: ranks %s of %d", w.Id, ranks(s.first, a.count), s.size), "formation", w.Formation, "store", w.Members[0].Crew.Store)
	a.beats.world(w.Formation)
	v := &vigil{agent: a, world: w, seat: s, stops: make(map[int]time.Time)}
	failed, err := v.keep(ctx)
	a.beats.world(0)
	a.stop(v.grace)
	return failed, err
}

// ranks is "2" or "2-5".
func ranks(first, n int) string {
	if n == 1 {
		return strconv.Itoa(first)
	}
	return fmt.Sprintf("%d-%d", first, first+n-1)
}

// networkInterface is the one that has the worker's address, for gloo and NCCL; "" if none is found.
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
