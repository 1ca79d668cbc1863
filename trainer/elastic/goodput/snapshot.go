package goodput

import "slices"

// Snapshot is an account as a record of the master has it.
type Snapshot struct {
	// At is the time of the last observation in Unix milliseconds; 0: the job rests.
	At      int64  `json:"at,omitempty"`
	Asked   int    `json:"asked,omitempty"`
	Missing string `json:"missing,omitempty"`
	// in worker-milliseconds
	Wanted int64            `json:"wanted"`
	Lost   map[string]int64 `json:"lost,omitempty"`

	// Hung is as in [View].
	Hung int64 `json:"hung,omitempty"`

	Progress int64 `json:"progress,omitempty"`
	// Records: the progress is in records, otherwise in updates.
	Records bool `json:"records,omitempty"`
	// Marks are pairs of progress and training.
	Marks [][2]int64 `json:"marks,omitempty"`
	// Workers have, each: number, cause, open, away, other, whether it measures, steps, and the
	// parts of [Spent] from Compute on.
	Workers [][]int64 `json:"workers,omitempty"`
}

// fields is the number of values of a worker in a snapshot.
const fields = 13

// Snapshot returns what [Restore] takes.
func (a *Account) Snapshot() Snapshot {
	s := Snapshot{At: a.at, Asked: a.asked, Missing: a.missing.String(), Wanted: a.wanted,
		Hung: a.hung, Progress: a.progress, Records: a.records}
	for c, ms := range a.lost {
		if ms > 0 {
			if s.Lost == nil {
				s.Lost = make(map[string]int64)
			}
			s.Lost[Cause(c).String()] = ms
		}
	}
	for _, m := range a.marks {
		s.Marks = append(s.Marks, [2]int64{m.progress, m.training})
	}
	for _, number := range a.all() {
		w := a.slots[number]
		measured := int64(0)
		if w.last.Measured {
			measured = 1
		}
		l := w.last
		s.Workers = append(s.Workers, []int64{int64(number), int64(w.cause), w.open, w.unseen, w.other, measured,
			l.Steps, l.Compute, l.Data, l.Servers, l.Peers, l.Checkpoint, l.Forming})
	}
	return s
}

// Totals returns the snapshot of a job that has ended. The time since At does not count.
func (s Snapshot) Totals() Snapshot {
	s.At, s.Workers = 0, nil
	return s
}

// Brief returns the snapshot without its workers, for a record that would be too large. The time
// until the next observation is then of the cause master away.
func (s Snapshot) Brief() Snapshot {
	s.Missing, s.Workers = MasterAway.String(), nil
	return s
}

// Restore returns the account of a snapshot. Impossible values are left out: a snapshot may have
// been written by another version.
func Restore(s Snapshot) Account {
	a := Account{at: max(0, s.At), asked: max(0, s.Asked), wanted: max(0, s.Wanted),
		hung: max(0, s.Hung), progress: max(0, s.Progress), records: s.Records}
	if c, ok := Parse(s.Missing); ok && c != Training {
		a.missing = c
	} else {
		a.missing = Failed
	}
	left := a.wanted
	for _, c := range Causes() {
		a.lost[c] = min(max(0, s.Lost[c.String()]), left)
		left -= a.lost[c]
	}
	for _, m := range s.Marks {
		n := len(a.marks)
		if m[0] < 0 || m[1] < 0 || m[0] > a.progress || n > 0 && m[0] <= a.marks[n-1].progress || n == MostMarks {
			continue
		}
		a.marks = append(a.marks, mark{m[0], m[1]})
	}
	a.slots = make(map[int]*slot)
	for _, w := range s.Workers {
		if len(w) != fields || len(a.slots) == a.asked || slices.Min(w) < 0 || w[1] >= int64(causes) {
			continue
		}
		l := &slot{former: true, cause: Cause(w[1]), open: min(w[2], a.certain()), other: w[4],
			last: Spent{Measured: w[5] > 0, Steps: w[6], Compute: w[7], Data: w[8], Servers: w[9], Peers: w[10],
				Checkpoint: w[11], Forming: w[12]}}
		l.unseen = min(w[3], l.open)
		if before := a.slots[int(w[0])]; before != nil {
			continue
		}
		a.open += l.open
		a.slots[int(w[0])] = l
	}
	return a
}
