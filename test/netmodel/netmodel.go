// Package netmodel is a network in virtual time. Each rank has its own clock, so the figures depend
// on no machine, and on no scheduling of goroutines. Computing takes no time there.
package netmodel

import (
	"errors"
	"slices"
	"sync"

	"github.com/elasticdl/elasticdl/trainer/train/ring"
)

const (
	// Hop is the latency of a message, in seconds.
	Hop = 50e-6
	// Bandwidth is the number of bytes that a network card sends in a second, and receives:
	// 10 Gb/s.
	Bandwidth = 10e9 / 8
)

// network has the messages between ranks, by sender and receiver.
type network map[[2]int]*pipe

// pipe has the messages of one rank to another.
type pipe struct {
	mu      sync.Mutex
	changed *sync.Cond
	// messages that are not received yet
	arrived []message
	// time at which each message was received
	taken []float64
	// bytes of the first message of arrived that are received already
	part int
}

type message struct {
	bytes int
	at    float64
}

// link is the [ring.Link] of one rank. It carries no content.
type link struct {
	network
	rank int
	now  float64
	// time at which the network card is free again
	sent, received float64
}

// Send implements [ring.Link]. It waits as long as a link may.
func (l *link) Send(to int, b []byte) error {
	if len(b) == 0 {
		return nil
	}
	p := l.network[[2]int{l.rank, to}]
	p.mu.Lock()
	defer p.mu.Unlock()
	sent := len(p.taken) + len(p.arrived)
	for sent >= len(p.taken)+ring.Ahead {
		p.changed.Wait()
	}
	if i := sent - ring.Ahead; i >= 0 {
		l.now = max(l.now, p.taken[i])
	}
	l.sent = max(l.sent, l.now) + float64(len(b))/Bandwidth
	p.arrived = append(p.arrived, message{len(b), l.sent + Hop})
	p.changed.Broadcast()
	return nil
}

// Recv implements [ring.Link].
func (l *link) Recv(from int, b []byte) error {
	p := l.network[[2]int{from, l.rank}]
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := len(b); n > 0; {
		for len(p.arrived) == 0 {
			p.changed.Wait()
		}
		m := p.arrived[0]
		take := min(n, m.bytes-p.part)
		n -= take
		p.part += take
		l.received = max(l.received+float64(take)/Bandwidth, m.at)
		l.now = max(l.now, l.received)
		if p.part == m.bytes {
			p.arrived, p.part = p.arrived[1:], 0
			p.taken = append(p.taken, l.now)
			p.changed.Broadcast()
		}
	}
	return nil
}

// Flush implements [ring.Link].
func (l *link) Flush() error { return nil }

// AllReduce returns the seconds in which size ranks sum n numbers, bucket by bucket, all of which
// are ready at the beginning.
func AllReduce(size, n int) (float64, error) {
	m := make(network)
	for from := range size {
		for _, to := range ring.Peers(from, size) {
			p := new(pipe)
			p.changed = sync.NewCond(&p.mu)
			m[[2]int{from, to}] = p
		}
	}
	buckets := buckets(size, n)
	links, errs := make([]*link, size), make([]error, size)
	var all sync.WaitGroup
	for i := range links {
		links[i] = &link{network: m, rank: i}
		all.Go(func() { errs[i] = reduce(links[i], i, size, buckets) })
	}
	all.Wait()
	last := 0.0
	for _, l := range links {
		last = max(last, l.now)
	}
	return last, errors.Join(errs...)
}

// buckets returns the lengths of the buckets of n numbers.
func buckets(size, n int) (lengths []int) {
	b := ring.NewBuckets(n, n)
	b.Reset(size)
	b.Final(0, n)
	for lo, hi, ok := b.Next(); ok; lo, hi, ok = b.Next() {
		lengths = append(lengths, hi-lo)
	}
	return lengths
}

// reduce sums buckets, all in the same memory: what is in them does not matter.
func reduce(l ring.Link, rank, size int, buckets []int) error {
	data, scratch := make([]float32, slices.Max(buckets)), make([]float32, ring.ScratchSize)
	for _, n := range buckets {
		if err := ring.Reduce(l, rank, size, data[:n], scratch); err != nil {
			return err
		}
	}
	return nil
}

// Least returns the least seconds that the bandwidth allows for a sum of n numbers over size ranks:
// each sends each number twice, except those of its own part.
func Least(size, n int) float64 {
	return 2 * float64(size-1) / float64(size) * 4 * float64(n) / Bandwidth
}
