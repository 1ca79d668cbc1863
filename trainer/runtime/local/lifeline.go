package local

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// Environment variables that announce the descriptors which a child inherits.
const (
	lifelineEnv = "ELASTICDL_LIFELINE" // read end of the child's lifeline
	lockEnv     = "ELASTICDL_LOCK"     // lock of the job
	listenerEnv = "ELASTICDL_LISTENER" // socket on which the master listens
	sessionEnv  = "ELASTICDL_SESSION"  // a master's session with the launcher
	// pipe with the child's certificate and key
	cardEnv = "ELASTICDL_CARD"
)

var inheritances = []string{
	lifelineEnv, lockEnv, listenerEnv, sessionEnv, cardEnv, stdinEnv, stdoutEnv, stderrEnv, terminalEnv, terminalsEnv,
}

// lock is the lock of this process's job. It is released only when the process ends, so a free lock
// means that no process of the job is left.
var lock atomic.Pointer[os.File]

// orphanGrace is the time that a process whose parent has died may take to end on its own.
const orphanGrace = time.Second

// Lifeline cancels the context that it returns, with [role.ErrOrphaned], when the parent of this
// process dies, and ends the process a second later unless the stop function was called before. If
// the parent had announced a planned stop, the cause is [role.ErrStopped], and the process has the
// time that lasts returns, a second at least; nil: a second. Without a lifeline from the parent the
// context ends with ctx or stop only.
func Lifeline(ctx context.Context, lasts func() time.Duration) (context.Context, context.CancelFunc) {
	lock.Store(inherited(lockEnv))
	ctx, cancel := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	stop := sync.OnceFunc(func() {
		cancel(context.Canceled)
		close(stopped)
	})
	line := inherited(lifelineEnv)
	if line == nil {
		return ctx, stop
	}
	go func() {
		why, grace := role.ErrOrphaned, orphanGrace
		if awaitParent(line) {
			why = role.ErrStopped
			if lasts != nil {
				grace = max(grace, lasts())
			}
		}
		cancel(why)
		select {
		case <-stopped:
		case <-time.After(grace):
			fmt.Fprintln(os.Stderr, "elasticdl:", role.ErrOrphaned)
			os.Exit(1)
		}
	}()
	return ctx, stop
}

// awaitParent returns when the last write end of a lifeline is closed. It reports whether the
// parent had announced a planned stop before.
func awaitParent(line *os.File) (planned bool) {
	for said := make([]byte, 1); ; planned = true {
		if n, _ := line.Read(said); n == 0 {
			return planned
		}
	}
}

// Card returns the certificate and key that the parent gave this process, nil if it gave none.
func Card() ([]byte, error) {
	pipe := inherited(cardEnv)
	if pipe == nil {
		return nil, nil
	}
	defer pipe.Close()
	card, err := io.ReadAll(pipe)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of this process: %w", err)
	}
	return card, nil
}

// endWithParent ends this process as soon as its parent dies.
func endWithParent() {
	line := inherited(lifelineEnv)
	if line == nil {
		return
	}
	go func() {
		awaitParent(line)
		fmt.Fprintln(os.Stderr, "elasticdl:", role.ErrOrphaned)
		os.Exit(1)
	}()
}

// inherited returns the file whose descriptor the parent announced in the environment
// variable env, nil if it announced none. Children of this process do not inherit it.
func inherited(env string) *os.File {
	text, ok := os.LookupEnv(env)
	if !ok {
		return nil
	}
	os.Unsetenv(env)
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 0 {
		return nil
	}
	syscall.CloseOnExec(fd)
	return os.NewFile(uintptr(fd), env)
}
