package master

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
)

// Memory stores the record that a master writes for the next one.
type Memory interface {
	// Write replaces the record, and returns when the next master will find it, whatever happens to
	// this one. After [ErrSuperseded] another master has begun, and nothing was written. After any
	// other error the record may have been written or not, and Write is called again.
	Write(ctx context.Context, record []byte) error
}

// ErrSuperseded is returned by a master when another master of the job has begun.
var ErrSuperseded = errors.New("another master of this job has begun")

// MostRecord is the largest size of a record in bytes.
const MostRecord = 384 << 10

// Notice asks a master to go before the job has ended. A checkpoint is made first, if the job has
// checkpoints, as far as [Config].Grace allows.
type Notice = lifecycle.Notice

// Notices. After Leave, Run returns [ErrLeft], and after Suspend [ErrSuspended]. A job
// in a queue may also end with a [Yielded].
const (
	Leave   = lifecycle.Leave
	Suspend = lifecycle.Suspend
)

// Errors that Run returns after a notice, if the job has not ended.
var (
	ErrLeft      = lifecycle.ErrLeft
	ErrSuspended = lifecycle.ErrSuspended
)

// Yielded is the end of a master whose job has given back the quota of its queue. The next master
// is to begin after Pause.
type Yielded struct {
	Pause time.Duration
	// what the job lacked
	Reason string
}

// Unwrap returns [lifecycle.ErrYielded].
func (y *Yielded) Unwrap() error { return lifecycle.ErrYielded }

func (y *Yielded) Error() string { return fmt.Sprintf("%v: %s", lifecycle.ErrYielded, y.Reason) }

const (
	// limit of the wait for a record that must be written first
	recordLimit = 5 * time.Second
	recordPause = 100 * time.Millisecond // pause before a failed write is repeated
	recordMost  = 5 * time.Second        // the pause doubles up to this
	recordEvery = 10 * time.Second       // interval at which hints are written
	// between an entry of the journal and its record, which may have more of them
	entryPause = 2 * time.Second
)

// recorder writes records, one at a time: of several that wait, only the newest.
type recorder struct {
	memory Memory
	fresh  chan struct{}

	mu   sync.Mutex
	next []byte
	// number of next
	number  int64
	written int64
	// closed when written, fails or err has changed
	changed chan struct{}
	// time since which writing fails; zero: it does not
	fails time.Time
	// why nothing is written any more; nil: records are written
	err error
	// no record is taken any more
	sealed bool
}

func newRecorder(m Memory) *recorder {
	return &recorder{memory: m, fresh: make(chan struct{}, 1), changed: make(chan struct{})}
}

// seal makes the last record the last one: no other is taken. It does nothing without a recorder.
func (s *recorder) seal() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sealed = true
}

// takes reports whether there is a recorder that takes records.
func (s *recorder) takes() bool {
	if s == nil {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.sealed
}

// put queues a record to be written, and returns its number.
func (s *recorder) put(record []byte) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next = record
	s.number++
	signal(s.fresh)
	return s.number
}

// wait returns when the record of that number, or a later one, is written.
func (s *recorder) wait(ctx context.Context, number int64) error {
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

// run writes records until ctx ends. It returns an error if another master has begun.
func (s *recorder) run(ctx context.Context, complain func(error)) error {
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

// failing returns for how long writing has failed.
func (s *recorder) failing() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fails.IsZero() {
		return 0
	}
	return time.Since(s.fails)
}

func (s *recorder) wrote(written int64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written, s.err = max(s.written, written), err
	close(s.changed)
	s.changed = make(chan struct{})
}

// remember queues the master's state to be written, and returns when it is written. It returns an
// error after recordLimit: later reports may then be unknown to the next master, which would return
// to a checkpoint. While the master waits no caller is answered. So the clock leaves that time out,
// and the master waits once, not for each record. The caller holds the mutex.
func (m *master) remember() error {
	number, ok := m.record()
	if !ok {
		return nil
	}
	most := max(0, recordLimit-m.recorder.failing())
	ctx, cancel := context.WithTimeoutCause(context.Background(), most, fmt.Errorf("timed out after %v", recordLimit))
	defer cancel()
	began := time.Now()
	err := m.recorder.wait(ctx, number)
	m.clock.excuse(began, time.Now())
	if err != nil {
		m.Log.Warn("Writing the state for the next master failed", "error", err)
	}
	return err
}

// recorded queues the master's state and waits for it as remember does. It returns false if another
// master has begun: then this one ends. The caller holds the mutex.
func (m *master) recorded() bool {
	err := m.remember()
	if errors.Is(err, ErrSuperseded) {
		m.quit(err)
		return false
	}
	return true
}

// record is a master's state for the next one. The first part is written before it is reported:
// numbers that were given out, the model generation, the world of a ring, the end. The rest is
// hints, which may be outdated. The holders of the model report what is in it.
func (m *master) record() (number int64, ok bool) {
	if !m.recorder.takes() || !m.stage.Planned() && !m.stage.Over() {
		return 0, false
	}
	text, err := m.memoir()
	if err != nil {
		m.Log.Error("Encoding the state for the next master failed", "error", err)
		return 0, false
	}
	return m.recorder.put(text), true
}
