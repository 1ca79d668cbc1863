package agent

import (
	"errors"
	"fmt"
	"net"
	"slices"

	"golang.org/x/sys/unix"
)

// peerOf returns the pid of the process at the other end of a connection, 0 if this system does not
// tell it, and that of the leader of its session, 0 if the process has ended.
func peerOf(conn net.Conn) (pid, leader int) {
	raw, err := conn.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0, 0
	}
	var who *unix.Ucred
	if e := raw.Control(func(fd uintptr) {
		who, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil || err != nil || who.Pid <= 0 {
		return 0, 0
	}
	pid = int(who.Pid)
	// a security module forbids it
	if leader, err = unix.Getsid(pid); err != nil && !errors.Is(err, unix.ESRCH) {
		leader = pid
	}
	return pid, max(leader, 0)
}

// greet connects a process with the one that says hello: itself, or one that its command has
// started, as scripts behind a wrapper are. It tells others to end, which would wait for a world
// without end, and returns nil.
func (a *agent) greet(m *message) *process {
	s := m.from
	p, why := a.speaker(s)
	if p == nil {
		if s.pid > 0 && errors.Is(unix.Kill(s.pid, 0), unix.ESRCH) {
			return nil // it has ended
		}
		a.Log.Warn("Refusing a process of the program", "pid", s.pid, "why", why)
		s.say(map[string]any{"op": "end", "code": 1, "why": why})
		return nil
	}
	before := p.script
	p.script, p.waits = s, nil
	if before != nil && before != s {
		// a script that its command had started before
		a.letGo(before)
	}
	a.Log.Debug("A process has connected", "local_rank", p.local, "pid", s.pid, "keeps_state",
		m.Survives, "backend", m.Backend, "torch", m.Torch)
	a.beats.usesPackage()
	a.tellStop(p)
	if m.Survives {
		a.Keeps = true
		a.beats.keep()
	}
	return p
}

// speaker returns the process in whose session a connection was made; nil: why there is none.
func (a *agent) speaker(s *script) (p *process, why string) {
	i := slices.IndexFunc(a.procs, func(p *process) bool { return p != nil && p.pid == s.leader })
	if i < 0 {
		return nil, "it is in the session of none of this worker's processes: a command must start " +
			"the script in its own session, without setsid"
	}
	p = a.procs[i]
	switch {
	case !p.lives():
		return nil, fmt.Sprintf("the command of local rank %d has ended: it must wait for the script", p.local)
	case p.script != nil && p.script.pid != s.pid && (p.done || !p.script.ended):
		return nil, fmt.Sprintf("another process of local rank %d, with the pid %d, has called "+
			"elasticdl.init() before: a command may start one that does", p.local, p.script.pid)
	}
	return p, ""
}

// letGo gives the leases of a connection to other processes, once its process has ended and all is
// handled that it had said. Before the connection ends, a message may come that is older than the
// end of the process.
func (a *agent) letGo(s *script) {
	switch lives := slices.ContainsFunc(a.procs, func(p *process) bool { return p.lives() && p.script == s }); {
	case lives: // it is about to end
	case s.ended:
		a.records.gone(s)
	default:
		s.drain()
	}
}
