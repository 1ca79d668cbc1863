package agent

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/tcpstore"
)

// storeLinger is the time for which a store stays open for processes that are ending: a connection
// reset would abort those of PyTorch 1.x.
const storeLinger = 5 * time.Second

// mostOffered is the maximum number of stores that are served for one world. While there is no
// master, arrivals are repeated, each with a new store.
const mostOffered = 3

// stores holds the key-value stores that this worker serves. Each arrival offers a new one, in case
// this worker becomes the first of the next world. A repeated arrival does so, too: the others may
// have used the store that was offered before, in a world of which this worker was not notified.
type stores struct {
	listen func() (net.Listener, error)
	log    *slog.Logger
	// stores that are being closed
	closing sync.WaitGroup

	mu sync.Mutex
	// stores offered since the last world, oldest first; once the next world has formed, only its
	// store, if this worker serves it
	offered []*tcpstore.Server
	// store of the previous world, until the next one has formed: processes of other workers may
	// still be creating their process group, and leave after a round
	last []*tcpstore.Server
}

// next offers a store for the next world, and returns its address.
func (s *stores) next() (address string, err error) {
	s.mu.Lock()
	s.release(s.last)
	s.last, s.offered = s.offered, nil
	s.mu.Unlock()
	return s.offer()
}

// offer offers another store for the same world, and returns its address.
func (s *stores) offer() (address string, err error) {
	listener, err := s.listen()
	if err != nil {
		return "", fmt.Errorf("serve the processes' store: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	store := tcpstore.Serve(listener, tcpstore.Options{Log: s.log, Linger: storeLinger})
	s.offered = append(s.offered, store)
	if older := len(s.offered) - mostOffered; older > 0 {
		s.release(s.offered[:older])
		s.offered = s.offered[older:]
	}
	return store.Addr().String(), nil
}

// formed closes all stores except the one of the world that has formed, which another worker may
// serve.
func (s *stores) formed(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(s.last)
	s.last = nil
	var own, others []*tcpstore.Server
	for _, store := range s.offered {
		if store.Addr().String() == address {
			own = append(own, store)
		} else {
			others = append(others, store)
		}
	}
	s.offered = own
	s.release(others)
}

// close closes all stores, and returns when they are closed.
func (s *stores) close() {
	s.mu.Lock()
	s.release(s.last)
	s.release(s.offered)
	s.last, s.offered = nil, nil
	s.mu.Unlock()
	s.closing.Wait()
}

// release closes stores in the background. The caller holds the mutex.
func (s *stores) release(stores []*tcpstore.Server) {
	for _, store := range stores {
		s.closing.Go(store.Close)
	}
}
