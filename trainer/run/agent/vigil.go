package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/run/program"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

const (
	// look is how often the agent polls what no event reports: whether processes were stopped, or
	// have written a checkpoint.
	look = 100 * time.Millisecond
	// unwritten is how long a checkpoint must be unchanged to count as complete.
	unwritten = 250 * time.Millisecond
	// linger is how long the agent waits for other failures of a worker's processes after the
	// first: the first that is seen may not be the cause.
	linger = 200 * time.Millisecond
)

// partLimit is how long processes that keep their state may take to leave a world that has lost a
// member until the agent says that it waits for them. It ends them after --task_timeout: they may
// be evaluating the model, and they have it.
const partLimit = time.Minute

// Exit codes of processes that keep their state, as PROTOCOL.md defines them.
const (
	exitAgentGone = 80
	exitDoubt     = 81
	exitRestart   = 83
)

// joinLimit is how long a process that is ready to join waits for the others that start on its
// worker.
const joinLimit = time.Second

// vigil supervises the processes in one world.
type vigil struct {
	*agent
	world membership.World
	seat  seat
	// grace of the processes that are running at the world's end
	grace time.Duration
	// time at which processes that do what follows the training are ended, as the worker is to
	// leave; zero: it is not
	until time.Time
	// ends the service of the store to the processes
	shut func()
	// time at which the first process came back
	since time.Time
	// number of processes that take part
	here int
	// a process has ended that the agent had killed
	ended bool
	// time at which a process became ready to join
	ready time.Time
	// a process has left this world by itself
	began bool
	// it was reported that all have ended with 0
	told bool
	// processes that were starting when the training ended were ended
	shed   bool
	failed []program.Exit
	// processes that the system had killed for memory when those of this world were started
	ooms int
	// time since which a process is stopped, by local rank
	stops map[int]time.Time
	// processes that were killed for being stopped, by local rank
	frozen map[int]bool
	// time of the newest checkpoint when a newcomer began to wait for the next one; nil: none waits
	waits *time.Time
}

// start starts the processes that are not running, and tells the others of the world.
func (v *vigil) start(ctx context.Context) error {
	if err := v.blame.remove(); err != nil {
		v.Log.Warn("Removing the error file of a failure that the program has survived", "error", err)
	}
	var locals []int
	for local, p := range v.procs {
		if !p.lives() && !p.retired() && !v.leaving() {
			locals = append(locals, local)
		}
	}
	if len(locals) > 0 {
		s := v.seat
		position := program.Position{
			Formation: v.world.Formation, FirstRank: s.first, WorldSize: s.size, LocalSize: v.here,
			GroupRank: s.group, GroupWorldSize: s.groups,
			Restarts: int(v.world.Restarts), MaxRestarts: int(v.world.MaxRestarts), MasterAddr: s.host,
			MasterPort: s.port, Interface: v.networkInterface(),
			Threads: v.threads(s.size),
		}
		// they join, and learn the world, when they are ready
		if v.Keeps {
			position.LocalSize = v.count
			position.FirstRank, position.WorldSize = 0, max(s.size, v.count)
		}
		if err := v.launch(ctx, position, locals); err != nil {
			return err
		}
		for _, local := range locals {
			v.procs[local].member, v.procs[local].starts = !v.Keeps, startsIn(v.world.World)
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
	rank := v.seat.first + slices.Index(v.crew(v.world.Formation), p)
	if p.starts == nil {
		p.starts = startsIn(v.world.World)
	}
	var addrs []string
	for _, m := range v.world.Members {
		if host, _, err := net.SplitHostPort(m.Address); err == nil {
			addrs = append(addrs, host)
		}
	}
	env := map[string]string{
		"RANK": strconv.Itoa(rank), "WORLD_SIZE": strconv.Itoa(v.seat.size), "MASTER_ADDR": v.seat.host,
		"MASTER_PORT": strconv.Itoa(v.seat.port),
		"GROUP_RANK":  strconv.Itoa(v.seat.group), "GROUP_WORLD_SIZE": strconv.Itoa(v.seat.groups),
	}
	if rank == 0 && v.seat.source < 0 {
		v.beats.begin(v.origin(p.waits))
	}
	maps.Copy(env, p.starts.environment())
	p.waits, p.entered, p.joined = nil, v.world.Formation, cmp.Or(p.joined, v.world.Formation)
	p.rank = rank
	v.show()
	p.script.say(map[string]any{
		"op": "world", "formation": v.world.Formation, "rank": rank, "size": v.seat.size,
		"local_rank": p.local, "source": v.seat.source,
		"addrs": addrs, "env": env, "settled": v.world.Settled, "floor": v.world.Floor,
	})
	v.tellStop(p)
}

// origin returns what this world begins with if its first rank arrives in this way: the others take
// its state.
func (v *vigil) origin(arrival *word) *wire.Origin {
	o := &wire.Origin{Formation: v.world.Formation}
	if arrival != nil && arrival.Round > 0 {
		o.Version, o.Ledger = arrival.Round, v.records.ledger(arrival.Ledger, arrival.Settled)
	}
	return o
}

// keep returns when the world is to change.
func (v *vigil) keep(ctx context.Context) error {
	ticker := time.NewTicker(look)
	defer ticker.Stop()
	leave := v.Leave
	// this worker has come to this world because the others, or those that will come, are too few
	if v.here == 0 && v.leaving() {
		v.beats.readyToLeave() // if it was asked since it came
		leave = nil
	}
	for {
		lost := v.isLost()
		recalled, joins := v.meeting.Recalled(v.world.Formation)
		// after these: what the processes had said before is known
		v.absorb(v.handle)
		leaves := recalled && v.yields(joins)
		switch {
		case lost:
			v.Log.Info("The world ends: it has lost a member", "formation", v.world.Formation)
			return nil
		case len(v.failed) > 0:
			if !slices.ContainsFunc(v.failed, func(e program.Exit) bool { return e.Signal != 0 }) {
				v.await(linger, nil, v.fails, v.gone)
			}
			return nil
		case v.returns(), v.joined():
			return nil
		case !v.shed && v.trained() && slices.ContainsFunc(v.procs, (*process).late):
			v.shed = true
			v.Log.Info("The training has ended without processes that were starting: they are ended",
				"formation", v.world.Formation)
			v.kill(v.grace, (*process).late)
		case v.ended && !v.leaving() && !v.trained():
			v.ended = false
			if !v.Keeps {
				return nil
			}
			if err := v.start(ctx); err != nil {
				return err
			}
		case !v.told && v.finished() && v.records.told():
			v.told = true
			v.Log.Info("All processes have ended with 0", "formation", v.world.Formation)
			v.beats.finish(v.world.Formation)
		}
		if leaves {
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
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// isLost reports whether the world has lost a member.
func (v *vigil) isLost() bool {
	select {
	case <-v.world.Lost():
		return true
	default:
		return false
	}
}

// note handles an event of a process.
func (v *vigil) handle(e event) {
	switch {
	case e.of == nil || v.procs[e.of.local] != e.of:
	case e.exit != nil:
		if e.of.script == nil && e.of.member && !e.exit.Failed() {
			v.scripts.ended(v.world.Formation, e.exit.Rank)
		}
		v.fails(e)
		v.ended = v.ended || v.stopped(e) // it had not left the previous world
	case e.said.Op == "arrive" && !e.of.member: // see joined
	case e.said.Op == "arrive" && e.of.entered == v.world.Formation:
		v.began = true
	case e.said.Op == "arrive":
		v.enter(e.of)
	}
}

// fails notes the end of a process that has failed by itself.
func (v *vigil) fails(e event) {
	if e.exit != nil && e.exit.Failed() && v.procs[e.of.local] == e.of && !v.stopped(e) {
		v.failed = append(v.failed, *e.exit)
	}
}

// stopped reports whether an event is the end of a process that the agent has told to end.
func (v *vigil) stopped(e event) bool {
	return e.exit != nil && e.exit.Failed() && e.exit.Stopped && !v.frozen[e.of.local]
}

// returns reports whether this worker is to meet the others again by itself: its processes have
// come back from the world, or have ended, as it is to leave, before they had finished.
func (v *vigil) returns() bool {
	return v.began && v.settled() || v.here > 0 && v.leaving() && v.gone() && !v.finished()
}

// joined reports whether processes wait to join, and all others that were started are ready, too,
// or joinLimit has passed.
func (v *vigil) joined() bool {
	if v.trained() || !slices.ContainsFunc(v.procs, func(p *process) bool {
		return p.keeps() && !p.member && p.waits != nil
	}) {
		return false
	}
	if v.ready.IsZero() { // it may have been ready before this world
		v.ready = time.Now()
	}
	starts := slices.ContainsFunc(v.procs, func(p *process) bool {
		return p.lives() && !p.member && p.waits == nil && !p.retired()
	})
	return !starts || time.Since(v.ready) > joinLimit
}

// settled reports whether all processes that keep their state have come back.
func (v *vigil) settled() bool {
	if v.since.IsZero() {
		v.since = time.Now()
	}
	return time.Since(v.since) > partLimit || !slices.ContainsFunc(v.procs, func(p *process) bool {
		return p.member && p.keeps() && p.waits == nil
	})
}

// gone reports whether all processes have ended.
func (v *vigil) gone() bool { return !slices.ContainsFunc(v.procs, (*process).lives) }

// depart tells the program that the worker is to leave. It returns true if the worker can leave at
// once.
func (v *vigil) depart() bool {
	grace := time.Until(v.endBy())
	v.Log.Info("Asked to leave: the program has the grace period to end", "grace", grace.Round(time.Second))
	stays := func(p *process) bool { return p.keeps() || p.lives() && p.retired() }
	for _, p := range v.procs {
		if stays(p) {
			p.script.say(map[string]any{"op": "leave", "deadline": float64(v.endBy().UnixMilli()) / 1000})
		}
	}
	if v.finished() { // the master releases it
		v.beats.readyToLeave()
		return false
	}
	// the master recalls all members after a round, unless the training has ended
	if slices.ContainsFunc(v.procs, stays) {
		v.until = v.endBy().Add(-v.Job.Program.Grace.Duration)
		v.beats.readyToLeave()
		return false
	}
	v.kill(grace, (*process).lives)
	v.await(grace+killLimit, nil, func(event) {}, v.gone)
	v.beats.readyToLeave()
	return true
}

// part brings the processes that keep their state back from a world, and ends the others. When it
// returns false, no process takes part in that world. It returns true if the training ended with
// the round after which they were to leave: the world stays until they have ended.
func (v *vigil) part(ctx context.Context) (stays bool, err error) {
	parts := func(p *process) bool { return p.lives() && p.member && p.waits == nil && !p.retired() }
	clear := func() bool { return ctx.Err() != nil || !slices.ContainsFunc(v.procs, parts) }
	stateless := func(p *process) bool { return p.lives() && p.member && !p.keeps() && !p.retired() }
	ends := slices.ContainsFunc(v.procs, stateless)
	v.kill(v.grace, stateless)
	// after a round, unless a member is lost meanwhile, or breaks off
	if len(v.failed) == 0 && !ends && !v.isLost() {
		v.recall(false)
		v.wait(math.MaxInt64, v.world.Lost(), func() bool { return clear() || len(v.failed) > 0 })
		if v.trained() && !v.returns() && len(v.failed) == 0 && !v.isLost() && ctx.Err() == nil {
			return true, nil
		}
	}
	breaks := !clear()
	if breaks {
		v.recall(true)
	}
	limit := max(partLimit, v.Job.TaskTimeout.Duration, v.grace+killLimit)
	hangs := !v.wait(partLimit, ctx.Done(), clear)
	if hangs {
		v.Log.Warn("Waiting for processes that have not left their world: it has lost a member",
			"formation", v.world.Formation, "since", partLimit, "killed_after", limit)
		hangs = !v.wait(limit-partLimit, ctx.Done(), clear)
	}
	if hangs {
		v.Log.Warn("Killing processes that did not leave their world in time", "after", limit)
		v.kill(0, parts)
		if !v.await(killLimit, ctx.Done(), v.fails, clear) {
			return false, errors.New("processes of the program did not end after SIGKILL")
		}
	}
	v.complete(ctx)
	v.brokeOff = breaks && v.Keeps || v.breaksOff()
	// those that have completed the training start again, too
	for _, p := range v.procs {
		if p != nil {
			p.done = false
		}
	}
	return false, context.Cause(ctx)
}

// complete waits for the processes that do what follows the training, such as saving the model, as
// long as a task may take.
func (v *vigil) complete(ctx context.Context) {
	tails := func(p *process) bool { return p.lives() && p.retired() }
	if !slices.ContainsFunc(v.procs, tails) {
		return
	}
	limit := max(partLimit, v.Job.TaskTimeout.Duration)
	v.Log.Info("The world ends before all its processes have: those that are past the training "+
		"complete what they do, and all start again", "formation", v.world.Formation, "killed_after", limit)
	ended := func() bool { return !slices.ContainsFunc(v.procs, tails) }
	if !v.wait(limit, ctx.Done(), ended) {
		v.kill(v.grace, tails)
		v.await(v.grace+killLimit, ctx.Done(), v.fails, ended)
	}
}

// breaksOff reports whether processes of other workers would wait for one of this worker's, after
// all have left the world: one has failed, was ended, or was never started.
func (v *vigil) breaksOff() bool {
	if !v.Keeps && len(v.failed) == 0 && !v.leaving() && v.Job.Program.RestartOnJoin == job.RestartAtCheckpoint {
		// the others may still be writing their checkpoints
		return false
	}
	left := 0
	for _, p := range v.procs {
		if p != nil && p.member && (p.waits != nil || p.exit != nil && !p.exit.Failed() &&
			!p.exit.Stopped || p.retired()) {
			left++
		}
	}
	return left < v.here
}

// wait handles events, and kills processes that are stopped for too long, until ready. It returns
// false when stop is closed, or after the limit.
func (v *vigil) wait(limit time.Duration, stop <-chan struct{}, ready func() bool) bool {
	for began := time.Now(); ; {
		if v.await(look, stop, v.fails, ready) {
			return true
		}
		select {
		case <-stop:
			return false
		default:
		}
		now := time.Now()
		if now.Sub(began) >= limit {
			return false
		}
		v.revive(now)
	}
}

// recall makes the processes that keep their state leave the world: at once, or all together after
// a round. Until then they can use the world's store: a process may be building its process group
// when a worker joins.
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

// failures returns the reports of the processes that have failed by themselves. Those that have
// ended because their world had are none of them: the failure that had ended it would be excused
// with them.
func (v *vigil) failures() []*wire.Failure {
	var all []*wire.Failure
	var failed []program.Exit
	memory := oomKills() > v.ooms
	// it may follow from the end of others, which had heard it before
	excused, _ := v.meeting.Recalled(v.world.Formation)
	for _, e := range v.failed {
		p := v.procs[e.Local]
		uses := p.script != nil // it uses the package
		if uses && (e.Code == exitRestart || e.Code == exitDoubt && v.isLost()) {
			continue
		}
		failed = append(failed, e)
		f := failure(e)
		f.Memory = memory && e.Signal == int(syscall.SIGKILL) && !v.frozen[e.Local]
		f.Excused = excused || uses && asksRestart(e.Code)
		if f.Doubt = uses && e.Code == exitDoubt; f.Doubt {
			f.Message = cmp.Or(p.doubt, f.Message)
		}
		all = append(all, f)
	}
	if err := v.blame.write(failed); err != nil {
		v.Log.Warn("Writing the error file of the program's failure", program.ErrorFileVariable,
			v.ErrorFile, "error", err)
	}
	if slices.ContainsFunc(v.failed, func(e program.Exit) bool { return e.Signal == 0 }) {
		io.WriteString(v.Messages, program.Report(v.Job.Title(), v.Host, v.failed))
	}
	return all
}

// asksRestart reports whether a process that uses the package has ended by itself with a code that
// asks for a restart; other codes are the script's own.
func asksRestart(code int) bool { return code == exitAgentGone || code == exitDoubt }

// failure returns the report of a failed process.
func failure(e program.Exit) *wire.Failure {
	f := &wire.Failure{Rank: int32(e.Rank), Local: int32(e.Local), Pid: int32(e.Pid),
		Code: int32(max(0, e.Code)), Signal: int32(e.Signal), Forked: e.Forked, UnixMs: e.At.UnixMilli()}
	if e.Failure != nil {
		f.Message, f.Traceback = e.Failure.Message, e.Failure.Traceback
		// its resolution is a second: within one, the time of the end tells which failed first
		if at := e.Failure.Time; !at.IsZero() {
			f.UnixMs = min(f.UnixMs, at.UnixMilli()+999)
		}
	} else {
		f.Message = e.Words
	}
	return f
}

// forked returns the local ranks of the processes that may have crashed because they were forked.
func forked(exits []program.Exit) (locals []int) {
	for _, e := range exits {
		if e.Forked {
			locals = append(locals, e.Local)
		}
	}
	return locals
}

// yields reports whether the world is to be left now, after its members were recalled.
func (v *vigil) yields(joins bool) bool {
	keeps := slices.ContainsFunc(v.procs, (*process).keeps)
	switch {
	case v.trained():
		// its processes do what follows the training, and the others of the world, too
		return false
	case !joins:
		return true
	case keeps && !slices.ContainsFunc(v.procs, func(p *process) bool { return p.lives() && !p.keeps() }):
		// processes that keep their state lose little
		return true
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
			v.Log.Info("A worker waits to join: the program restarts after its next checkpoint",
				"checkpoint_file", v.Job.Program.Checkpoint)
		}
		return still && newest.After(*v.waits)
	}
	return true
}

// trained reports whether a process of this world has completed the training, and the world stays
// until all have ended.
func (v *vigil) trained() bool {
	return !v.unknown && slices.ContainsFunc(v.procs, func(p *process) bool { return p.member && p.retired() })
}

// newestOf returns the modification time of the newest file that matches a pattern. still reports
// that the file has not been written to for a moment.
func newestOf(pattern string) (newest time.Time, still bool) {
	paths, _ := filepath.Glob(pattern) // the pattern is valid
	for _, path := range paths {
		if info, err := os.Stat(path); err == nil && info.ModTime().After(newest) {
			newest = info.ModTime()
		}
	}
	return newest, time.Since(newest) >= unwritten
}

// revive kills processes that have been stopped for longer than a worker may be silent: no one else
// would notice them. It ends those that are past the training when a worker that is to leave can
// wait no longer.
func (v *vigil) revive(now time.Time) {
	if !v.until.IsZero() && now.After(v.until) {
		v.until = time.Time{}
		v.kill(v.Job.Program.Grace.Duration, (*process).retired)
	}
	for local, p := range v.procs {
		if !p.lives() || !stopped(p.pid) {
			delete(v.stops, local)
			continue
		}
		since, ok := v.stops[local]
		if !ok {
			v.stops[local] = now
		} else if now.Sub(since) >= v.Job.HeartbeatTimeout.Duration {
			v.Log.Warn("Killing a process that was stopped for too long", "local_rank", local, "pid",
				p.pid, "for", now.Sub(since).Round(time.Millisecond))
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
