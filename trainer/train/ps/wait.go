package ps

import (
	"sync"
	"time"
)

// waitNotice is the time for which calls wait for a server before OnWait is called.
const waitNotice = 5 * time.Second

// Wait describes calls that wait for a server, for OnWait.
type Wait struct {
	Server  int
	Address string
	// they continue
	Over bool
	// of the last try; nil: it was not answered yet
	Err error
}

// waits is the calls to one server that have lasted for longer than waitNotice.
type waits struct {
	mu    sync.Mutex
	calls int
}

// wait is one call to a server.
type wait struct {
	peer    *peer
	timer   *time.Timer
	err     error
	counted bool // in peer.waits
	over    bool
}

// await watches a call until end.
func (p *peer) await() *wait {
	w := &wait{peer: p}
	if p.onWait != nil {
		w.timer = time.AfterFunc(waitNotice, w.notice)
	}
	return w
}

// notice tells of the first call that has lasted too long.
func (w *wait) notice() {
	p := w.peer
	p.waits.mu.Lock()
	defer p.waits.mu.Unlock()
	if w.over {
		return
	}
	w.counted = true
	if p.waits.calls++; p.waits.calls == 1 {
		p.onWait(Wait{Server: p.index, Address: p.addr, Err: w.err})
	}
}

// failed notes why a try came to nothing.
func (w *wait) failed(err error) {
	w.peer.waits.mu.Lock()
	defer w.peer.waits.mu.Unlock()
	w.err = err
}

// end ends the watch. The last call that had lasted too long tells that they continue.
func (w *wait) end() {
	if w.timer == nil || w.timer.Stop() {
		return
	}
	p := w.peer
	p.waits.mu.Lock()
	defer p.waits.mu.Unlock()
	if w.over = true; !w.counted {
		return
	}
	if p.waits.calls--; p.waits.calls == 0 {
		p.onWait(Wait{Server: p.index, Address: p.addr, Over: true})
	}
}
