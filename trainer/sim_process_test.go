package trainer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// fakeProcess is a process of a user's program: a goroutine that can be killed and stopped. Its
// mutex guards what changes.
type fakeProcess struct {
	*machine
	group      *group
	pid, local int
	position   program.Position
	// of its connections
	host   *host
	forked bool
	began  time.Time
	random *rand.Rand
	// how many groups it has made
	groups int
	// ends with the process
	ctx    context.Context
	cancel context.CancelFunc

	state sync.Mutex
	exit  *program.Exit
	// closed when the process is continued; nil: it is not stopped by a signal
	frozen chan struct{}
	// the agent has asked it to end
	asked bool
	// when it is killed then
	due  time.Time
	kick *time.Timer
	// SIGTERM has arrived
	termed bool
	// it handles SIGTERM
	handles bool

	// what laws look at; the simulation's mutex guards it
	standing
}

// standing is the place of a process in its job: its world, and its rank there.
type standing struct {
	// its world, and its rank and the number of ranks there; 0: it is in none
	generation int64
	rank, size int
	// it has completed the training
	trained bool
	// it waits for a world; nil: it does not
	waits *absence
	// when it was recalled from its world at once; zero: it was not
	recalled time.Time
}

// newProcess makes the process of a local rank, which does not run yet.
func (m *machine) newProcess(g *group, position program.Position, local int, forked bool) *fakeProcess {
	p := &fakeProcess{machine: m, group: g, local: local, position: position, forked: forked, began: time.Now()}
	m.mu.Lock()
	m.started++
	p.pid = m.number*mostStarts + m.started
	m.mu.Unlock()
	p.random = m.source(m.pod.host.name, p.pid, "process")
	p.host = &host{name: m.pod.host.name, incarnation: p.pid}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	// from here on it can be killed
	m.note(func() {
		living := append(m.program.living, p)
		slices.SortFunc(living, func(a, b *fakeProcess) int { return a.pid - b.pid })
		m.program.living = living
		delete(m.absent, local)
		if position.Generation > 0 && !m.program.packaged {
			p.standing = standing{generation: position.Generation, rank: position.FirstRank + local,
				size: position.WorldSize}
		}
	})
	return p
}

// within returns a random duration.
func (p *fakeProcess) within(least, most time.Duration) time.Duration {
	return least + time.Duration(p.random.Int64N(int64(most-least)))
}

func (p *fakeProcess) String() string { return fmt.Sprintf("process %d of %s", p.pid, p.host.name) }

// run runs the script.
func (p *fakeProcess) run() {
	// the runtime ends the goroutine of a process that is dead wherever it is
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.exits(p.program.script(p))
	}()
	<-done
}

// exits ends the process on its own.
func (p *fakeProcess) exits(code int) {
	p.stand()
	p.finish(code, 0)
	runtime.Goexit()
}

// finish notes the end of the process, once. Its later actions have no effect.
func (p *fakeProcess) finish(code int, signal syscall.Signal) bool {
	p.state.Lock()
	if p.exit != nil {
		p.state.Unlock()
		return false
	}
	if signal != 0 {
		code = -int(signal)
	}
	crash := signal == syscall.SIGSEGV || signal == syscall.SIGABRT || signal == syscall.SIGBUS
	e := program.Exit{Local: p.local, Rank: p.position.FirstRank + p.local, Pid: p.pid, Code: code, Signal: int(signal),
		At: time.Now(), Stopped: p.asked, Output: fmt.Sprint("the output of ", p.pid),
		Forked: p.forked && crash && time.Since(p.began) < forkLimit}
	p.exit = &e
	if p.kick != nil {
		p.kick.Stop()
	}
	p.state.Unlock()
	if e.Forked {
		p.mu.Lock()
		p.unforked = true
		p.mu.Unlock()
	}
	p.cancel()
	p.network.kill(p.host)
	p.program.ended(p, e)
	p.group.ended(e)
	return true
}

// forkLimit is the largest age of a forked process that crashes because of its fork.
const forkLimit = 2 * time.Second

// lives reports whether the process runs.
func (p *fakeProcess) lives() bool {
	p.state.Lock()
	defer p.state.Unlock()
	return p.exit == nil
}

func (p *fakeProcess) wrote() bool { return time.Since(p.began) > time.Second }

// kill ends the process as SIGKILL does.
func (p *fakeProcess) kill() bool { return p.finish(0, syscall.SIGKILL) }

// end begins to end the process for its agent.
func (p *fakeProcess) end(grace time.Duration) {
	p.state.Lock()
	if p.exit != nil {
		p.state.Unlock()
		return
	}
	first, due := !p.asked, time.Now().Add(grace)
	p.asked = true
	if grace <= 0 {
		p.state.Unlock()
		p.note(func() { p.program.noteKill(p) })
		p.kill()
		return
	}
	if first || due.After(p.due) {
		p.due = due
		if p.kick != nil {
			p.kick.Stop()
		}
		p.kick = time.AfterFunc(grace, func() { p.kill() })
	}
	p.state.Unlock()
	if first {
		p.note(func() { p.program.noteAsked(p) })
		p.signal(syscall.SIGTERM)
	}
}

// signal sends the process a signal. One that is stopped gets SIGTERM when it is continued.
func (p *fakeProcess) signal(signal syscall.Signal) bool {
	switch p.state.Lock(); {
	case p.exit != nil:
		p.state.Unlock()
		return false
	case signal == syscall.SIGTERM && (p.handles || p.frozen != nil):
		p.termed = true
		p.state.Unlock()
		return true
	}
	p.state.Unlock()
	return p.finish(0, signal)
}

// isTermed reports whether SIGTERM has arrived, which the script handles.
func (p *fakeProcess) isTermed() bool {
	p.state.Lock()
	defer p.state.Unlock()
	return p.termed
}

// handle makes the script handle SIGTERM.
func (p *fakeProcess) handle() {
	p.state.Lock()
	defer p.state.Unlock()
	p.handles = true
}

// freeze stops the process by a signal for a time. False: it is stopped already, or has ended.
func (p *fakeProcess) freeze(d time.Duration) bool {
	p.state.Lock()
	defer p.state.Unlock()
	if p.exit != nil || p.frozen != nil {
		return false
	}
	open := make(chan struct{})
	p.frozen = open
	time.AfterFunc(d, func() {
		p.state.Lock()
		p.frozen = nil
		close(open)
		dies := p.termed && !p.handles && p.exit == nil
		p.state.Unlock()
		if dies {
			p.finish(0, syscall.SIGTERM)
		}
	})
	return true
}

func (p *fakeProcess) isFrozen() bool {
	p.state.Lock()
	defer p.state.Unlock()
	return p.frozen != nil
}

// stand returns when the process is not stopped. If it has ended, it ends the goroutine.
func (p *fakeProcess) stand() {
	for {
		p.network.stand(p.ctx, p.host)
		p.state.Lock()
		frozen := p.frozen
		p.state.Unlock()
		if p.ctx.Err() != nil {
			runtime.Goexit()
		}
		if frozen == nil {
			return
		}
		select {
		case <-frozen:
		case <-p.ctx.Done():
		}
	}
}

// sleep takes a time of the process, and ends the goroutine if the process ends.
func (p *fakeProcess) sleep(d time.Duration) {
	sleep(p.ctx, d)
	p.stand()
}
