package page

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Source has the jobs of this machine, or of a namespace of a cluster. Its calls may come from
// several goroutines.
type Source interface {
	// Jobs returns the status of all jobs, by name.
	Jobs(ctx context.Context) ([]*wire.JobStatus, error)
	// View returns a job, and a note for people if it is not the present state; "": it is.
	View(ctx context.Context, job string) (v role.View, note string, err error)
	// Log writes the last lines of the log of a pod.
	Log(ctx context.Context, job, pod string, lines int64, w io.Writer) error
	// Stacks takes the stacks of a job's processes, and returns them as text.
	Stacks(ctx context.Context, job string) (string, error)
}

// fresh is the time for which a view of a job serves all browsers.
const fresh = 500 * time.Millisecond

// shared asks a source at most once in a while, however many ask it.
type shared struct {
	Source
	now func() time.Time

	mu    sync.Mutex
	views map[string]*kept
}

// kept is a view of one job.
type kept struct {
	// has an element while nobody asks for the view
	turn chan struct{}
	at   time.Time
	view role.View
	note string
}

// View implements [Source].
func (s *shared) View(ctx context.Context, job string) (role.View, string, error) {
	k := s.of(job)
	select {
	case <-k.turn:
	case <-ctx.Done():
		return role.View{}, "", context.Cause(ctx)
	}
	defer func() { k.turn <- struct{}{} }()
	if now := s.now(); !k.at.IsZero() && now.Sub(k.at) < fresh && now.Sub(k.at) >= 0 {
		return k.view, k.note, nil
	}
	view, note, err := s.Source.View(ctx, job)
	if err != nil {
		s.forget(job, k)
		return view, note, err
	}
	k.at, k.view, k.note = s.now(), view, note
	return view, note, nil
}

// of returns the cached state of a job.
func (s *shared) of(job string) *kept {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.views == nil {
		s.views = make(map[string]*kept)
	}
	k := s.views[job]
	if k == nil {
		k = &kept{turn: make(chan struct{}, 1)}
		k.turn <- struct{}{}
		s.views[job] = k
	}
	return k
}

// forget drops the cached state of a job that cannot be read: there may be no such job.
func (s *shared) forget(job string, k *kept) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.views[job] == k {
		delete(s.views, job)
	}
}
