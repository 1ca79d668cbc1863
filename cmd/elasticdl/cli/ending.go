package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"golang.org/x/sys/unix"
)

// endingEvery is the interval at which a command prints the pods that a stopping job waits for.
const endingEvery = 5 * time.Second

// withReader returns a context that also ends when the output of this process has no reader any
// more, as after `| head`. Then the command stops its job, as after a signal. Without this context
// the kernel would end the process when it writes its next line.
func withReader(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	go func() {
		if losesReader(ctx, pipe, func() bool { return unread(os.Stdout, os.Stderr) }) {
			cancel(errors.New("as nobody reads its output any more (SIGPIPE)"))
		}
	}()
	// SIGPIPE stays caught, as the last lines may have no reader
	return ctx, func() { cancel(context.Canceled) }
}

// losesReader returns true after a SIGPIPE caused by the output of this process, or false when ctx
// ends. Connections and pipes to processes that have ended cause SIGPIPE, too.
func losesReader(ctx context.Context, pipe <-chan os.Signal, unread func() bool) bool {
	for {
		select {
		case <-pipe:
			if unread() {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// unread reports whether one of the files is a pipe or socket without a reader. Terminals do not
// count: a closed one raises SIGHUP, which a user may have chosen to ignore.
func unread(files ...*os.File) bool {
	var all []unix.PollFd
	for _, f := range files {
		if is, err := f.Stat(); err == nil && is.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 {
			all = append(all, unix.PollFd{Fd: int32(f.Fd())})
		}
	}
	for {
		if _, err := unix.Poll(all, 0); err != unix.EINTR {
			break
		}
	}
	return slices.ContainsFunc(all, func(f unix.PollFd) bool { return f.Revents&(unix.POLLERR|unix.POLLHUP) != 0 })
}

// whileEnding reports the stop of a job of which this process is the launcher. When ctx ends it
// prints how long the stop may take and then, every endingEvery, what the job waits for. A second
// request to end kills the job's processes. The caller calls ended when the job has ended.
func whileEnding(ctx context.Context, h *local.Handle, j *job.Job, say func(line string)) (ended func()) {
	over := make(chan struct{})
	var following sync.WaitGroup
	following.Go(func() {
		select {
		case <-ctx.Done():
		case <-over:
			return
		}
		say(stopWords(j, context.Cause(ctx)))
		hurry := command.Hurried(ctx)
		tick := time.NewTicker(endingEvery)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-hurry:
				hurry = nil
				say(fmt.Sprintf("job %s: its processes are killed after the second request to end", j.Name))
				h.Kill()
			case <-tick.C:
				if s, err := local.Status(context.WithoutCancel(ctx), j.Name); err == nil && s.Waiting != "" {
					say(fmt.Sprintf("job %s: %s", j.Name, oneLine(s.Waiting)))
				}
			}
		}
	})
	return func() {
		close(over)
		following.Wait()
	}
}

// stopWords returns the line about the effect of a request to end, and its time limit.
func stopWords(j *job.Job, why error) string {
	what := fmt.Sprintf("its processes have %v to end (--grace_period)", j.TimeToEnd())
	switch {
	case j.Runs():
		what = fmt.Sprintf("its processes have %v to save what they need and to end (--grace_period)", j.TimeToEnd())
	case j.CheckpointDir != "":
		what = fmt.Sprintf("it writes a checkpoint, for which it has %v (--grace_period), and ends", j.TimeToEnd())
	}
	return fmt.Sprintf("job %s is stopped %v: %s; Ctrl-C again ends it at once", j.Name, why, what)
}
