package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// sameRequest is the time after a signal within which another one is the same request: timeout(1)
// sends SIGTERM to its child, and then to its process group, and notebooks send SIGINT and SIGTERM.
const sameRequest = 500 * time.Millisecond

// interruption delivers signals to a command.
type interruption struct {
	signals chan os.Signal
	// closed by a second request
	hurry chan struct{}
	// has an element once a command handles the second request: then only a third one ends the
	// process
	takes chan struct{}
}

// interruptionKey is the key of a context's [interruption].
type interruptionKey struct{}

// UntilSignal returns a context that ends at the first SIGINT (Ctrl-C), SIGTERM, SIGHUP (a closed
// terminal) or SIGQUIT (Ctrl-\), with the text of [signalled] as its cause. A second signal, not
// sooner than sameRequest, ends the process at once, or is handled by the command: see [Hurried].
// SIGHUP stays ignored under nohup(1).
func UntilSignal() context.Context {
	i := &interruption{signals: make(chan os.Signal, 8), hurry: make(chan struct{}), takes: make(chan struct{}, 1)}
	ctx, cancel := context.WithCancelCause(context.WithValue(context.Background(), interruptionKey{}, i))
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT}
	if !signal.Ignored(syscall.SIGHUP) {
		signals = append(signals, syscall.SIGHUP)
	}
	signal.Notify(i.signals, signals...)
	go i.listen(cancel)
	return ctx
}

func (i *interruption) listen(cancel context.CancelCauseFunc) {
	cancel(signalled(<-i.signals))
	began := time.Now()
	again := func() os.Signal {
		for s := range i.signals {
			if time.Since(began) >= sameRequest {
				return s
			}
		}
		return nil // cannot happen: nobody closes it
	}
	s := again()
	close(i.hurry)
	select {
	case i.takes <- struct{}{}:
		// the channel has room: no command handles the second request
		die(s)
	default:
		die(again())
	}
}

// die ends this process by a signal, as if it had not been caught.
func die(s os.Signal) {
	end, ok := s.(syscall.Signal)
	if !ok || end == syscall.SIGQUIT { // SIGQUIT would print all stacks
		end = syscall.SIGTERM
	}
	signal.Reset(end)
	syscall.Kill(os.Getpid(), end)
}

// Hurried returns a channel that is closed by a second request to end, which the caller then
// handles. A third one ends the process. nil: the context is not one of [UntilSignal].
func Hurried(ctx context.Context) <-chan struct{} {
	i, ok := ctx.Value(interruptionKey{}).(*interruption)
	if !ok {
		return nil
	}
	select {
	case i.takes <- struct{}{}: // full from now on
	default:
	}
	return i.hurry
}

// signalled returns the reason for an end by a signal, as the end of a sentence.
func signalled(s os.Signal) error {
	switch s {
	case os.Interrupt:
		return errors.New("by Ctrl-C (SIGINT)")
	case syscall.SIGQUIT:
		return errors.New(`by Ctrl-\ (SIGQUIT)`)
	case syscall.SIGHUP:
		return errors.New("as its terminal was closed (SIGHUP)")
	}
	return errors.New("by SIGTERM")
}
