package journal

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/book"
	"github.com/elasticdl/elasticdl/trainer/elastic/goodput"
)

// Limits of a journal.
const (
	// Most is the largest number of entries.
	Most = 1000
	// MostBytes is the largest size of all entries as JSON.
	MostBytes = 96 << 10
)

// Journal holds what has happened to a job. The zero value is that of a new job.
type Journal struct {
	// oldest first
	entries []sized
	// bytes of the entries by kind, and of all
	bytes map[Kind]int
	all   int

	totals     Totals
	conditions []Condition
	last       int64 // number of the newest entry
	brief      bool  // see [Snapshot.Brief]
}

// sized is an entry with its size in bytes.
type sized struct {
	Entry
	bytes int
}

// Add appends an entry, at the given time, and returns the entry that is kept.
func (j *Journal) Add(e Entry, now time.Time) Entry {
	j.last++
	e.N, e.UnixMs = j.last, now.UnixMilli()
	e.Metrics = bounded(e.Metrics)
	e.Text, e.Ranks = brief(e.Text), few(e.Ranks)
	j.totals.count(e)
	j.append(e)
	return e
}

// bounded returns the metrics that JSON can hold, up to [MostMetrics]; nil if there are none.
func bounded(all map[string]float64) map[string]float64 {
	kept := make(map[string]float64)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v := all[name]
		if math.IsNaN(v) || math.IsInf(v, 0) || len(name) > MostName {
			continue
		}
		if kept[name] = v; len(kept) == MostMetrics {
			break
		}
	}
	if len(kept) == 0 {
		return nil
	}
	return kept
}

// few returns the first ranks, as many as an entry may have.
func few(ranks []int) []int { return slices.Clone(ranks[:min(len(ranks), MostRanks)]) }

// append puts an entry at the end, and drops others if there are too many.
func (j *Journal) append(e Entry) {
	if j.bytes == nil {
		j.bytes = make(map[Kind]int)
	}
	s := sized{e, e.size()}
	j.entries = append(j.entries, s)
	j.bytes[e.Kind] += s.bytes
	j.all += s.bytes
	for len(j.entries) > Most || j.all > MostBytes {
		j.drop()
	}
}

// drop removes the oldest entry of the kind that takes the most bytes.
func (j *Journal) drop() {
	most := j.entries[0].Kind
	for _, e := range j.entries {
		if j.bytes[e.Kind] > j.bytes[most] {
			most = e.Kind
		}
	}
	at := slices.IndexFunc(j.entries, func(e sized) bool { return e.Kind == most })
	dropped := j.entries[at].bytes
	j.entries = slices.Delete(j.entries, at, at+1)
	j.bytes[most] -= dropped
	j.all -= dropped
}

// Entries returns the entries with numbers above a number, oldest first.
func (j *Journal) Entries(above int64) []Entry {
	at, _ := slices.BinarySearchFunc(j.entries, above+1, func(e sized, n int64) int { return cmp.Compare(e.N, n) })
	all := make([]Entry, 0, len(j.entries)-at)
	for _, e := range j.entries[at:] {
		all = append(all, e.Entry)
	}
	return all
}

// Incidents returns the newest incidents, oldest first, up to a number. If there are more, the
// oldest of the kind with the most are left out.
func (j *Journal) Incidents(most int) []Entry {
	var all []Entry
	number := make(map[Kind]int)
	for _, e := range j.entries {
		if e.Kind.Incident() {
			all = append(all, e.Entry)
			number[e.Kind]++
		}
	}
	for len(all) > most {
		kind := all[0].Kind
		for _, e := range all {
			if number[e.Kind] > number[kind] {
				kind = e.Kind
			}
		}
		at := slices.IndexFunc(all, func(e Entry) bool { return e.Kind == kind })
		all = slices.Delete(all, at, at+1)
		number[kind]--
	}
	return all
}

// Newest returns the newest entry that satisfies is; false if there is none.
func (j *Journal) Newest(is func(Entry) bool) (Entry, bool) {
	for _, e := range slices.Backward(j.entries) {
		if is(e.Entry) {
			return e.Entry, true
		}
	}
	return Entry{}, false
}

// Last returns the number of the newest entry; 0: there was none.
func (j *Journal) Last() int64 { return j.last }

// Over reports whether the job has ended, and was not resumed since.
func (j *Journal) Over() bool {
	e, ok := j.Newest(func(e Entry) bool { return e.Kind.End() || e.Kind == JobStarted || e.Kind == JobContinued })
	return ok && e.Kind.End()
}

// Totals returns the totals.
func (j *Journal) Totals() Totals { return j.totals.clone() }

// Snapshot is a journal as a record of the master has it.
type Snapshot struct {
	Last       int64       `json:"last"`
	Entries    []Entry     `json:"entries,omitempty"`
	Totals     Totals      `json:"totals,omitzero"`
	Conditions []Condition `json:"conditions,omitempty"`
	// Brief reports that all but the newest entries were left out, for lack of room.
	Brief bool `json:"brief,omitempty"`
	// Book is the account of the records that were credited. A journal does not keep it: the caller
	// of [Journal.Snapshot] sets it.
	Book book.Saved `json:"book,omitzero"`
	// Goodput is the account of the workers' time. A [Journal] does not have it: the master keeps
	// it, and it lives as long as the journal.
	Goodput goodput.Snapshot `json:"goodput,omitzero"`
}

// Snapshot returns what [Restore] takes.
func (j *Journal) Snapshot() Snapshot {
	return Snapshot{Brief: j.brief, Last: j.last, Entries: j.Entries(0), Totals: j.totals.clone(),
		Conditions: slices.Clone(j.conditions)}
}

// Full reports whether others may have been dropped, because the entries take all of the room, or
// all but that of a few.
func (s Snapshot) Full() bool {
	bytes := 0
	for _, e := range s.Entries {
		bytes += e.size()
	}
	return len(s.Entries) >= Most-10 || bytes > MostBytes-2*MostText
}

// Restore returns the journal of a snapshot. Entries that are out of order, too long or too many
// are put right: a snapshot may have been written by another version.
func Restore(s Snapshot) Journal {
	j := Journal{brief: s.Brief, totals: s.Totals.clone(), conditions: slices.Clone(s.Conditions)}
	for _, e := range s.Entries {
		if e.N <= j.last {
			continue
		}
		j.last = e.N
		e.Text, e.Metrics, e.Ranks = brief(e.Text), bounded(e.Metrics), few(e.Ranks)
		j.append(e)
	}
	j.last = max(j.last, s.Last)
	return j
}
