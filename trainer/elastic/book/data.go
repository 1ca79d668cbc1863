package book

import (
	"fmt"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// Limits of saved books.
const (
	// MostShards is the largest number of groups of shards.
	MostShards = 512
	// MostNamed is the largest number of shards that are saved with their names.
	MostNamed = 100
	// MostLines is the largest number of lines of finished epochs.
	MostLines = 64
	// MostFaults is the largest number of faults.
	MostFaults = 50
	// MostOpen is the largest size of the saved stretches of the open epoch, in bytes.
	MostOpen = 64 << 10
)

// Data describes the records of a job: its shards, and how they are cut into tasks.
type Data struct {
	Shards []Shards `json:"shards,omitempty"`
	// Cut reports that there were too many groups of shards to keep. Then Shards is nil.
	Cut bool `json:"cut,omitempty"`
	// Tasks and Records count those of an epoch, and Sum is that of all its stretches, without the
	// factor of the epoch. Records is 0 if the lengths of the tasks are unknown.
	Tasks   int    `json:"tasks"`
	Records int64  `json:"records"`
	Sum     uint64 `json:"sum,string"`
	Policy
}

// Policy has the fields of a [task.Policy] that an account needs.
type Policy struct {
	PerTask    int64  `json:"perTask"`
	Epochs     int    `json:"epochs,omitempty"`
	Shuffle    bool   `json:"shuffle,omitempty"`
	Seed       uint64 `json:"seed,string,omitempty"`
	MaxRecords int64  `json:"maxRecords,omitempty"`
	Unsized    bool   `json:"unsized,omitempty"`
}

// Shards is one shard, or consecutive ones of the same size.
type Shards struct {
	// Name is empty if there are too many shards to name them.
	Name    string `json:"name,omitempty"`
	Start   int64  `json:"start,omitempty"`
	Records int64  `json:"records"`
	// Times is the number of shards.
	Times int `json:"times"`
}

// NewData returns the data of shards, of which those without records are left out.
func NewData(shards []task.Shard, p task.Policy) (Data, *task.Layout, error) {
	l, err := task.NewLayout(shards, p)
	if err != nil {
		return Data{}, nil, err
	}
	d := Data{Tasks: l.Tasks(), Records: l.Records(),
		Policy: Policy{p.RecordsPerTask, p.Epochs, p.Shuffle, p.Seed, p.MaxRecords, p.Unsized}}
	d.Sum = wholeSum(shards, p.RecordsPerTask, p.Unsized)
	for _, s := range shards {
		if s.Count == 0 {
			continue
		}
		g := Shards{s.Name, s.Start, s.Count, 1}
		if len(shards) > MostNamed {
			g.Name = ""
		}
		if n := len(d.Shards) - 1; n >= 0 && g.Name == "" {
			if last := &d.Shards[n]; last.Start == g.Start && last.Records == g.Records {
				last.Times++
				continue
			}
		}
		d.Shards = append(d.Shards, g)
	}
	if len(d.Shards) > MostShards {
		d.Shards, d.Cut = nil, true
	}
	return d, l, nil
}

// Layout returns the layout of saved data; nil if there were too many groups of shards to keep.
func (d Data) Layout() (*task.Layout, error) {
	if d.Cut {
		return nil, nil
	}
	if d.Tasks < 0 || d.Tasks > ledger.MaxTasks || d.Records < 0 {
		return nil, fmt.Errorf("impossible data: %d tasks of %d records", d.Tasks, d.Records)
	}
	var shards []task.Shard
	for _, g := range d.Shards {
		if g.Records < 1 || g.Start < 0 || g.Times < 1 || g.Times > d.Tasks-len(shards) {
			return nil, fmt.Errorf("impossible shards: %d of %d records from %d", g.Times, g.Records, g.Start)
		}
		for range g.Times {
			shards = append(shards, task.Shard{Name: g.Name, Start: g.Start, Count: g.Records})
		}
	}
	l, err := task.NewLayout(shards, task.Policy{RecordsPerTask: d.PerTask, Epochs: d.Epochs, Shuffle: d.Shuffle,
		Seed: d.Seed, MaxRecords: d.MaxRecords, Unsized: d.Unsized})
	if err != nil {
		return nil, err
	}
	if l.Tasks() != d.Tasks || l.Records() != d.Records || wholeSum(shards, d.PerTask, d.Unsized) != d.Sum {
		return nil, fmt.Errorf("the shards have %d tasks of %d records, and the data %d of %d, or another sum",
			l.Tasks(), l.Records(), d.Tasks, d.Records)
	}
	return l, nil
}

// same reports whether the data has the same shards, cut in the same way. The number of epochs may
// be another one.
func (d Data) same(o Data) bool {
	return slices.Equal(d.Shards, o.Shards) && d.Sum == o.Sum && d.Records == o.Records && d.PerTask == o.PerTask &&
		d.Shuffle == o.Shuffle && d.Seed == o.Seed && d.Unsized == o.Unsized
}
