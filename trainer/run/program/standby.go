package program

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// standbys are processes that have imported what the script imports, and become the processes of
// the next start. They are for modules that start threads: a process with threads cannot be forked
// safely, but can run the script itself. There are as many as the last start had processes; none if
// these were more than [mostStandbys], and none while a fork server may import all.
//
// They import at the lowest priority, if the system lets them have the former one back. The kernel
// ends them first if memory is short, unless it ends the whole control group.
type standbys struct {
	// module that only they may import; "": there is none, and no standby
	of string
	// in the order of their starts
	servers []*forkServer
	// processes of the last start, and their environment
	want int
	env  environ
	// memory of the last, in bytes; 0: not known
	size int64
	// of those that failed, in a row
	deaths int
	// why there will be no more; nil: there may be
	off error
	// they are being started
	preparing bool
	// the log says that there is no room
	noRoom bool
}

const (
	mostStandbys = 4
	// standbyPause is the time that a script has for its start, before the next standby imports.
	standbyPause = 5 * time.Second
	// standbyLook is the time between two looks at the memory while a standby waits.
	standbyLook = 2 * time.Second
	// standbyWait is the time for which a start waits for standbys that import.
	standbyWait = 5 * time.Second
	// standbyRetry is the time between two looks whether there is room for a standby.
	standbyRetry = 20 * time.Second
	// standbyReserve is the memory that a standby leaves to others, in bytes. It ends if less than
	// half of that is left.
	standbyReserve = 512 << 20
)

// prepare starts standbys after a pause, one after the other, if they are of use and there is room.
// The caller need not hold the mutex.
func (s *forkServers) prepare(after time.Duration) {
	s.work.Go(func() {
		s.mu.Lock()
		already := s.standbys.preparing
		s.standbys.preparing = true
		s.mu.Unlock()
		for !already {
			select {
			case <-s.closed:
				return
			case <-time.After(min(after, 2*s.p.options.learnAfter)):
			}
			f, room := s.beginStandby()
			switch {
			case f != nil:
				s.work.Go(func() { s.watchStandby(f) })
				<-f.ready
				after = 0
			case room:
				return
			default:
				after = standbyRetry
			}
		}
	})
}

// beginStandby starts a standby. It returns nil if there are enough or none is of use, which ends
// the preparation, or if there is no room.
func (s *forkServers) beginStandby() (f *forkServer, room bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &s.standbys
	if b.of == "" || b.off != nil || len(b.servers) >= b.want || b.want > mostStandbys || s.isClosed() {
		b.preparing = false
		return nil, true
	}
	size := b.size
	if size == 0 {
		size = s.p.largest()
	}
	if s.p.options.headroom() < standbyReserve+size {
		if !b.noRoom {
			s.p.options.Log.Info("There is no room for a standby process: restarts import again", "module", b.of,
				"mb", (standbyReserve+size)>>20)
		}
		b.noRoom = true
		return nil, false
	}
	b.noRoom = false
	f = (&forkServer{env: b.env, learned: s.studied, standby: true}).start(s.p)
	b.servers = append(b.servers, f)
	return f, true
}

// watchStandby returns when a standby has ended, or has become a process of the program. It ends it
// if memory gets short, and then looks for room for another.
func (s *forkServers) watchStandby(f *forkServer) {
	look := time.NewTicker(standbyLook)
	defer look.Stop()
	for ready := f.ready; ; {
		select {
		case <-ready:
			if ready = nil; f.err == nil {
				s.noteStandby(f)
			}
			continue
		case <-look.C:
			s.mu.Lock()
			waits := slices.Contains(s.standbys.servers, f)
			s.mu.Unlock()
			if !waits {
				return
			}
			if s.p.options.headroom() >= standbyReserve/2 {
				continue
			}
			s.p.options.Log.Info("A standby process is ended: memory is short", "pid", f.pid)
			s.measure(f)
			f.end()
			<-f.dead
			if s.lostStandby(f, true) {
				s.prepare(standbyRetry)
			}
		case <-f.dead:
			if s.lostStandby(f, false) {
				s.prepare(standbyPause)
			}
		}
		return
	}
}

// largest returns the resident memory of the largest process of the program, in bytes: a standby
// needs less.
func (p *Program) largest() (size int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for g := range p.groups {
		for _, it := range g.processes {
			it.mu.Lock()
			pid := it.pid
			it.mu.Unlock()
			size = max(size, residentOfPid(pid))
		}
	}
	return size
}

func residentOfPid(pid int) int64 {
	text, _ := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "statm")) // it may have ended
	return residentOf(text, int64(os.Getpagesize()))
}

// measure notes how large a standby is.
func (s *forkServers) measure(f *forkServer) (size int64) {
	size = residentOfPid(f.pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.standbys.size = max(s.standbys.size, size)
	return size
}

// noteStandby logs that a standby is ready, and notes how large it is.
func (s *forkServers) noteStandby(f *forkServer) {
	size := s.measure(f)
	s.p.options.Log.Info("A standby process has imported what the program imports, for the next start",
		"pid", f.pid, "mb", size>>20)
}

// lostStandby notes that a standby has ended, as planned or not. It returns whether to try another.
func (s *forkServers) lostStandby(f *forkServer, planned bool) (again bool) {
	<-f.ready
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &s.standbys
	i := slices.Index(b.servers, f)
	if i < 0 || s.isClosed() {
		return false
	}
	b.servers = slices.Delete(b.servers, i, i+1)
	switch {
	case f.bad != "":
		s.forgo(f)
		return true
	case planned:
		return true
	}
	if b.deaths++; b.deaths >= mostDeaths {
		why := cmp.Or(f.err, errors.New("it was killed"))
		b.off = fmt.Errorf("%d standby processes in a row failed, the last: %w", b.deaths, why)
		s.p.options.Log.Info("There is no standby process", "reason", b.off)
	}
	return b.off == nil
}

// become returns how many processes of a group standbys have become: all, unless one fails.
func (s *forkServers) become(ctx context.Context, g *Group, env environ) int {
	s.mu.Lock()
	b := &s.standbys
	b.want, b.env = len(g.processes), env
	if more := len(b.servers) - b.want; more > 0 {
		for _, f := range b.servers[b.want:] {
			s.work.Go(f.close)
		}
		b.servers = slices.Delete(b.servers, b.want, len(b.servers))
	}
	b.servers = slices.DeleteFunc(b.servers, func(f *forkServer) bool {
		other := f.env.atStart().difference(env.atStart()) != ""
		if other {
			s.work.Go(f.close)
		}
		return other
	})
	servers, of := slices.Clone(b.servers), b.of
	s.mu.Unlock()
	if of == "" {
		return 0
	}
	defer s.prepare(standbyPause)
	if len(servers) < len(g.processes) {
		return 0
	}
	limited, cancel := context.WithTimeout(ctx, standbyWait)
	defer cancel()
	for _, f := range servers[:len(g.processes)] {
		f.hurry()
		if f.wait(limited) != nil {
			return 0 // its watch handles its end
		}
	}
	for i, it := range g.processes {
		f := servers[i]
		err := f.fork(s.p, []*process{it}, "")
		s.mu.Lock()
		b.servers = slices.DeleteFunc(b.servers, func(other *forkServer) bool { return other == f })
		if err == nil {
			b.deaths = 0
		}
		s.mu.Unlock()
		if err != nil {
			s.p.options.Log.Info("A standby process was not used", "reason", err)
			s.work.Go(f.close)
			return i
		}
	}
	return len(g.processes)
}

// hurry gives a standby that still imports the priority of this process, as far as the system
// allows it.
func (f *forkServer) hurry() {
	nice, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil {
		return
	}
	threads, _ := os.ReadDir(filepath.Join("/proc", strconv.Itoa(f.pid), "task"))
	for _, thread := range threads {
		if id, err := strconv.Atoi(thread.Name()); err == nil {
			// the system call counts from 20 down
			syscall.Setpriority(syscall.PRIO_PROCESS, id, 20-nice)
		}
	}
}
