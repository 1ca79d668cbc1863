package master

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// ringJob returns a change of start's job: it has a ring, and what change changes.
func ringJob(change func(*Config)) func(*Config) {
	return func(c *Config) {
		c.Job.Strategy, c.Job.NumPS = job.AllReduce, 0
		if change != nil {
			change(c)
		}
	}
}

// peer is a worker of a ring. The test sends the messages on its stream; its heartbeats are sent
// automatically.
type peer struct {
	w     *world
	index int
	// breaks the stream
	close context.CancelFunc
	send  func(*wire.Arrival) error

	mu    sync.Mutex
	words []*wire.Assembly
	// the error that ended the stream, nil while it lasts
	err   error
	beat  *wire.HeartbeatRequest
	reply *wire.HeartbeatReply
	// it sends no heartbeats
	mute bool
	// the test answers orders to flush
	idle bool
}

// startRing runs a job of a ring, and returns its workers, all of which have arrived at the
// rendezvous.
func startRing(t *testing.T, change func(*Config)) (*world, []*peer) {
	t.Helper()
	w := start(t, ringJob(change))
	var peers []*peer
	for i := range w.pods.running() {
		peers = append(peers, w.peer(i))
	}
	return w, peers
}

// peer starts a worker of a ring, which arrives without a state.
func (w *world) peer(index int) *peer {
	w.Helper()
	p := w.stranger(index)
	p.arrive(&wire.Arrival{Round: -1})
	go p.live(w.MasterClient)
	return p
}

// stranger opens the stream of a worker, and sends nothing on it.
func (w *world) stranger(index int) *peer {
	w.Helper()
	ctx, cancel := context.WithCancel(w.Context())
	stream, err := w.Rendezvous(speak.As(ctx, worker(index)))
	if err != nil {
		w.Fatal(err)
	}
	p := &peer{
		w: w, index: index, close: cancel, send: stream.Send,
		beat: &wire.HeartbeatRequest{Role: wire.Role_WORKER, Index: int32(index)},
	}
	go func() {
		for {
			word, err := stream.Recv()
			if err == nil && word.GetFlush() > 0 && p.flushes(word.GetFlush()) {
				continue
			}
			p.mu.Lock()
			if p.err = err; err == nil {
				p.words = append(p.words, word)
			}
			p.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	w.Cleanup(cancel)
	return p
}

// flushes reports to the master that an order to flush is done, and returns true; or false, if the
// test answers such orders.
func (p *peer) flushes(number int64) bool {
	p.mu.Lock()
	if p.idle {
		p.mu.Unlock()
		return false
	}
	p.beat.Flushed = number
	beat := proto.Clone(p.beat).(*wire.HeartbeatRequest)
	p.mu.Unlock()
	p.w.Heartbeat(p.w.Context(), beat)
	return true
}

// live sends heartbeats until the master answers that it does not know the worker.
func (p *peer) live(client wire.MasterClient) {
	ticker := time.NewTicker(500 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-p.w.Context().Done():
			return
		}
		p.mu.Lock()
		beat, mute := proto.Clone(p.beat).(*wire.HeartbeatRequest), p.mute
		p.mu.Unlock()
		if mute {
			continue
		}
		reply, err := client.Heartbeat(p.w.Context(), beat)
		if err != nil || reply.Unknown {
			return
		}
		p.mu.Lock()
		p.reply = reply
		p.mu.Unlock()
	}
}

// says applies a change to the heartbeats of p, and sends one.
func (p *peer) says(change func(*wire.HeartbeatRequest)) *wire.HeartbeatReply {
	p.w.Helper()
	p.mu.Lock()
	change(p.beat)
	beat := proto.Clone(p.beat).(*wire.HeartbeatRequest)
	p.mu.Unlock()
	return p.w.beat(beat)
}

func (p *peer) silent(mute bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = mute
}

func (p *peer) arrive(a *wire.Arrival) {
	p.w.Helper()
	a.Worker, a.Address = int32(p.index), fmt.Sprintf("worker-%d:1", p.index)
	if err := p.send(a); err != nil {
		p.w.Fatalf("worker %d arrives: %v", p.index, err)
	}
	synctest.Wait()
}

// had returns a ledger. Each pair is a lease of the first epoch, whose tasks are leased in their
// order and have 4 records, and the number of its records in the ledger.
func had(pairs ...int64) []byte {
	var l ledger.Ledger
	for i := 0; i < len(pairs); i += 2 {
		l.Add(ledger.Task{Epoch: 1, Number: int(pairs[i]) - 1}, pairs[i+1], 4)
	}
	return l.Append(nil)
}

// back sends an arrival from a generation with the state of a round and the ledger that [had] makes
// of pairs.
func (p *peer) back(generation, round int64, pairs ...int64) {
	p.w.Helper()
	p.arrive(&wire.Arrival{Generation: generation, Round: round, Version: round, Ledger: had(pairs...)})
}

// word returns the next message of the master, nil if there is none.
func (p *peer) word() *wire.Assembly {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.words) == 0 {
		return nil
	}
	word := p.words[0]
	p.words = p.words[1:]
	return word
}

// hears compares the messages of the master with texts like "world 2.3 [0 2] from [0]" (id,
// generation, workers and sources), "recall 3", "recall 3 now" and "flush 1".
func (p *peer) hears(want ...string) {
	p.w.Helper()
	for _, text := range want {
		if got := say(p.word()); got != text {
			p.w.Fatalf("worker %d hears %q, want %q", p.index, got, text)
		}
	}
	if more := p.word(); more != nil {
		p.w.Fatalf("worker %d hears %q after %q", p.index, say(more), want)
	}
}

func say(a *wire.Assembly) string {
	if a == nil {
		return "nothing"
	}
	switch word := a.Word.(type) {
	case *wire.Assembly_World:
		var workers []int32
		for _, m := range word.World.Members {
			workers = append(workers, m.Worker)
		}
		return fmt.Sprintf("world %d.%d %v from %v", word.World.Id, word.World.Generation, workers, word.World.Sources)
	case *wire.Assembly_Recall:
		text := fmt.Sprintf("recall %d", word.Recall.Generation)
		if word.Recall.Now {
			text += " now"
		}
		return text
	case *wire.Assembly_Flush:
		return fmt.Sprintf("flush %d", word.Flush)
	case *wire.Assembly_Cut:
		return fmt.Sprintf("cut %d", word.Cut.Number)
	}
	return fmt.Sprint(a)
}

// ended returns the error with which the stream has ended, nil while it lasts.
func (p *peer) ended() error {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// of returns a change of heartbeats: that many records of a lease are done.
func of(lease *wire.Task, done int64) func(*wire.HeartbeatRequest) {
	return func(r *wire.HeartbeatRequest) {
		r.Leases = []*wire.LeaseProgress{{Lease: lease.Lease, Done: done}}
	}
}

// look returns the status of the job.
func (w *world) look() *wire.JobStatus {
	w.Helper()
	synctest.Wait()
	s, err := w.Status(w.Context(), &wire.StatusRequest{})
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// wantTask checks the first record of a training task, and how many of its records are done.
func (w *world) wantTask(got *wire.Task, start, done int64) {
	w.Helper()
	if got.Kind != wire.TaskKind_TRAINING || got.Start != start || got.Done != done {
		w.Fatalf("%v, want records from %d, %d done", got, start, done)
	}
}

// finish ends the workers of a ring whose job is done, and waits for the end of the job.
func (w *world) finish(peers ...*peer) {
	w.Helper()
	for _, p := range peers {
		p.close()
		w.pods.end(pod.ID{Role: pod.Worker, Index: p.index}, pod.Exit{})
	}
	w.leave()
	if w.err != nil {
		w.Fatal(w.err)
	}
}
