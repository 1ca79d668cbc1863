package agent

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/elasticdl/elasticdl/trainer/elastic/supervise"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// share is this worker's part of a world: the ranks of its processes.
type share struct {
	// number of this worker in the world, and number of workers
	group, groups int
	// rank of its first process, and the number of processes of all workers
	first, size int
	// rank of the process that has the newest state; -1: none has
	source int
	host   string
	// port of the store
	port int
}

// shareOf returns the share of a worker in a world. Ranks follow the order of members.
func shareOf(w *wire.World, index int) (share, error) {
	s := share{group: -1, groups: len(w.Members), source: -1}
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

// arrive joins the rendezvous with the state of the processes, in the background. The answer is put
// into the mailbox.
func (a *agent) arrive(ctx context.Context, act supervise.Arrive) error {
	a.shut()
	store, err := a.stores.next()
	if err != nil {
		return err
	}
	arrival := a.arrival(act, store)
	a.group.Go(func() {
		w, err := a.meeting.Arrive(ctx, arrival)
		a.mail.put(assigned{w, err})
	})
	return nil
}

// shut ends the processes' access to the store of the world.
func (a *agent) shut() {
	if a.world.shut != nil {
		a.world.shut()
	}
}

// open gives the processes access to the store of the world.
func (a *agent) open(ctx context.Context) {
	w := &a.world
	a.records.enter(w.Floor)
	serving, shut := context.WithCancel(ctx)
	w.shut = shut
	a.scripts.serve(serving, w.Generation, net.JoinHostPort(w.host, strconv.Itoa(w.port)))
}

// start starts processes of this worker.
func (a *agent) start(ctx context.Context, act supervise.Start) ([]supervise.Event, error) {
	position := program.Position{
		Generation: act.Generation, FirstRank: act.First, WorldSize: act.Size, LocalSize: act.LocalSize,
		Locals:         act.Locals,
		GroupWorldSize: 1, MasterAddr: a.Host, MasterPort: 1, Threads: a.threads(a.count, a.count),
	}
	if w := a.world; act.Generation > 0 {
		position.GroupRank, position.GroupWorldSize = w.group, w.groups
		position.Restarts, position.MaxRestarts = int(w.Restarts), int(w.MaxRestarts)
		position.MasterAddr, position.MasterPort, position.Threads = w.host, w.port, a.threads(a.count, w.size)
	}
	a.stages.does(wire.Stage_STAGE_IMPORTING)
	defer a.stages.does(wire.Stage_STAGE_UNKNOWN)
	group, err := a.program.Start(ctx, position)
	if err != nil {
		return nil, fmt.Errorf("start the program: %w", err)
	}
	pids := group.Pids()
	started := make(map[int]*process)
	for i, local := range act.Locals {
		p := &process{local: local, pid: pids[i], group: group}
		a.procs[local], started[local] = p, p
	}
	// the goroutine ends with the group, which the program closes
	go func() {
		for e := range group.Exits() {
			a.mail.put(exited{started[e.Local], e})
		}
	}()
	return []supervise.Event{supervise.Started{Pids: pids}}, nil
}
