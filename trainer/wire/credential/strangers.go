package credential

import (
	"io"
	"slices"
	"sync"
)

// Strangers bounds the connections of a listener whose other ends have not proved who they are.
// One more than allowed closes the oldest: who belongs to the job proves that at once, so that
// silent connections keep nobody out, however many come. The zero value has none.
type Strangers struct {
	mu    sync.Mutex
	conns []io.Closer // in the order in which they came
}

// Admit adds a connection, and closes the oldest while there are more than most. The caller calls
// known, from any goroutine, when the connection has proved itself or has ended; a later call
// does nothing. Close of a connection may call known.
func (s *Strangers) Admit(conn io.Closer, most int) (known func()) {
	s.mu.Lock()
	s.conns = append(s.conns, conn)
	over := max(0, len(s.conns)-most)
	oldest := slices.Clone(s.conns[:over])
	s.conns = slices.Delete(s.conns, 0, over)
	s.mu.Unlock()
	for _, c := range oldest {
		c.Close()
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if i := slices.Index(s.conns, conn); i >= 0 {
			s.conns = slices.Delete(s.conns, i, i+1)
		}
	}
}
