package laws

import (
	"cmp"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// model is a model in memory.
type model struct {
	claim, job string
	layout     param.Layout
	values     []float32
	slots      [][]float32
}

func newModel(trainable, state, slots int, seed float32) model {
	m := model{layout: param.Layout{{Name: "w", Shape: []int{trainable}, Trainable: true}}}
	if state > 0 {
		m.layout = append(m.layout, param.Variable{Name: "mean", Shape: []int{state}, Momentum: 0.9})
	}
	fill := func(n int) []float32 {
		all := make([]float32, n)
		for i := range all {
			seed++
			all[i] = seed
		}
		return all
	}
	m.values = fill(trainable + state)
	for range slots {
		m.slots = append(m.slots, fill(trainable))
	}
	return m
}

// part returns the elements of one of n holders.
func (m model) part(i, n int) checkpoint.Part {
	span := param.Partition(len(m.values), n)[i]
	p := checkpoint.Part{Start: span.Start, Values: m.values[span.Start:span.End]}
	for _, slot := range m.slots {
		p.Slots = append(p.Slots, slot[min(span.Start, len(slot)):min(span.End, len(slot))])
	}
	return p
}

// roomFor returns a part with room for the same as p.
func roomFor(p checkpoint.Part) checkpoint.Part {
	e := checkpoint.Part{Start: p.Start, Values: make([]float32, len(p.Values))}
	for _, slot := range p.Slots {
		e.Slots = append(e.Slots, make([]float32, len(slot)))
	}
	return e
}

// write commits the model as n holders.
func (m model) write(d checkpoint.Dir, number int64, n int) error {
	c := m.record(number)
	for i := range n {
		p := m.part(i, n)
		if len(p.Values) == 0 {
			continue
		}
		s, err := checkpoint.WriteShard(d, c.Name(), checkpoint.ShardFile(i, n), p)
		if err != nil {
			return err
		}
		c.Shards = append(c.Shards, s)
	}
	return d.WriteCommit(c)
}

func (m model) record(number int64) checkpoint.Commit {
	c := checkpoint.Commit{
		Format: checkpoint.Format, Number: number, Claim: m.claim, Time: time.Unix(1e9, 0).UTC(),
		JobName: "test", Job: cmp.Or(m.job, "uid"), ModelDef: "mnist", ModelGeneration: 1, Version: 10 * number,
		Layout: checkpoint.VariablesOf(m.layout), Optimizer: "Adam", Slots: len(m.slots), Records: 7,
		Evaluations: []checkpoint.Evaluation{{Version: 3, Metrics: map[string]float64{"accuracy": 0.5}}},
	}
	c.Ledger.Settle(1)
	c.Ledger.Add(ledger.Task{Epoch: 2, Number: 4}, 3, 5)
	return c
}

// holds asserts that n holders read the model from a commit.
func (m model) holds(t interface{ Fatalf(string, ...any) }, d checkpoint.Dir, c *checkpoint.Commit, n int) {
	for i := range n {
		want := m.part(i, n)
		got := roomFor(want)
		if err := d.Restore(c, got); err != nil {
			t.Fatalf("read part %d of %d: %v", i, n, err)
		}
		if !slices.Equal(got.Values, want.Values) || !slices.EqualFunc(got.Slots, want.Slots, slices.Equal[[]float32]) {
			t.Fatalf("part %d of %d is %v, want %v", i, n, got, want)
		}
	}
}
