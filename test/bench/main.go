// Command bench measures what the project claims, each figure beside a peer or
// a physical limit in the same run, and prints ratios.
//
//	go run ./test/bench [-only REGEXP] [-out FILE] [-events N] [-peer_events N]
//
// Ours and the peer take turns; the figure is the best of the turns, the median
// stands beside it. PyTorch comes from `make bench-peers`.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
)

// Result is one row of build/bench.json.
type Result struct {
	Name       string  `json:"name"`
	Ours       float64 `json:"ours"` // best of the turns
	Peer       float64 `json:"peer"`
	PeerName   string  `json:"peer_name"`
	Unit       string  `json:"unit"`
	Ratio      float64 `json:"ratio"` // ours / peer
	Threads    int     `json:"threads"`
	OursMedian float64 `json:"ours_median"`
	PeerMedian float64 `json:"peer_median"`
	Target     string  `json:"target"`            // what the ratio should be, as "<= 0.7"
	Skipped    string  `json:"skipped,omitempty"` // why nothing was measured; "": it was
}

// met says whether the ratio is what it should be.
func (r Result) met() bool {
	var op string
	var bound float64
	if _, err := fmt.Sscan(r.Target, &op, &bound); err != nil {
		panic(fmt.Sprintf("target %q of %s: %v", r.Target, r.Name, err))
	}
	if op == "<=" {
		return r.Ratio <= bound
	}
	return r.Ratio >= bound
}

// benchmark measures one thing. Its name is what -only chooses by.
type benchmark struct {
	name string
	run  func(ctx context.Context, b *bench) error
}

var benchmarks = slices.Concat(stepBenchmarks(), serverBenchmarks(), ringBenchmarks(), jobBenchmarks(), recoveryBenchmarks(), goodputBenchmarks(), scalingBenchmarks(),
	checkpointBenchmarks(), comebackBenchmarks(), programBenchmarks())

// bench collects the results of a run.
type bench struct {
	binary     string // the elasticdl to run
	dir        string // for files, removed at the end
	results    []Result
	kills      *interruptions // of a ring, when they have been measured
	events     int            // of each kind, where scripts are measured
	peerEvents int            // the same, of the peers
	// What torchrun was found to do, by what it ran.
	torchruns map[setting]map[string][]float64
}

// skip notes that a row is left out because its peer is missing; any other error is returned.
func (b *bench) skip(name string, err error) error {
	if _, missing := err.(missingPeer); !missing {
		return err
	}
	b.results = append(b.results, Result{Name: name, Skipped: err.Error()})
	return nil
}

func (b *bench) add(r Result) {
	r.Ratio = r.Ours / r.Peer
	b.results = append(b.results, r)
	fmt.Fprintf(os.Stderr, "  %s: %.4g %s, %s %.4g: %.3f (%s)\n", r.Name, r.Ours, r.Unit, r.PeerName, r.Peer, r.Ratio, r.Target)
}

func main() {
	if err := beElasticdl(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	only := flag.String("only", "", "regular expression: which benchmarks to run")
	out := flag.String("out", "build/bench.json", "where the results go")
	binary := flag.String("binary", "build/elasticdl", "the elasticdl to measure")
	events := flag.Int("events", 20, "losses of each kind, where user scripts are measured")
	peerEvents := flag.Int("peer_events", 20, "the same, of the peers, each of which takes half a minute")
	child := flag.String("child", "", "for bench itself: be that process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if *child != "" {
		err = runChild(ctx, *child, flag.Args())
	} else {
		err = run(ctx, *only, *out, &bench{binary: *binary, events: *events, peerEvents: *peerEvents, torchruns: make(map[setting]map[string][]float64)})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only, out string, b *bench) error {
	choose, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("-only: %w", err)
	}
	if b.dir, err = os.MkdirTemp("", "elasticdl-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	var failures []error
	ran := 0
	for _, m := range benchmarks {
		if !choose.MatchString(m.name) {
			continue
		}
		ran++
		fmt.Fprintf(os.Stderr, "%s\n", m.name)
		if err := m.run(ctx, b); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", m.name, err))
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if ran == 0 {
		return fmt.Errorf("-only=%s chooses none of %s", only, names())
	}
	b.print()
	if err := b.write(out); err != nil {
		return err
	}
	return errors.Join(failures...)
}

func names() string {
	var all []string
	for _, m := range benchmarks {
		all = append(all, m.name)
	}
	return strings.Join(all, ", ")
}

func (b *bench) print() {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tTHREADS\tOURS (MEDIAN)\tPEER (MEDIAN)\tUNIT\tRATIO\tTARGET\t")
	for _, r := range b.results {
		if r.Skipped != "" {
			fmt.Fprintf(w, "%s\t\t\t\t\t\t\tSKIPPED: %s\n", r.Name, r.Skipped)
			continue
		}
		verdict := "ok"
		if !r.met() {
			verdict = "MISSED"
		}
		fmt.Fprintf(w, "%s\t%d\t%.4g (%.4g)\t%s %.4g (%.4g)\t%s\t%.3f\t%s\t%s\n",
			r.Name, r.Threads, r.Ours, r.OursMedian, r.PeerName, r.Peer, r.PeerMedian, r.Unit, r.Ratio, r.Target, verdict)
	}
	w.Flush()
}

func (b *bench) write(path string) error {
	data, err := json.MarshalIndent(b.results, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// turns lets ours and the peer take turns and fills in the best and the median
// of each; of times the least is best, of rates the most.
func (r Result) turns(n int, ours, peer func() (float64, error)) (Result, error) {
	var a, b []float64
	for range n {
		x, err := ours()
		if err != nil {
			return r, err
		}
		y, err := peer()
		if err != nil {
			return r, err
		}
		a, b = append(a, x), append(b, y)
	}
	slices.Sort(a)
	slices.Sort(b)
	r.OursMedian, r.PeerMedian = a[n/2], b[n/2]
	if strings.HasSuffix(r.Unit, "/s") {
		r.Ours, r.Peer = a[n-1], b[n-1]
	} else {
		r.Ours, r.Peer = a[0], b[0]
	}
	return r, nil
}
