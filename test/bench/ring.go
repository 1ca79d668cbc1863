package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	_ "embed"

	"github.com/elasticdl/elasticdl/test/netmodel"
	"github.com/elasticdl/elasticdl/test/prove"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/train/mesh"
	"github.com/elasticdl/elasticdl/trainer/train/ring"
)

//go:embed peers/gloo.py
var glooScript string

// ringSizes has the sizes of the reductions: batches of calls that are long enough to hide that
// processes do not begin at the same moment.
var ringSizes = []struct {
	name                   string
	floats, calls, batches int
}{
	{"4 KB", 1000, 200, 5},
	{"1 MB", 250_000, 20, 5},
	{"25 MB", 6_250_000, 4, 3},
	{"100 MB", modelFloats, 2, 3},
}

func ringBenchmarks() []benchmark {
	var all []benchmark
	for _, processes := range []int{2, 4} {
		name := fmt.Sprintf("ring/%d processes", processes)
		all = append(all,
			benchmark{name: name + ", shared memory", run: func(ctx context.Context, b *bench) error {
				return b.ring(ctx, name+", shared memory", processes, nil, ">= 1.5")
			}},
			benchmark{name: name + ", TCP", run: func(ctx context.Context, b *bench) error {
				pods, err := newPods(ctx, processes)
				if err != nil {
					return b.skip(name+", TCP", err)
				}
				defer pods.end(ctx)
				return b.ring(ctx, name+", TCP", processes, pods, ">= 1.3")
			}})
	}
	return append(all, benchmark{name: manyRanks, run: func(_ context.Context, b *bench) error {
		return b.manyRanks()
	}})
}

const manyRanks = "ring/64 ranks, 10 Gb/s in virtual time"

// manyRanks compares the time of an all-reduce in a network in virtual time with the least that its
// bandwidth allows.
func (b *bench) manyRanks() error {
	const size = 64
	for _, s := range ringSizes {
		if s.floats < 10_000 {
			continue // only the latency counts
		}
		seconds, err := netmodel.AllReduce(size, s.floats)
		if err != nil {
			return err
		}
		b.bar(Result{Name: manyRanks + ", " + s.name, Peer: "the least by the bandwidth", Unit: "ms",
			Target: "<= 1.3"}, 1e3*netmodel.Least(size, s.floats), 1e3*seconds)
	}
	return nil
}

// ring compares our all-reduce with gloo's, each in processes of its own: the time of a call if it
// is short, or else its bus bandwidth, that of bytes*2(n-1)/n, which every rank must send at least.
func (b *bench) ring(ctx context.Context, name string, processes int, pods *pods, target string) error {
	python, err := findPython(ctx, pypi, "torch")
	if err != nil {
		if python, err = findPython(ctx, debian, "torch"); err != nil {
			return b.skip(name, err)
		}
	}
	encryption := "tls"
	if pods != nil {
		encryption = "off" // as with gloo
	}
	ours, err := startRanks(ctx, processes, pods, encryption)
	if err != nil {
		return err
	}
	defer ours.end()
	gloo, err := startScript(python, glooScript, 1, append([]string{strconv.Itoa(processes)},
		pods.spaces()...), 1, 1, 1)
	if err != nil {
		return err
	}
	defer gloo.stop()
	for _, s := range ringSizes {
		r := Result{Name: name + ", " + s.name, Peer: "gloo of PyTorch " + python.version, Unit: "GB/s",
			Threads: 1, Target: target}
		figure := func(seconds float64) float64 { return busBandwidth(processes, s.floats, seconds) }
		if s.floats < 10_000 {
			r.Unit, r.Target = "ms", "<= 1"
			figure = func(seconds float64) float64 { return 1e3 * seconds }
		}
		found, err := turns(b.n(5),
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
		b.paired(r, found[0], found[1])
	}
	return nil
}

// busBandwidth returns the rate of what every rank must send at least, in GB/s.
func busBandwidth(processes, floats int, seconds float64) float64 {
	return 4 * float64(floats) * 2 * float64(processes-1) / float64(processes) / seconds / 1e9
}

// ranks has the processes of a world, by rank.
type ranks []*child

// startRanks starts a world with a value of --data_encryption: each rank in a pod, or, without
// pods, all on this machine, where they copy from each other's memory.
func startRanks(ctx context.Context, size int, pods *pods, encryption string) (ranks, error) {
	return startRanksAt(ctx, size, encryption, func(i int) (prefix []string, host string) {
		if pods == nil {
			return nil, "127.0.0.1"
		}
		return pods.enter(i), pods.host(i)
	})
}

// startRanksAt starts each rank with the prefix of a command, listening at a host.
func startRanksAt(ctx context.Context, size int, encryption string,
	at func(i int) (prefix []string, host string)) (ranks, error) {
	var c ranks
	var addresses []string
	for i := range size {
		prefix, host := at(i)
		rank, err := startChildBehind(ctx, prefix, "ring", strconv.Itoa(i), host, encryption)
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
	if _, err := c.ask(1, 1, 1); err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

// ask makes all ranks reduce, and returns the seconds of one call as measured by rank 0.
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

// ringRank runs one rank: it prints its address, reads the addresses of all, and then lines "FLOATS
// CALLS BATCHES" until its input ends; rank 0 answers each line with the seconds of a call in the
// median batch.
func ringRank(ctx context.Context, number, host string, plain bool) error {
	rank, err := strconv.Atoi(number)
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return err
	}
	who := identity.Header{Job: jobUID, Role: pod.Worker, Index: rank, Incarnation: 1}
	node := mesh.Listen(mesh.Config{Listener: lis, Silence: 5 * time.Second, Self: func() identity.Header {
		return who
	}, Credential: prove.Of(who), Plain: plain})
	defer node.Close()
	fmt.Println(lis.Addr())
	in := bufio.NewReader(os.Stdin)
	line, err := in.ReadString('\n')
	if err != nil {
		return err
	}
	w := mesh.Group{Generation: 1, Rank: rank}
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

// ringCalls returns the seconds of a call in the median batch.
func ringCalls(m *mesh.Mesh, rank, size int, data, scratch []float32, calls, batches int) (float64, error) {
	var all []float64
	for i := range batches + 1 { // the first batch is a warm-up
		// so that all ranks begin together
		if _, err := ring.Gather(m, rank, size, nil); err != nil {
			return 0, err
		}
		start := time.Now()
		for range calls {
			if err := ring.Reduce(m, rank, size, data, scratch); err != nil {
				return 0, err
			}
		}
		if i > 0 {
			all = append(all, time.Since(start).Seconds()/float64(calls))
		}
	}
	slices.Sort(all)
	return median(all), nil
}
