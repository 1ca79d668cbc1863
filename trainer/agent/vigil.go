package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/worker"
)

const (
	// look is how often that is looked at which nobody tells: whether processes were stopped, or have written a checkpoint.
	look = 100 * time.Millisecond
	// unwritten is how long nothing is written to a checkpoint that is complete.
	unwritten = 250 * time.Millisecond
	// linger is how long the other processes of a worker have to say why they failed, when one failed by itself: the cause may not be the
	// first that is seen to end.
	linger = 200 * time.Millisecond
)

// partLimit is how long processes that keep their state have to leave a world: the round that they are at, if nobody is lost, or what a script
// does before its first. The workers of others go on without this one meanwhile.
const partLimit = time.Minute

// Exit codes of processes that keep their state, as PROTOCOL.md has them.
const (
	exitAgentGone = 80
	exitLeft      = 82
	exitRestart   = 83
)

// joinLimit is how long a process that is ready to join waits for the others that start on its worker.
const joinLimit = time.Second

// vigil watches over the processes in one world.
type vigil struct {
	*agent
	world  worker.Place
	seat   seat
	grace  time.Duration // of those that are left at its end
	shut   func()        // has its store answer its processes no more
	since  time.Time     // a process has come back
	here   int           // processes that take part
	ended  bool          // a process has ended that the agent had killed
	ready  time.Time     // a process has come that wants to join
	began  bool          // a process has come back from this world by itself
	told   bool          // that all have ended with 0
	failed []program.Exit
	leaves bool              // the world is left for the sake of workers that join or leave it
	stops  map[int]time.Time // since when processes are stopped, by local rank
	frozen map[int]bool      // those that were killed for it
	waits  *time.Time        // the newest checkpoint when a worker came that waits for another one; nil: none waits
}

// start starts the processes that are not there, and tells the others of the world.
func (v *vigil) start(ctx context.Context, here int) error {
	v.here = here
	var locals []int
	for local, p := range v.procs {
		if !p.lives() && !p.retired() {
			locals = append(locals, local)
		}
	}
	if len(locals) > 0 {
		s := v.seat
		place := program.Place{
			Formation: v.world.Formation, FirstRank: s.first, WorldSize: s.size, LocalSize: here, GroupRank: s.group, GroupWorldSize: s.groups,
			Restarts: int(v.world.Restarts), MasterAddr: s.host, MasterPort: s.port, Interface: v.networkInterface(),
		}
		if v.Keeps { // they join when they are ready, and are told then where
			place.LocalSize = v.count
			place.FirstRank, place.WorldSize = 0, max(s.size, v.count)
		}
		if err := v.launch(ctx, place, locals); err != nil {
			return err
		}
		for _, local := range locals {
			v.procs[local].member = !v.Keeps
		}
	}
	for _, p := range v.procs {
		if p.member && p.keeps() && p.waits != nil {
			v.enter(p)
		}
	}
	return nil
}

// enter announces the world to a process that waits.
func (v *vigil) enter(p *process) {
	rank := v.seat.first
	for _, before := range v.procs[:p.local] {
		if before.member {
			rank++
		}
	}
	var addrs []string
	for _, m := range v.world.Members {
		if host, _, err := net.SplitHostPort(m.Address); err == nil {
			addrs = append(addrs, host)
		}
	}
	env := map[string]string{
		"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(v.seat.size), "MASTER_ADDR": v.seat.host, "MASTER_PORT": strconv.Itoa(v.seat.port),
		"GROUP_RANK": strconv.Itoa(v.seat.group), "GROUP_WORLD_SIZE": strconv.Itoa(v.seat.groups), "TORCHELASTIC_RESTART_COUNT": strconv.Itoa(int(v.world.Restarts)),
	}
	p.waits, p.entered = nil, v.world.Formation
	p.script.say(map[string]any{
		"op": "world", "formation": v.world.Formation, "rank": rank, "size": v.seat.size, "local_rank": p.local, "source": v.seat.source,
		"addrs": addrs, "env": env, "settled": v.world.Settled, "floor": v.world.Floor,
	})
}

// keep returns when the world is to change.
func (v *vigil) keep(ctx context.Context) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	leave := v.Leave
	for {
		v.absorb(v.note)
		recalled, joins := v.meeting.Recalled(v.world.Formation)
		v.leaves = recalled && v.yields(joins)
		switch {
		case v.isLost():
			v.Log.Info("The world ends: a member is gone", "formation", v.world.Formation)
			return nil
		case len(v.failed) > 0:
			if !slices.ContainsFunc(v.failed, func(e program.Exit) bool { return e.Signal != 0 }) {
				v.await(linger, nil, v.fails, v.gone)
			}
			return nil
		case v.began && v.settled(), v.leaving() && v.gone(), v.joined():
			return nil
		case v.ended && !v.leaving():
			v.ended = false
			if !v.Keeps {
				return nil
			}
			if err := v.start(ctx, v.here); err != nil {
				return err
			}
		case !v.told && v.finished():
			v.told = true
			v.Log.Info("All processes have ended with 0", "formation", v.world.Formation)
			v.beats.finish(v.world.Formation)
		}
		if v.leaves {
			v.Log.Info("The world changes", "formation", v.world.Formation, "joins", joins)
			return nil
		}
		select {
		case <-v.mail.ready:
		case <-v.world.Lost():
		case <-v.meeting.Wake():
		case <-leave:
			leave = nil
			if v.depart() {
				return nil
			}
		case now := <-ticker.C:
			v.revive(now)
			if v.records.made(v.world.Formation) {
				v.beats.rounds(v.world.Formation)
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// isLost reports whether a member of the world is gone.
func (v *vigil) isLost() bool {
	select {
	case <-v.world.Lost():
		return true
	default:
		return false
	}
}

// note takes what has happened to a process.
func (v *vigil) note(e event) {
	switch {
	case e.of == nil || v.procs[e.of.local] != e.of:
	case e.exit != nil:
		v.fails(e)
		v.ended = v.ended || v.stopped(e) // it was to leave the world before, and did not
	case e.said.Op == "arrive" && !e.of.member: // see joined
	case e.said.Op == "arrive" && e.of.entered == v.world.Formation:
		v.began = true
	case e.said.Op == "arrive":
		v.enter(e.of)
	}
}

// fails notes the end of a process that has failed by itself.
func (v *vigil) fails(e event) {
	if e.exit != nil && e.exit.Failed() && v.procs[e.of.local] == e.of && !v.stopped(e) && (e.of.script == nil || e.exit.Code != exitLeft) {
		v.failed = append(v.failed, *e.exit)
	}
}

// stopped reports whether a process has ended that was told to.
func (v *vigil) stopped(e event) bool {
	return e.exit != nil && e.exit.Failed() && e.exit.Stopped && !v.frozen[e.of.local]
}

// joined reports whether processes wait to join, and all that were started do, or have had some time.
func (v *vigil) joined() bool {
	if !slices.ContainsFunc(v.procs, func(p *process) bool { return p.keeps() && !p.member && p.waits != nil }) {
		return false
	}
	if v.ready.IsZero() { // it may have come before this world
		v.ready = time.Now()
	}
	starts := slices.ContainsFunc(v.procs, func(p *process) bool { return p.lives() && !p.member && p.waits == nil && !p.retired() })
	return !starts || time.Since(v.ready) > joinLimit
}

// settled reports whether all processes that keep their state have come back.
func (v *vigil) settled() bool {
	if v.since.IsZero() {
		v.since = time.Now()
	}
	return time.Since(v.since) > partLimit || !slices.ContainsFunc(v.procs, func(p *process) bool { return p.member && p.keeps() && p.waits == nil })
}

// gone reports whether all processes have ended.
func (v *vigil) gone() bool { return !slices.ContainsFunc(v.procs, (*process).lives) }

// depart hands the notice on that the worker is to leave. True: nothing holds it any more.
func (v *vigil) depart() bool {
	v.Log.Info("Asked to leave: the program has this time to end", "grace", v.Grace)
	keeps := false
	for _, p := range v.procs {
		if p.keeps() {
			keeps = true
			p.script.say(map[string]any{"op": "leave", "deadline": float64(time.Now().Add(v.Grace).UnixMilli()) / 1000})
		}
	}
	if keeps {
		v.beats.leave() // the master has all come back after a round
		return false
	}
	v.end(v.Grace)
	v.beats.leave()
	return true
}

// part brings the processes that keep their state back from a world, and ends the others. None takes part in it any more when it returns.
func (v *vigil) part(ctx context.Context) error {
	v.kill(v.grace, func(p *process) bool { return p.member && !p.keeps() && !p.retired() })
	parts := func(p *process) bool { return p.lives() && p.member && p.waits == nil && !p.retired() }
	clear := func() bool { return ctx.Err() != nil || !slices.ContainsFunc(v.procs, parts) }
	if len(v.failed) == 0 && !v.isLost() { // after a round, unless somebody is lost meanwhile
		v.recall(false)
		v.await(partLimit, v.world.Lost(), v.fails, func() bool { return clear() || len(v.failed) > 0 })
	}
	if !clear() {
		v.recall(true)
	}
	if !v.await(max(partLimit, v.grace+killLimit), ctx.Done(), v.fails, clear) {
		v.Log.Warn("Processes do not leave their world, and are killed", "after", partLimit)
		v.kill(0, parts)
		if !v.await(killLimit, ctx.Done(), v.fails, clear) {
			return errors.New("processes of the program do not end after SIGKILL")
		}
	}
	return context.Cause(ctx)
}

// recall makes the processes that keep their state leave the world: at once, or after a round, all together.
// Until then they have the world's store: a process may be making its group when somebody joins.
func (v *vigil) recall(now bool) {
	if now {
		v.shut()
	}
	for _, p := range v.procs {
		if p.member && p.keeps() && p.waits == nil {
			p.script.say(map[string]any{"op": "recall", "formation": v.world.Formation, "now": now})
		}
	}
}

// failures returns the processes that have ended by themselves, as the master is told.
func (v *vigil) failures() []*wire.Failure {
	var all []*wire.Failure
	for _, e := range v.failed {
		f := failure(e)
		f.Excused = v.leaves && !v.isLost() || v.procs[e.Local].script != nil && e.Code >= exitAgentGone && e.Code <= exitRestart
		all = append(all, f)
	}
	if slices.ContainsFunc(v.failed, func(e program.Exit) bool { return e.Signal == 0 }) {
		io.WriteString(v.Output, program.Report(v.Job.Title(), v.Host, v.failed))
	}
	return all
}

// failure returns an exit as the master is told.
func failure(e program.Exit) *wire.Failure {
	f := &wire.Failure{Rank: int32(e.Rank), Local: int32(e.Local), Pid: int32(e.Pid), Code: int32(max(0, e.Code)), Signal: int32(e.Signal), UnixMs: e.At.UnixMilli()}
	if e.Failure != nil {
		f.Message, f.Traceback = e.Failure.Message, e.Failure.Traceback
		if at := e.Failure.Time; !at.IsZero() { // a whole second: within it the end tells who failed first
			f.UnixMs = min(f.UnixMs, at.UnixMilli()+999)
		}
	} else {
		f.Message = e.Words
	}
	return f
}

// yields reports whether the world is left now that its members were recalled.
func (v *vigil) yields(joins bool) bool {
	keeps := slices.ContainsFunc(v.procs, (*process).keeps)
	switch {
	case !joins:
		return true
	case keeps && !slices.ContainsFunc(v.procs, func(p *process) bool { return p.lives() && !p.keeps() }):
		return true // it costs them little
	case v.finished():
		return false
	}
	switch v.Job.Program.RestartOnJoin {
	case job.RestartNever:
		return false
	case job.RestartAtCheckpoint:
		newest, still := newestOf(v.checkpoint())
		if v.waits == nil {
			v.waits = &newest
			v.Log.Info("A worker waits to join: the program starts again when it has written its next checkpoint", "checkpoint_file", v.Job.Program.Checkpoint)
		}
		return still && newest.After(*v.waits)
	}
	return true
}

// checkpoint returns the pattern of the script's checkpoints, as its processes see it.
func (v *vigil) checkpoint() string {
	pattern := v.Job.Program.Checkpoint
	if filepath.IsAbs(pattern) {
		return pattern
	}
	return filepath.Join(v.workdir, pattern)
}

// newestOf returns when the newest file of a pattern was written. Still: nothing has been written to it for a moment.
func newestOf(pattern string) (newest time.Time, still bool) {
	paths, _ := filepath.Glob(pattern) // the pattern is right
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest, time.Since(newest) >= unwritten
}

// revive kills processes that have been stopped for longer than a worker may be silent: nobody else would ever know.
func (v *vigil) revive(now time.Time) {
	for local, p := range v.procs {
		if !p.lives() || !stopped(p.pid) {
			delete(v.stops, local)
			continue
		}
		since, ok := v.stops[local]
		if !ok {
			v.stops[local] = now
		} else if now.Sub(since) >= v.Job.HeartbeatTimeout.Duration {
			v.Log.Warn("A process was stopped for too long, and is killed", "local_rank", local, "pid", p.pid, "for", now.Sub(since).Round(time.Millisecond))
			v.frozen[local] = true
			p.group.Kill(local, 0)
			delete(v.stops, local)
		}
	}
}

// stopped reports whether a process is stopped by a signal.
func stopped(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%s/stat", strconv.Itoa(pid)))
	i := bytes.LastIndexByte(text, ')')
	return err == nil && i >= 0 && i+2 < len(text) && text[i+2] == 'T'
}
