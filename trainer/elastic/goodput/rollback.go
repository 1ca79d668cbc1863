package goodput

import (
	"cmp"
	"slices"
)

// MostMarks is the largest number of marks.
const MostMarks = 64

// mark is the training until the model had a progress.
type mark struct{ progress, training int64 }

// certain returns the training that no report can turn into lost time.
func (a *Account) certain() int64 { return a.Training() - a.open }

// Records reports whether the progress that was noted last is in records.
func (a *Account) Records() bool { return a.records }

// note notes the progress of the model. If it is less than before, the training since then is lost.
func (a *Account) note(progress int64, records bool) {
	switch {
	case progress < 0:
		return
	case records != a.records:
		a.records, a.marks = records, nil
	case progress < a.progress:
		if lost := a.certain() - a.trained(progress); lost > 0 {
			a.lost[Rollback] += lost
		}
		a.marks = slices.DeleteFunc(a.marks, func(m mark) bool { return m.progress > progress })
	case progress == a.progress && len(a.marks) > 0:
		return
	}
	a.progress = progress
	a.mark(mark{progress, a.certain()})
}

// mark adds a mark, in place of one of the same progress. If there are too many, every second of
// them is dropped, but the first and the newest.
func (a *Account) mark(m mark) {
	if n := len(a.marks); n > 0 && a.marks[n-1].progress == m.progress {
		a.marks = a.marks[:n-1]
	}
	a.marks = append(a.marks, m)
	if len(a.marks) <= MostMarks {
		return
	}
	kept := a.marks[:0]
	for i, m := range a.marks {
		if i%2 == 0 || i == len(a.marks)-1 {
			kept = append(kept, m)
		}
	}
	a.marks = kept
}

// trained returns how much training there was at a progress.
func (a *Account) trained(progress int64) int64 {
	at, exact := slices.BinarySearchFunc(a.marks, progress, func(m mark, p int64) int {
		return cmp.Compare(m.progress, p)
	})
	switch {
	case exact:
		return a.marks[at].training
	case at == len(a.marks):
		return a.certain()
	}
	var before mark
	if at > 0 {
		before = a.marks[at-1]
	}
	after := a.marks[at]
	share := float64(progress-before.progress) / float64(after.progress-before.progress)
	return before.training + int64(share*float64(after.training-before.training))
}
