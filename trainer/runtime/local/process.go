package local

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
)

// command describes a process to start.
type command struct {
	binary string
	args   []string
	// file that the process appends to; created if it does not exist
	log string
	// in addition to this process's environment
	env map[string]string
	// start it in a session of its own, without a lifeline
	detached bool
	inherit  []inheritance
}

// inheritance is a file that a child inherits, and the environment variable that announces its
// descriptor.
type inheritance struct {
	env  string
	file *os.File
}

// process is a child, the leader of its process group.
type process struct {
	cmd      *exec.Cmd
	lifeline *os.File // the only write end; nil if detached
}

func (c command) start() (*process, error) {
	log, err := os.OpenFile(c.log, os.O_WRONLY|os.O_CREATE|os.O_APPEND, private)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(c.binary, c.args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { // what this process inherited
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(inheritances, name)
	})
	for name, value := range c.env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !c.detached, Setsid: c.detached}
	p := &process{cmd: cmd}
	if !c.detached {
		// Both ends are closed in every child but for the one that is handed over here.
		var end *os.File
		if end, p.lifeline, err = os.Pipe(); err != nil {
			return nil, err
		}
		defer end.Close()
		c.inherit = append(slices.Clone(c.inherit), inheritance{lifelineEnv, end})
	}
	for _, i := range c.inherit {
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%d", i.env, 3+len(cmd.ExtraFiles)))
		cmd.ExtraFiles = append(cmd.ExtraFiles, i.file)
	}
	if err := cmd.Start(); err != nil {
		p.closeLifeline()
		return nil, err
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// wait returns when the process has ended, after killing the rest of its process group.
func (p *process) wait() *os.ProcessState {
	err := p.cmd.Wait()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		// it is waited for once, and copies nothing
		panic(fmt.Sprintf("local: wait for %d: %v", p.pid(), err))
	}
	p.signal(syscall.SIGKILL)
	p.closeLifeline()
	return p.cmd.ProcessState
}

// signal sends a signal to the whole process group. It does nothing if the group has ended.
func (p *process) signal(s syscall.Signal) {
	syscall.Kill(-p.pid(), s)
}

// announce tells the process, by its lifeline, that a planned stop has begun: if its parent dies
// from now on, it still has time to end.
func (p *process) announce() {
	if p.lifeline != nil {
		p.lifeline.Write([]byte{1}) // it fails if the process has ended
	}
}

func (p *process) closeLifeline() {
	if p.lifeline != nil {
		p.lifeline.Close()
	}
}
