package master

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Memory is where a master writes what the next one has to know.
type Memory interface {
	// Write puts a record in the place of the last one, and returns when the next master will find it, whatever happens to this one.
	// [ErrSuperseded]: another master has begun since, and nothing was written. Any other error: it may have been written or not, and
	// is tried again.
	Write(ctx context.Context, record []byte) error
}

// ErrSuperseded ends a master after which another has begun.
var ErrSuperseded = errors.New("another master of this job has begun")

// MostRecord is how many bytes a record has at most.
const MostRecord = 384 << 10

// Notice tells a master that it has to go before the job is over. In both cases it has a checkpoint made, where the job has any, as far as
// [Config].Grace allows.
type Notice int

const (
	// Leave: another master follows. The pods work on. Run returns [ErrLeft].
	Leave Notice = iota + 1
	// Suspend: the job is to rest until another master begins. The pods are ended. Run returns [ErrSuspended].
	Suspend
)

// What Run returns when it was given a notice, and the job is not over.
var (
	ErrLeft      = errors.New("the master was asked to leave, and the job goes on with the next one")
	ErrSuspended = errors.New("the job is suspended")
)

const (
	recordLimit = 5 * time.Second        // what is to be written first waits so long,
	recordPause = 100 * time.Millisecond // and what could not be written is tried again after this,
	recordMost  = 5 * time.Second        // doubled up to this
	recordEvery = 10 * time.Second       // hints are written so often
)

// scribe writes records, one at a time: of several that wait only the newest.
type scribe struct {
	memory Memory
	fresh  chan struct{}

	mu      sync.Mutex
	next    []byte
	number  int64 // of next
	written int64
	changed chan struct{} // closed when written, fails or err has changed
	fails   time.Time     // since when nothing could be written; zero: it can
	err     error         // nothing is written any more
}

func newScribe(m Memory) *scribe {
	return &scribe{memory: m, fresh: make(chan struct{}, 1), changed: make(chan struct{})}
}

// put has a record written, and returns its number.
func (s *scribe) put(record []byte) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = record
	s.number++
	signal(s.fresh)
	return s.number
}

// wait returns when a record is written, or a later one.
func (s *scribe) wait(ctx context.Context, number int64) error {
	for {
		s.mu.Lock()
		written, err, changed := s.written, s.err, s.changed
		s.mu.Unlock()
		switch {
		case written >= number:
			return nil
		case err != nil:
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// run writes until ctx ends, or another master has begun, which is its error.
func (s *scribe) run(ctx context.Context, complain func(error)) error {
	pausing := recordPause
	for {
		select {
		case <-s.fresh:
		case <-ctx.Done():
			return nil
		}
		s.mu.Lock()
		record, number := s.next, s.number
		s.mu.Unlock()
		err := s.memory.Write(ctx, record)
		s.mu.Lock()
		switch {
		case err == nil:
			s.fails = time.Time{}
		case s.fails.IsZero():
			s.fails = time.Now()
		}
		s.mu.Unlock()
		if err == nil {
			s.wrote(number, nil)
			pausing = recordPause
			continue
		}
		if errors.Is(err, ErrSuperseded) {
			s.wrote(0, err)
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		complain(err)
		pause(ctx, pausing)
		pausing = min(2*pausing, recordMost)
		signal(s.fresh)
	}
}

// failing returns for how long nothing could be written.
func (s *scribe) failing() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails.IsZero() {
		return 0
	}
	return time.Since(s.fails)
}

func (s *scribe) wrote(written int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written, s.err = max(s.written, written), err
	close(s.changed)
	s.changed = make(chan struct{})
}

// remember has the master's state written, and returns when it is, or could not be for some time, which is an error: then what is told next may
// be unknown to the next master, which goes back to a checkpoint then. While the master waits nobody is answered, so it waits once, not each
// time that something is to be written. The mutex is held.
func (m *master) remember() error {
	number, ok := m.record()
	if !ok {
		return nil
	}
	most := max(0, recordLimit-m.scribe.failing())
	ctx, cancel := context.WithTimeoutCause(context.Background(), most, fmt.Errorf("it was tried for %v", recordLimit))
	defer cancel()
	err := m.scribe.wait(ctx, number)
	if err != nil {
		m.Log.Warn("What the next master has to know could not be written", "error", err)
	}
	return err
}

// record hands the master's state to the scribe. The mutex is held.
func (m *master) record() (number int64, ok bool) {
	if m.scribe == nil || m.sealed || !m.planned && !m.over {
		return 0, false
	}
	text, err := m.memoir()
	if err != nil {
		m.Log.Error("What the next master has to know cannot be written", "error", err)
		return 0, false
	}
	return m.scribe.put(text), true
}
