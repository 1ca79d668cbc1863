// Command bench measures what the project claims. Each figure is compared with a peer, a physical
// limit or a fixed bar in the same run.
//
//	go run ./test/bench [-only REGEXP] [-out FILE] [-times N] [-events N] [-peer_events N]
//	go run ./test/bench -page docs/benchmarks.md FILE…
//
// ElasticDL and the peer are measured in turns. A ratio is that of the medians; the minimum and
// maximum of each side are shown with it, and those of the ratios where turns were paired. The
// command fails if a bar is missed, or if a row cannot be measured; a row whose peer is not
// installed is skipped, with a message. The second form writes the tables of a page from the
// results.
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
	"time"
)

// benchmark is one measurement. -only selects it by its name.
type benchmark struct {
	name string
	run  func(ctx context.Context, b *bench) error
	// it takes minutes, and runs only if -only selects it
	long bool
}

var benchmarks = slices.Concat(stepBenchmarks(), serverBenchmarks(), ringBenchmarks(),
	encryptionBenchmarks(), jobBenchmarks(), recoveryBenchmarks(),
	goodputBenchmarks(), scalingBenchmarks(), checkpointBenchmarks(), comebackBenchmarks(), programBenchmarks())

// bench collects the results of a run.
type bench struct {
	// the elasticdl to run
	binary string
	// directory of files, removed at the end
	dir     string
	results []Result
	// the results of killing workers of a ring, once they are measured
	kills *interruptions
	// How long torchrun takes after something is frozen, by its version and what is frozen.
	torchrunsFrozen map[string][]float64
	// factor of the number of turns
	times int
	// number of losses of each kind in measurements of scripts; 0 = the usual number
	events int
	// number of losses of each kind for the peers
	peerEvents int
}

// n returns the number of turns or losses, given the usual one.
func (b *bench) n(usual int) int { return usual * b.times }

func main() {
	if err := beElasticdl(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	b := &bench{torchrunsFrozen: make(map[string][]float64)}
	only := flag.String("only", "", "regular expression: which benchmarks to run; none: all that take seconds")
	out := flag.String("out", "build/bench.json", "where the results go")
	page := flag.String("page", "",
		"measure nothing: write the tables of this page from the files of results that are the arguments")
	flag.StringVar(&b.binary, "binary", "build/elasticdl", "the elasticdl to measure")
	flag.IntVar(&b.times, "times", 1, "how many times as many turns and losses as usual")
	flag.IntVar(&b.events, "events", 0,
		"losses of each kind, where user scripts are measured (default 5, times -times)")
	flag.IntVar(&b.peerEvents, "peer_events", 0,
		"the same, of their peers, each of which takes half a minute (default 2, times -times)")
	child := flag.String("child", "", "for bench itself: be that process")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	switch {
	case *child != "":
		err = runChild(ctx, *child, flag.Args())
	case *page != "":
		err = writePage(*page, flag.Args())
	default:
		err = run(ctx, *only, *out, b)
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
	if b.times < 1 {
		return fmt.Errorf("-times=%d: expected 1 or more", b.times)
	}
	if b.events == 0 {
		b.events = b.n(5)
	}
	if b.peerEvents == 0 {
		b.peerEvents = b.n(2)
	}
	if b.dir, err = os.MkdirTemp("", "elasticdl-bench-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if b.binary, err = filepath.Abs(b.binary); err != nil {
		return err
	}
	where := thisMachine(ctx)
	var failures []error
	ran := 0
	for _, m := range benchmarks {
		if !choose.MatchString(m.name) || only == "" && m.long {
			continue
		}
		ran++
		fmt.Fprintf(os.Stderr, "%s\n", m.name)
		start := time.Now()
		if err := m.run(ctx, b); err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", m.name, err))
		}
		fmt.Fprintf(os.Stderr, "  took %v\n", time.Since(start).Round(time.Second))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if ran == 0 {
		return fmt.Errorf("-only=%s chooses none of %s", only, names())
	}
	b.print()
	where.Minutes = time.Since(where.Start).Minutes()
	if err := write(out, report{where, b.results}); err != nil {
		return err
	}
	for _, r := range b.results {
		if r.missed() {
			failures = append(failures, fmt.Errorf("missed: %s: %s, expected %s", r.Name, short(r.Ratio), r.Target))
		}
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
	fmt.Fprintln(w, "NAME\tTHREADS\tOURS: MEDIAN (LEAST–MOST)\tPEER\tMEDIAN "+
		"(LEAST–MOST)\tUNIT\tRATIO (OF THE TURNS)\tTARGET\t")
	for _, r := range b.results {
		if r.Skipped != "" {
			fmt.Fprintf(w, "%s\t\t\t\t\t\t\t\tSKIPPED: %s\n", r.Name, r.Skipped)
			continue
		}
		fmt.Fprintf(w, "%s\t%s\t%v\t%s\t%v\t%s\t%s\t%s\t%s\n", r.Name, r.threads(), r.Ours, r.Peer,
			r.Theirs, r.Unit, r.ratio(), r.Target, r.verdict())
	}
	w.Flush()
}

// report is the content of a file of results.
type report struct {
	Machine machine  `json:"where"`
	Results []Result `json:"results"`
}

func write(path string, r report) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}
