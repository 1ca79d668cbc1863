package verdict

import (
	"fmt"
	"time"
)

const (
	// mostSame limits how often in a row a program ends in the same way, without progress in
	// between.
	mostSame = 3
	// mostSameKept is the limit if other processes have kept their state: the program as a whole
	// has not ended.
	mostSameKept = 10
)

// Signature describes how a program ended in one world. Two ends with the same signature, in worlds
// that lasted about as long, are the same: the program does it to itself, even if a signal was the
// means.
type Signature struct {
	Signal  int    `json:"signal,omitempty"`
	Code    int    `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
	// digest of what the processes wrote
	Output string `json:"output,omitempty"`
	// time of the newest checkpoint file, in Unix milliseconds
	Checkpoint int64 `json:"checkpoint,omitempty"`
}

// Repeats counts how often in a row a program has ended in the same way without progress. Progress
// is a completed round, a new checkpoint file, or other output than that of the time before.
type Repeats struct {
	Last  Signature `json:"last"`
	Count int       `json:"count,omitempty"`
	// how long the last world lasted; negative: not known
	Ran time.Duration `json:"ran,omitempty"`
}

// add returns the count after another end, of a world that lasted for some time.
func (r Repeats) add(s Signature, ran time.Duration) Repeats {
	if r.Count == 0 || r.Last != s || !alike(r.Ran, ran) {
		return Repeats{s, 1, ran}
	}
	return Repeats{s, r.Count + 1, ran}
}

// alike reports whether two worlds lasted about as long: a program that ends itself does so at the
// same point, and a kill comes at any time.
func alike(a, b time.Duration) bool {
	const slack = 2 * time.Second // a busy machine delays starts
	return min(a, b) < 0 || a <= 2*b+slack && b <= 2*a+slack
}

// SameEnd is the error of a job whose program ends in the same way again and again.
type SameEnd struct {
	Times int
	// how the last one ended
	How string
}

func (e *SameEnd) Error() string {
	return fmt.Sprintf("the program ended in the same way %d times in a row, without a completed "+
		"round, a new checkpoint file or other output in between: %s", e.Times, e.How)
}
