package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	_ "embed"

	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/identity"
	"github.com/elasticdl/elasticdl/trainer/mesh"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/ring"
)

//go:embed peers/gloo.py
var glooScript string

// ringSizes are what is reduced: batches of calls, so long that a process that comes late does not count.
var ringSizes = []struct {
	name                   string
	floats, calls, batches int
}{
	{"4 KB", 1000, 200, 10},
	{"1 MB", 250_000, 20, 10},
	{"25 MB", 6_250_000, 4, 4},
	{"100 MB", modelFloats, 2, 3},
}

func ringBenchmarks() []benchmark {
	var all []benchmark
	for _, processes := range []int{2, 4} {
		all = append(all, benchmark{fmt.Sprintf("ring/%d processes", processes), func(ctx context.Context, b *bench) error {
			return b.ring(ctx, processes)
		}})
	}
	return all
}

// ring is our all-reduce beside gloo's, each in processes of its own on loopback: the time of
// one, where it is short, or its bus bandwidth, of bytes*2(n-1)/n, which every rank sends at the least.
func (b *bench) ring(ctx context.Context, processes int) error {
	ours, err := startRanks(ctx, processes)
	if err != nil {
		return err
	}
	defer ours.end()
	gloo, err := startScript(glooScript, []string{strconv.Itoa(processes)}, 1, 1, 1)
	if err != nil {
		return err
	}
	defer gloo.stop()
	for _, s := range ringSizes {
		r := Result{Name: fmt.Sprintf("ring/%d processes/%s", processes, s.name), PeerName: "gloo", Unit: "GB/s", Threads: 1, Target: ">= 1.5"}
		figure := func(seconds float64) float64 {
			return 4 * float64(s.floats) * 2 * float64(processes-1) / float64(processes) / seconds / 1e9
		}
		if s.floats < 10_000 {
			r.Unit, r.Target = "ms", "<= 1"
			figure = func(seconds float64) float64 { return 1e3 * seconds }
		}
		r, err := r.turns(7,
			func() (float64, error) {
				seconds, err := ours.ask(s.floats, s.calls, s.batches)
				return figure(seconds), err
			},
			func() (float64, error) {
				seconds, err := gloo.ask(s.floats, s.calls, s.batches)
				return figure(seconds), err
			})
		if err != nil {
			return err
		}
		b.add(r)
	}
	return nil
}

// ranks are the ranks of one world.
type ranks []*child

func startRanks(ctx context.Context, size int) (ranks, error) {
	var c ranks
	var addresses []string
	for i := range size {
		rank, err := startChild(ctx, "ring", strconv.Itoa(i))
		if err != nil {
			c.end()
			return nil, err
		}
		c = append(c, rank)
		addresses = append(addresses, rank.line)
	}
	for _, rank := range c {
		if _, err := fmt.Fprintln(rank.in, strings.Join(addresses, " ")); err != nil {
			c.end()
			return nil, err
		}
	}
	_, err := c.ask(1, 1, 1)
	return c, err
}

// ask lets all ranks reduce, and returns the seconds of one call as rank 0 measured it.
func (c ranks) ask(floats, calls, batches int) (seconds float64, err error) {
	for _, rank := range c {
		if _, err := fmt.Fprintln(rank.in, floats, calls, batches); err != nil {
			return 0, err
		}
	}
	line, err := c[0].answer()
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(line, &seconds)
	return seconds, err
}

func (c ranks) end() {
	for _, rank := range c {
		rank.end()
	}
}

// ringRank is one rank: it prints its address, reads those of all, and then lines "FLOATS CALLS
// BATCHES" until its input ends; rank 0 answers each with the seconds of a call in the fastest batch.
func ringRank(ctx context.Context, number string) error {
	rank, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	who := identity.Header{Job: jobUID, Role: pod.Worker, Index: rank, Incarnation: 1}
	node := mesh.Listen(mesh.Config{Listener: lis, Silence: 5 * time.Second, Self: func() identity.Header { return who }, Credential: prove.Of(who)})
	defer node.Close()
	fmt.Println(lis.Addr())
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	w := mesh.World{Formation: 1, Rank: rank}
	for i, address := range strings.Fields(line) {
		w.Peers = append(w.Peers, mesh.Peer{Worker: i, Address: address})
	}
	m, err := node.Connect(ctx, w)
	if err != nil {
		return err
	}
	defer m.Close()
	scratch := make([]float32, ring.ScratchSize)
	for {
		var floats, calls, batches int
		if _, err := fmt.Fscanln(in, &floats, &calls, &batches); err != nil {
			return nil // the end of the input
		}
		seconds, err := ringCalls(m, rank, len(w.Peers), make([]float32, floats), scratch, calls, batches)
		if err != nil {
			return err
		}
		if rank == 0 {
			fmt.Println(seconds)
		}
	}
}

// ringCalls is the seconds of a call in the fastest batch.
func ringCalls(m *mesh.Mesh, rank, size int, data, scratch []float32, calls, batches int) (float64, error) {
	var best time.Duration
	for i := range batches + 1 { // the first warms up
		if _, err := ring.Gather(m, rank, size, nil); err != nil { // all begin together
			return 0, err
		}
		start := time.Now()
		for range calls {
			if err := ring.Reduce(m, rank, size, data, scratch); err != nil {
				return 0, err
			}
		}
		if took := time.Since(start); i == 1 || i > 1 && took < best {
			best = took
		}
	}
	return best.Seconds() / float64(calls), nil
}
