package agent

import "sync"

// mailbox is an unbounded queue of the loop's events: putting something never blocks. That is an
// event of the supervisor, a message of a process, the end of a process, or a world.
type mailbox struct {
	mu    *sync.Mutex
	all   *[]any
	ready chan struct{} // has an element when there is something
}

func newMailbox() mailbox { return mailbox{new(sync.Mutex), new([]any), make(chan struct{}, 1)} }

func (m mailbox) put(e any) {
	m.mu.Lock()
	*m.all = append(*m.all, e)
	m.mu.Unlock()
	select {
	case m.ready <- struct{}{}:
	default:
	}
}

func (m mailbox) drain() []any {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := *m.all
	*m.all = nil
	return all
}
