package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// step is one applied update, as a process logs it.
type step struct {
	at time.Time
	// number of the world, which changes whenever the set of processes changes
	world int64
	// number of processes
	size    int
	version int64
	// number of records in the update
	records int64
}

// stepLog follows the applied steps in the log of one process.
type stepLog struct {
	path  string
	parse func(line []byte) (step, bool)
	// offset of the first line that has not been read
	offset int64
	steps  []step
}

// read reads the new lines. A log that does not exist yet has none.
func (l *stepLog) read() error {
	file, err := os.Open(l.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil || info.Size() == l.offset {
		return err
	}
	text := make([]byte, info.Size()-l.offset)
	if _, err := file.ReadAt(text, l.offset); err != nil {
		return err
	}
	end := bytes.LastIndexByte(text, '\n') + 1
	l.offset += int64(end)
	for line := range bytes.Lines(text[:end]) {
		if s, ok := l.parse(line); ok {
			l.steps = append(l.steps, s)
		}
	}
	return nil
}

// last returns the newest step, or the zero step if there is none.
func (l *stepLog) last() step {
	if len(l.steps) == 0 {
		return step{}
	}
	return l.steps[len(l.steps)-1]
}

// outside returns the first step, from the given index on, that is not of that world.
func (l *stepLog) outside(world int64, from int) (step, bool) {
	for _, s := range l.steps[from:] {
		if s.world != world {
			return s, true
		}
	}
	return step{}, false
}

// resumed removes one process of a world, and returns the time until the last of the survivors has
// applied a step in a world without it.
func resumed(ctx context.Context, survivors []*stepLog, limit time.Duration,
	takeAway func() error) (time.Duration, error) {
	if err := readAll(survivors); err != nil {
		return 0, err
	}
	worlds, from := make([]int64, len(survivors)), make([]int, len(survivors))
	for i, l := range survivors {
		worlds[i], from[i] = l.last().world, len(l.steps)
	}
	start := time.Now()
	if err := takeAway(); err != nil {
		return 0, err
	}
	var last time.Time
	err := awaitSteps(ctx, "step of the survivors", limit, survivors, func() bool {
		last = time.Time{}
		for i, l := range survivors {
			s, ok := l.outside(worlds[i], from[i])
			if !ok {
				return false
			}
			if s.at.After(last) {
				last = s.at
			}
		}
		return true
	})
	return last.Sub(start), err
}

func readAll(logs []*stepLog) error {
	for _, l := range logs {
		if err := l.read(); err != nil {
			return err
		}
	}
	return nil
}

// awaitSteps reads the logs until a condition is true.
func awaitSteps(ctx context.Context, what string, limit time.Duration, logs []*stepLog, is func() bool) error {
	return await(ctx, what, limit, func() (bool, error) {
		if err := readAll(logs); err != nil {
			return false, err
		}
		return is(), nil
	})
}

// await polls a condition every few milliseconds until it is true. Measured times come from logs,
// so that polling costs no precision.
func await(ctx context.Context, what string, limit time.Duration, is func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no %s in %v", what, limit))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := is(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// pause waits, and lets the measured processes run undisturbed.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
