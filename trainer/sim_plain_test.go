package trainer_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/run/tcpstore"
)

// An unmodified script keeps no state. It trains a number of steps, all ranks together, and its
// rank 0 saves a checkpoint now and then. It begins with the newest complete one.

// plain acts as an unmodified script.
type plain struct {
	// number of steps, and of those after which rank 0 saves
	steps, every int
	// what a save takes
	save time.Duration
	// a checkpoint is written in place, and is complete at the end; else it appears then
	inPlace bool
	// it saves when SIGTERM arrives
	saves bool
	// exit code after that
	code int
	// all wait at the end until rank 0 has saved
	barrier bool
}

// shelved is a checkpoint of an unmodified script.
type shelved struct {
	step int
	// of the world that has written it
	generation int64
}

// storeClient is a client of the store of a world, as torch.distributed has it.
type storeClient struct {
	*tcpstore.Client
	ctx context.Context
}

func (c storeClient) set(key, value string) error { return c.Set(c.ctx, key, []byte(value)) }

func (c storeClient) get(key string) (string, error) {
	value, err := c.Get(c.ctx, key)
	return string(value), err
}

// torchLimit limits the ranks' wait for each other while their group is made.
const torchLimit = 30 * time.Minute

// crashed is the exit code of a script that ends with an exception.
const crashed = 1

// runPlain runs an unmodified script, and returns its exit code.
func (w *programWatch) runPlain(p *fakeProcess) int {
	s := w.plain
	p.sleep(p.within(10*time.Millisecond, w.startup+20*time.Millisecond))
	if s.saves {
		p.handle()
	}
	g := newGroup(p, p.rank, p.size)
	if err := w.initialize(p, g); err != nil {
		return crashed
	}
	step, err := w.begin(p, g)
	if err != nil {
		return crashed
	}
	for ; step < s.steps; step++ {
		if p.isTermed() {
			if p.rank == 0 {
				w.save(p, step)
			}
			return s.code
		}
		p.sleep(w.step)
		all, err := g.gather(binary.BigEndian.AppendUint64(nil, uint64(step)))
		if err != nil {
			return crashed
		}
		for r, row := range all {
			if other := binary.BigEndian.Uint64(row); other != uint64(step) {
				w.note(func() { w.complain("%v makes step %d, and rank %d step %d", p, step, r, other) })
			}
		}
		w.spring(update, p.host.name)
		if step == s.steps*2/3 {
			w.spring(lastSteps, p.host.name)
		}
		if p.rank == 0 && (step+1)%s.every == 0 {
			w.save(p, step+1)
		}
	}
	w.completed(p)
	if p.rank == 0 {
		w.save(p, s.steps)
	}
	rest := w.tail
	if s.barrier {
		if err := g.barrier(); err != nil {
			return crashed
		}
		if p.position.FirstRank == 0 { // the other workers have more to do
			rest /= 16
		}
	}
	p.sleep(p.within(time.Millisecond, rest+2*time.Millisecond))
	if p.isTermed() {
		return s.code
	}
	return 0
}

// initialize makes the process group.
func (w *programWatch) initialize(p *fakeProcess, g *processGroup) error {
	ctx, cancel := context.WithTimeout(p.ctx, torchLimit)
	defer cancel()
	address := fmt.Sprintf("%s:%d", p.position.MasterAddr, p.position.MasterPort)
	conn, err := p.network.dial(p.host)(ctx, address)
	p.stand()
	if err != nil {
		return err
	}
	client, err := tcpstore.NewClient(ctx, conn)
	p.stand()
	if err != nil {
		return err
	}
	context.AfterFunc(p.ctx, func() { client.Close() })
	store := storeClient{client, ctx}
	if before, err := client.Check(ctx, fmt.Sprint("address/", p.rank)); err == nil && before {
		w.note(func() { w.complain("the store of %v has keys already", p) })
	}
	return g.connect(store, torchLimit)
}

// begin returns the step to begin with, that of the newest complete checkpoint.
func (w *programWatch) begin(p *fakeProcess, g *processGroup) (int, error) {
	var own []byte
	if p.rank == 0 {
		p.sleep(w.plain.save / 4)
		step := 0
		w.note(func() { step = w.load(p) })
		own = binary.BigEndian.AppendUint64(nil, uint64(step))
	}
	body, err := g.spread(0, own)
	if err != nil {
		return 0, err
	}
	return int(binary.BigEndian.Uint64(body)), nil
}

// load returns the step of the newest complete checkpoint. The mutex is held.
func (w *programWatch) load(p *fakeProcess) int {
	step := 0
	for _, c := range w.shelf {
		step = max(step, c.step)
	}
	if step < w.resumedAt {
		w.complain("%v resumes from step %d, and the program had resumed from %d", p, step, w.resumedAt)
	}
	w.resumedAt, w.resumedIn = step, max(w.resumedIn, p.generation)
	return step
}

// save writes a checkpoint.
func (w *programWatch) save(p *fakeProcess, step int) {
	w.spring(saving, p.host.name)
	if w.plain.inPlace {
		w.note(func() { w.touched = time.Now() })
	}
	p.sleep(w.plain.save)
	w.note(func() {
		w.touched = time.Now()
		if w.resumedIn > p.generation && step > w.resumedAt && !w.hit[p.host.name] {
			w.complain("%v of world %d has saved step %d, and world %d had resumed from step %d", p, p.generation, step,
				w.resumedIn, w.resumedAt)
		}
		w.shelf = append(w.shelf, shelved{step, p.generation})
	})
}
