package ps

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// momentum has one slot.
var momentum = optim.Config{Name: optim.Momentum, LearningRate: 1, Momentum: 0.5}

// commit makes a checkpoint of a fleet as its master would, in which the union of what the servers
// have is.
func (f *fleet) commit(number int64) checkpoint.Commit {
	f.t.Helper()
	target := new(ledger.Ledger)
	for i := range f.servers {
		f.tell(i, &wire.ControlRequest{Cut: number})
		r := f.server(i).Report()
		if r.Number != number || r.Phase != custody.Held {
			f.t.Fatalf("server %d reports %+v", i, r)
		}
		target.Union(&r.Ledger)
	}
	for i := range f.servers {
		f.tell(i, &wire.ControlRequest{Cut: number, Target: target.Append(nil)})
	}
	return f.written(number, target)
}

// written waits for the servers' shards, and writes the record.
func (f *fleet) written(number int64, target *ledger.Ledger) checkpoint.Commit {
	f.t.Helper()
	c := checkpoint.Commit{
		Format: checkpoint.Format, Number: number, ModelGeneration: 1, Layout: checkpoint.VariablesOf(f.layout),
		Optimizer: f.config.Optimizer.Name, Slots: len(must(optim.New(f.config.Optimizer)).NewSlots(1)),
		Ledger: target.Clone(),
	}
	for i := range f.servers {
		var r custody.Report
		for range 1000 {
			if r = f.server(i).Report(); r.Phase >= custody.Written {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if r.Phase != custody.Written {
			f.t.Fatalf("server %d reports %+v", i, r)
		}
		s := r.Shard
		c.Version = max(c.Version, r.Version)
		c.Shards = append(c.Shards, checkpoint.Shard{File: s.File, Start: s.Start, End: s.End,
			Bytes: s.Bytes, CRC: s.CRC})
	}
	dir := must(f.config.Open.Open(f.config.CheckpointDir))
	if err := errors.Join(c.Seal(), dir.WriteCommit(c)); err != nil {
		f.t.Fatal(err)
	}
	return c
}

func (f *fleet) progress(i int, task int64) int64 {
	f.t.Helper()
	return must(f.control(i).Progress(f.t.Context(),
		&wire.ProgressRequest{Tasks: []*wire.TaskKey{{Epoch: 1, Number: task}}})).Done[0]
}

// A checkpoint has the same records on all servers: while it is made nothing else is taken, and
// what one of them lacks is.
func TestCheckpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{Optimizer: momentum, CheckpointDir: t.TempDir()})
		layout := dense(50, 7)
		a, b := f.client(0, layout), f.client(1, layout)
		f.init(a, filled(57, 10))
		for i := range f.servers {
			if c := &f.server(i).copy; len(c.Values) == 0 || len(c.Slots) != 1 {
				t.Error("no memory is prepared for a copy")
			}
		}
		f.push(a, filled(57, 1), Gradient{Versions: Versions{0, 0}, Epoch: 1, Task: 1, To: 4, Of: 100})
		// the worker is lost in the middle of a push
		p := a.servers[1]
		must(p.call(t.Context(), &p.push, request{op: opPush, version: 1, epoch: 1, task: 1, from: 4,
			to: 8, of: 100}, p.part(filled(57, 1)), nil))

		target := new(ledger.Ledger)
		for i := range f.servers {
			f.tell(i, &wire.ControlRequest{Cut: 3})
			r := f.server(i).Report()
			target.Union(&r.Ledger)
		}
		var pushing sync.WaitGroup
		done := false
		pushing.Go(func() {
			f.push(b, filled(57, 1), Gradient{Versions: Versions{1, 2}, Epoch: 1, Task: 2, To: 4, Of: 100})
			done = true
		})
		for i := range f.servers {
			f.tell(i, &wire.ControlRequest{Cut: 3, Target: target.Append(nil)})
			f.tell(i, &wire.ControlRequest{Cut: 3, Target: target.Append(nil)}) // repeated
		}
		synctest.Wait()
		if done || f.server(0).Report().Phase != custody.Held || f.progress(0, 2) > 0 {
			t.Fatal("a gradient was let in that is not to be in the checkpoint")
		}
		c := f.client(2, layout) // who has the lost worker's task now
		f.push(c, filled(57, 1), Gradient{Versions: Versions{1, 2}, Epoch: 1, Task: 1, From: 4, To: 8, Of: 100})
		commit := f.written(3, target)
		pushing.Wait()
		if commit.Version != 2 || f.server(0).Version() != 3 {
			t.Fatalf("the checkpoint is of version %d; version %d now", commit.Version, f.server(0).Version())
		}
		// All servers return to it, and begin again with what is in it: values, slots, markers,
		// version.
		f.restart(f.base(commit))
		again := f.client(3, layout)
		values, v := f.pull(again, PullOptions{})
		if v[0] != 2 || v[1] != 2 || f.progress(0, 1) != 8 || f.progress(1, 1) != 8 || f.progress(0, 2) != 0 {
			t.Fatal(v)
		}
		want(t, values[:50], filled(50, 10-1-1.5))
		f.push(again, filled(57, 1), Gradient{Versions: v, Epoch: 1, Task: 2, To: 4, Of: 100})
		values, _ = f.pull(again, PullOptions{})
		want(t, values[:50], filled(50, 10-1-1.5-1.75))
	})
}

// base names a commit as the master does.
func (f *fleet) base(c checkpoint.Commit) custody.Base {
	return custody.Base{Dir: f.config.CheckpointDir, Number: c.Number, Claim: c.Claim, Checksum: c.Checksum}
}

// restart has the servers begin another generation.
func (f *fleet) restart(base custody.Base) {
	f.t.Helper()
	f.mu.Lock()
	f.modelGeneration++
	f.mu.Unlock()
	for i := range f.servers {
		f.tell(i, &wire.ControlRequest{Base: &wire.Base{Dir: base.Dir, Number: base.Number,
			Claim: base.Claim, Checksum: base.Checksum}})
	}
}

// Any number of servers begins with a checkpoint; the first order has it read.
func TestCheckpointOnOtherServers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 2, ServerConfig{Optimizer: momentum, CheckpointDir: t.TempDir()})
		layout := dense(50, 7)
		a := f.client(0, layout)
		f.init(a, filled(57, 10))
		f.push(a, filled(57, 1), Gradient{Versions: Versions{0, 0}, Epoch: 1, Task: 1, To: 4, Of: 100})
		made := f.commit(9)
		for _, servers := range []int{1, 3} {
			base := f.base(made)
			g := newFleet(t, servers, ServerConfig{Optimizer: momentum, Base: base})
			g.layout = layout
			for i := range servers {
				g.start(i)
				g.tell(i, &wire.ControlRequest{Base: &wire.Base{Dir: base.Dir, Number: base.Number,
					Claim: base.Claim, Checksum: base.Checksum}})
			}
			c := g.client(0, layout)
			v := make(Versions, servers)
			for i := range v {
				v[i] = 1
			}
			g.push(c, filled(57, 1), Gradient{Versions: v, Epoch: 1, Task: 1, From: 4, To: 8, Of: 100})
			values, _ := g.pull(c, PullOptions{})
			want(t, values[:50], filled(50, 10-1-1.5))
		}
	})
}

// A hold that the master forgets ends, and one that it gives up.
func TestHoldEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{Optimizer: momentum, CheckpointDir: t.TempDir()})
		a := f.client(0, dense(20, 0))
		f.init(a, filled(20, 10))
		began := time.Now()
		f.tell(0, &wire.ControlRequest{Cut: 1})
		f.push(a, filled(20, 1), Gradient{Versions: Versions{0}, Epoch: 1, Task: 1, To: 4, Of: 100})
		if took := time.Since(began); took != timing.HoldLimit || f.server(0).Report().Phase != custody.Failed {
			t.Fatalf("held for %v: %+v", took, f.server(0).Report())
		}
		f.tell(0, &wire.ControlRequest{Cut: 2})
		f.tell(0, &wire.ControlRequest{})
		began = time.Now()
		f.push(a, filled(20, 1), Gradient{Versions: Versions{1}, Epoch: 1, Task: 1, From: 4, To: 8, Of: 100})
		if took := time.Since(began); took > 0 || f.server(0).Report().Number != 0 {
			t.Fatalf("held for %v: %+v", took, f.server(0).Report())
		}
		f.tell(0, &wire.ControlRequest{Cut: 2}) // an order of before
		if f.server(0).Report().Number != 0 {
			t.Fatalf("%+v", f.server(0).Report())
		}
	})
}

// A server that cannot read what it is to begin with reports it, and begins with another.
func TestDamagedBase(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		broken := false
		f := newFleet(t, 1, ServerConfig{Optimizer: momentum, CheckpointDir: dir,
			Open: func(path string) (checkpoint.Dir, error) {
				if broken {
					return checkpoint.Dir{}, errors.New("input/output error")
				}
				return checkpoint.Dir{Files: checkpoint.Local(path)}, nil
			}})
		a := f.client(0, dense(20, 0))
		f.init(a, filled(20, 10))
		c := f.commit(4)
		order := func(modelGeneration, number, base int64) error {
			_, err := f.control(0).Control(t.Context(),
				&wire.ControlRequest{ModelGeneration: modelGeneration, Number: number,
					Base: &wire.Base{Dir: dir, Number: base, Checksum: c.Checksum}})
			return err
		}
		broken = true
		if err := order(2, 10, 4); grpcstatus.Code(err) != codes.Unavailable ||
			!strings.Contains(err.Error(), "input/output error") {
			t.Fatal(err)
		}
		broken = false
		file := filepath.Join(dir, "commit-00000004", c.Shards[0].File)
		bytes := must(os.ReadFile(file))
		bytes[len(bytes)-1] ^= 1
		if err := os.WriteFile(file, bytes, 0o644); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := order(2, 11, 4); grpcstatus.Code(err) != codes.DataLoss ||
				!strings.Contains(err.Error(), c.Shards[0].File) {
				t.Fatal(err)
			}
		}
		// the same generation: what was reported stands
		if err := order(2, 12, 5); grpcstatus.Code(err) != codes.DataLoss {
			t.Fatal(err)
		}
		if err := order(3, 13, 5); grpcstatus.Code(err) != codes.DataLoss ||
			!strings.Contains(err.Error(), "commit-00000005") {
			t.Fatal(err)
		}
		if _, err := f.control(0).Control(t.Context(), &wire.ControlRequest{ModelGeneration: 4,
			Number: 14}); err != nil {
			t.Fatal(err)
		}
		if modelGeneration, version, _ := f.server(0).standing(); modelGeneration != 4 || version != 0 {
			t.Fatal(modelGeneration, version)
		}
	})
}

// A gradient that is gathered, and in no update yet, is in the checkpoint: it is applied before the
// copy.
func TestCheckpointOfGathered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{Optimizer: momentum, CheckpointDir: t.TempDir(), GradsToWait: 2})
		a := f.client(0, dense(20, 0))
		f.init(a, filled(20, 10))
		var pushing sync.WaitGroup
		pushing.Go(func() {
			f.push(a, filled(20, 1), Gradient{Versions: Versions{0}, Epoch: 1, Task: 1, To: 4, Of: 100})
		})
		synctest.Wait()
		if v := f.server(0).Version(); v != 0 || f.progress(0, 1) != 4 {
			t.Fatalf("version %d, with %d records", v, f.progress(0, 1))
		}
		c := f.commit(2)
		if c.Version != 1 {
			t.Errorf("the checkpoint is of version %d", c.Version)
		}
		pushing.Wait()
		f.restart(f.base(c))
		values, _ := f.pull(f.client(1, f.layout), PullOptions{})
		want(t, values, filled(20, 10-1))
	})
}

// A copy waits for the turn, as changes of the values do: it is never of half an update.
func TestCopyTakesTheTurn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{CheckpointDir: t.TempDir()})
		f.of(dense(20, 0))
		s := f.server(0)
		if err := s.takeTurn(t.Context()); err != nil { // as one who receives a gradient
			t.Fatal(err)
		}
		var copying sync.WaitGroup
		copying.Go(func() {
			if err := s.checkpoint(t.Context(),
				&wire.ControlRequest{Cut: 1, Target: new(ledger.Ledger).Append(nil)}); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		if r := s.Report(); r.Number != 0 {
			t.Errorf("while another has the turn: %+v", r)
		}
		s.yieldTurn()
		copying.Wait()
		if r := s.Report(); r.Phase < custody.Copied {
			t.Errorf("afterwards: %+v", r)
		}
	})
}

// A server that begins with a checkpoint continues bit for bit as its writer: how far a step of
// Adam goes depends on how many there were before.
func TestCheckpointKeepsTheStep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		f := newFleet(t, 1, ServerConfig{Optimizer: optim.Config{Name: optim.Adam, LearningRate: 0.5},
			CheckpointDir: t.TempDir()})
		a := f.client(0, dense(20, 0))
		f.init(a, filled(20, 10))
		push := func(c *Client, n int64) []float32 {
			f.push(c, filled(20, 1/float32(n+1)), Gradient{Versions: Versions{n}, Epoch: 1, Task: 1,
				From: 4 * n, To: 4*n + 4, Of: 100})
			values, _ := f.pull(c, PullOptions{})
			return values
		}
		for n := range int64(3) {
			push(a, n)
		}
		c := f.commit(1)
		goesOn := push(a, 3)
		f.restart(f.base(c))
		want(t, push(f.client(1, f.layout), 3), goesOn)
	})
}
