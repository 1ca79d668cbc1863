package agent

import (
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/tcpstore"
)

// storeLinger is the time that processes that are ending have to close their connections to the
// store: a reset would abort those of PyTorch 1.x.
const storeLinger = 5 * time.Second

// mostOffered is the greatest number of stores that are served for one world: while there is no
// master, arrivals are sent again and again.
const mostOffered = 3

// stores holds the key-value stores that this worker serves. Each arrival offers another one, in
// case this worker becomes the first of the next world. An arrival that is sent again does so too:
// the others may have used the store that was offered before, in a world of which this worker was
// not notified.
type stores struct {
	listen func() (net.Listener, error)
	log    *slog.Logger
	// stores that are being closed
	closing sync.WaitGroup

	mu sync.Mutex
	// offered since the last world, the newest one at the end; then the one of the world
	offered []*tcpstore.Server
	// of the world before, until the next one is formed: processes of other workers may still be
	// building their process group, and leave after a round
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

// formed closes all stores but the one of a world that is formed, which may be another worker's.
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

// close closes all stores, and waits for that.
func (s *stores) close() {
	s.mu.Lock()
	s.release(s.last)
	s.release(s.offered)
	s.last, s.offered = nil, nil
	s.mu.Unlock()
	s.closing.Wait()
}

// release closes stores in the background. The mutex is held.
func (s *stores) release(stores []*tcpstore.Server) {
	for _, store := range stores {
		s.closing.Go(store.Close)
	}
}
