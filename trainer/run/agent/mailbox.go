package agent

import "sync"

// mailbox is an unbounded queue of events: putting one never blocks.
type mailbox struct {
	mu    *sync.Mutex
	all   *[]event
	ready chan struct{} // has an element when there is something
}

func newMailbox() mailbox { return mailbox{new(sync.Mutex), new([]event), make(chan struct{}, 1)} }

func (m mailbox) put(e event) {
	m.mu.Lock()
	*m.all = append(*m.all, e)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

func (m mailbox) drain() []event {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := *m.all
	*m.all = nil
	return all
}
