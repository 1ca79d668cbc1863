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

	"github.com/elasticdl/elasticdl/trainer/role"
)

// What a child inherits: each announces a descriptor.
const (
	lifelineEnv = "ELASTICDL_LIFELINE" // of the child
	lockEnv     = "ELASTICDL_LOCK"     // of the job
	listenerEnv = "ELASTICDL_LISTENER" // of the master's service
	sessionEnv  = "ELASTICDL_SESSION"  // of a master with the launcher
	cardEnv     = "ELASTICDL_CARD"     // of who the child can prove to be
)

var inheritances = []string{lifelineEnv, lockEnv, listenerEnv, sessionEnv, cardEnv}

// lock is of the job of this process. The death of the process gives it back, and nothing before: who finds it free finds no process of
// the job.
var lock atomic.Pointer[os.File]

// orphanGrace is how long an orphan may take to leave in good order.
const orphanGrace = time.Second

// Lifeline cancels the context that it returns, with [role.ErrOrphaned], when the
// parent of this process dies, and ends the process a second later unless the
// stop function was called before. Without a lifeline from the parent the context
// ends with ctx or stop only.
func Lifeline(ctx context.Context) (context.Context, context.CancelFunc) {
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
		line.Read(make([]byte, 1)) // nobody writes: it returns when the last write end is closed
		cancel(role.ErrOrphaned)
		select {
		case <-stopped:
		case <-time.After(orphanGrace):
			fmt.Fprintln(os.Stderr, "elasticdl:", role.ErrOrphaned)
			os.Exit(1)
		}
	}()
	return ctx, stop
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
		line.Read(make([]byte, 1))
		fmt.Fprintln(os.Stderr, "elasticdl:", role.ErrOrphaned)
		os.Exit(1)
	}()
}

// inherited is the file whose descriptor the parent announced in the environment
// variable env, nil if it announced none. Children of this process do not get it.
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
