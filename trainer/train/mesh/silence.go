package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

// A peer that computes says nothing for as long as that takes, and reads nothing either, so that no
// kernel can tell it from one that is cut off: TCP_USER_TIMEOUT breaks a healthy connection whose
// reader lets its window fill up. So a rank that waits for a link without progress asks on a new
// connection whether the peer is alive and how many bytes it has sent. While links move, nothing is
// sent, and nobody wakes up but a ticker.
//
// Time is counted in looks: a process that was stopped itself has looked at nothing meanwhile.
const (
	// unanswered is the number of unanswered looks in a row after which a peer counts as silent.
	// With the one that finds that the link does not move, that is the limit.
	unanswered = timing.Beats - 1
	// undelivered is in how many looks in a row bytes are missing that the peer has sent.
	undelivered = timing.Beats
)

var (
	// ErrSilent is in the BrokenError of a mesh with a peer that did not answer for longer than the
	// limit on silence.
	ErrSilent = errors.New("it does not answer")
	// ErrUndelivered is in that of a mesh whose peer is there, but not what it sends.
	ErrUndelivered = errors.New("what it sends does not arrive")
)

// counting counts what is read from a connection.
type counting struct {
	net.Conn
	n *atomic.Int64
}

func (c counting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.n.Add(int64(n))
	return n, err
}

// observation holds the observations of a link without progress.
type observation struct {
	// at the last look
	got, sent int64
	// who waits does so to receive
	reads bool
	// there is a question under way
	asked bool
	// looks without an answer, since the last one
	missed int
	// looks with bytes missing
	late int

	mu sync.Mutex
	// since the last look
	answered bool
	// bytes that the peer had sent then
	theirs int64
}

// watchSilence breaks the mesh if a link that is waited for is dead for longer than the limit. ask
// asks a rank.
func (m *Mesh) watchSilence(limit time.Duration, ask func(context.Context, int) (answer, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	every := limit / timing.Beats
	m.wg.Go(func() {
		defer cancel()
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		observations := make([]observation, len(m.links))
		for {
			select {
			case <-m.broken:
				return
			case <-ticker.C:
			}
			for r, l := range m.links {
				if l == nil || !m.stands(l, &observations[r]) {
					continue
				}
				v := &observations[r]
				if err := v.judge(); err != nil {
					m.fail(r, fmt.Errorf("worker %d: %w, for %v", m.world.Peers[r].Worker, err, limit))
					return
				}
				v.asked = true
				m.wg.Go(func() { m.ask(ctx, r, v, unanswered*every, ask) })
			}
		}
	})
}

// stands reports whether somebody waits for a link that has not moved since the last look.
func (m *Mesh) stands(l *link, v *observation) bool {
	m.mu.Lock()
	v.reads = m.taken == l
	m.mu.Unlock()
	l.mu.Lock()
	waits := v.reads || len(l.queue) > 0
	l.mu.Unlock()
	got, sent := l.got.Load(), l.sent.Load()
	moved := got != v.got || sent != v.sent
	v.got, v.sent = got, sent
	if v.reads && !moved {
		// so that the next look sees whether any byte has arrived
		l.socket.wakeAt(1)
	}
	if !waits || moved {
		v.asked, v.missed, v.late = false, 0, 0
		v.mu.Lock()
		defer v.mu.Unlock()
		v.answered = false
		return false
	}
	return true
}

// judge says what is wrong with a link that does not move, by the answers since the last look; nil:
// nothing yet.
func (v *observation) judge() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !v.asked:
	case v.answered:
		v.missed = 0
	default:
		v.missed++
	}
	switch {
	case v.answered && v.reads && v.theirs > v.got:
		v.late++
	case v.answered:
		v.late = 0
	}
	v.answered = false
	switch {
	case v.missed >= unanswered:
		return ErrSilent
	case v.late >= undelivered:
		return ErrUndelivered
	}
	return nil
}

// ask asks a peer once. A peer that answers that it is no longer a member has left.
func (m *Mesh) ask(ctx context.Context, rank int, v *observation, limit time.Duration,
	ask func(context.Context, int) (answer, error)) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	a, err := ask(ctx, rank)
	if final(err) {
		m.fail(rank, err)
		return
	}
	if err != nil {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answered, v.theirs = true, max(v.theirs, a.sent)
}

// sentTo returns how many bytes were sent to a rank. A nil mesh has sent nothing.
func (m *Mesh) sentTo(rank int) int64 {
	if m == nil || m.links[rank] == nil {
		return 0
	}
	return m.links[rank].sent.Load()
}

// over reports whether the mesh is broken or closed. A nil one, which is being connected, is not.
func (m *Mesh) over() bool {
	if m == nil {
		return false
	}
	select {
	case <-m.broken:
		return true
	default:
		return false
	}
}
