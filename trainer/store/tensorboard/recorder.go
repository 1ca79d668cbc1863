package tensorboard

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Config tells a recorder where it writes, and for which master.
type Config struct {
	// Open opens the place of the run. It is called again after an error.
	Open func() (Place, error)
	// Name names the place to users.
	Name    string
	Session Session
	// Host is the name of this machine or pod, for the names of files.
	Host string
}

// Recorder writes the scalars of a job. Its methods return at once.
type Recorder struct {
	Config
	backlog backlog
	// the place is open: sampler is not nil
	place   Place
	sampler *Sampler
	names   []string // of files of this package
	file    file
	// time before which nothing is written, and the pause after the last failure; 0: there is none
	next  time.Time
	pause time.Duration

	fresh, closing, done chan struct{}

	mu      sync.Mutex
	inbox   []message
	problem string
	// beginning of the present access to the storage; zero: there is none
	asked time.Time
}

// message is a status or a fact, and when it came.
type message struct {
	at     time.Time
	status *wire.JobStatus // nil: a fact
	fact   Fact
}

const (
	// inboxLimit is the number of facts that wait for a place that does not answer.
	inboxLimit = 256
	// retryFirst is the time between two attempts after a failure, each one being twice as long as
	// the one before, up to retryLast.
	retryFirst = 5 * time.Second
	retryLast  = time.Minute
	// silent is the time after which storage that does not answer is a problem.
	silent = 10 * time.Second
)

// Start returns a recorder, which runs until End is called.
func Start(c Config) *Recorder {
	r := &Recorder{Config: c, backlog: backlog{limit: backlogLimit}, fresh: make(chan struct{}, 1),
		closing: make(chan struct{}), done: make(chan struct{})}
	go r.run()
	return r
}

// Status takes a status of the job, in which nothing changes any more.
func (r *Recorder) Status(s *wire.JobStatus) { r.put(message{status: s}) }

// Fact takes a fact of the job.
func (r *Recorder) Fact(f Fact) { r.put(message{fact: f}) }

// put appends to the inbox. Of several statuses in succession only the newest one counts.
func (r *Recorder) put(m message) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m.at = time.Now()
	switch last := len(r.inbox) - 1; {
	case m.status != nil && last >= 0 && r.inbox[last].status != nil:
		r.inbox[last] = m
	default:
		r.inbox = append(r.inbox, m)
	}
	if len(r.inbox) > inboxLimit {
		r.inbox = slices.Delete(r.inbox, 0, 1)
	}
	select {
	case r.fresh <- struct{}{}:
	default:
	}
}

// Problem returns why nothing can be written at present; "" if something can.
func (r *Recorder) Problem() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.asked.IsZero() && time.Since(r.asked) >= silent {
		return r.trouble("the storage does not answer")
	}
	return r.problem
}

// trouble returns a problem in the words of users.
func (r *Recorder) trouble(why string) string {
	return fmt.Sprintf("the job continues without TensorBoard, for which nothing can be written to %s: %s",
		r.Name, why)
}

// access calls do, which may wait for the storage.
func (r *Recorder) access(do func() error) error {
	begin := func(at time.Time) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.asked = at
	}
	begin(time.Now())
	defer begin(time.Time{})
	return do()
}

// End has the rest written, for which it waits until ctx ends. It is called once, after all other
// calls.
func (r *Recorder) End(ctx context.Context) {
	close(r.closing)
	select {
	case <-r.done:
	case <-ctx.Done():
	}
}

func (r *Recorder) run() {
	defer close(r.done)
	for {
		timer := time.NewTimer(time.Until(r.next))
		if r.sampler != nil && len(r.backlog.waiting) == 0 {
			timer.Stop()
		}
		last := false
		select {
		case <-r.fresh:
		case <-timer.C:
		case <-r.closing:
			last = true
		}
		timer.Stop()
		r.step(last)
		if last {
			if r.file != nil {
				r.file.close()
			}
			return
		}
	}
}

// step opens the place, takes what is in the inbox, and writes it when it is time.
func (r *Recorder) step(last bool) {
	now := time.Now()
	if r.sampler == nil {
		if now.Before(r.next) && !last {
			return
		}
		if err := r.access(r.open); err != nil {
			r.fails(err)
			return
		}
		r.succeeds(r.place.every(true))
	}
	for _, m := range r.take() {
		if m.status != nil {
			r.backlog.add(r.sampler.Status(m.status, m.at))
		} else {
			r.backlog.add(r.sampler.Fact(m.fact, m.at))
		}
	}
	urgent := last || r.pause == 0 && r.backlog.starts()
	if len(r.backlog.waiting) == 0 || now.Before(r.next) && !urgent {
		return
	}
	if err := r.access(func() error { return r.write(now) }); err != nil {
		r.fails(err)
		return
	}
	r.succeeds(r.place.every(false))
}

// open opens the place, and reads what it has of earlier masters.
func (r *Recorder) open() (err error) {
	if r.place, err = r.Open(); err != nil {
		return err
	}
	names, err := r.place.List("")
	if err != nil {
		return err
	}
	r.names = Own(names)
	past := Past{Step: -1, Rollbacks: -1}
	if r.Session != First {
		if past, err = r.place.past(r.names); err != nil {
			return err
		}
	}
	r.sampler = NewSampler(r.Session, past)
	return nil
}

// take returns what is in the inbox.
func (r *Recorder) take() []message {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.inbox
	r.inbox = nil
	return all
}

// write appends the backlog to the present file, or to a new one.
func (r *Recorder) write(now time.Time) (err error) {
	if r.file != nil && (r.file.damaged() || r.file.size() >= r.place.limit()) {
		r.file.close()
		r.file = nil
	}
	if r.file == nil {
		name := Name(r.names, now, r.Host)
		if r.file, err = r.place.create(name); err != nil {
			r.file = nil
			return err
		}
		r.names = append(r.names, name)
	}
	var b []byte
	if r.file.size() == 0 {
		b = Encode(b, Event{WallTime: seconds(now), FileVersion: FileVersion})
	}
	if err := r.file.add(append(b, r.backlog.bytes()...)); err != nil {
		return err
	}
	r.backlog.clear()
	return nil
}

// fails notes a failure, and when the next attempt is.
func (r *Recorder) fails(err error) {
	why := outage.Trouble(err)
	if r.backlog.lost > 0 {
		why += "; the oldest points are lost"
	}
	r.report(r.trouble(why))
	r.pause = min(max(2*r.pause, retryFirst), retryLast)
	r.next = time.Now().Add(r.pause)
}

// succeeds notes that the storage answers, and that the next write comes after a time.
func (r *Recorder) succeeds(next time.Duration) {
	r.report("")
	r.pause, r.next = 0, time.Now().Add(next)
}

// report sets the problem; "": there is none.
func (r *Recorder) report(problem string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.problem = problem
}
