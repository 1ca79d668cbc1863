package agent

import "sync"

// mailbox is the unbounded queue of the agent's loop; put never blocks. Its elements have the types
// that translate handles: an event for the supervisor, a message of a process, the end of a
// process, or a world.
type mailbox struct {
	mu  *sync.Mutex
	all *[]any
	// has an element if the queue may not be empty
	ready chan struct{}
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
