package stacks

import "slices"

const (
	// MostLooks is the number of looks that [Looks] counts at most.
	MostLooks = 8
	// apart is the least processor time between two looks, in hundredths of a second. In less, a
	// thread that works may have come nowhere.
	apart = 2
	// rests is the number of times in a row that a thread is found waiting, and has used no
	// processor, after which it counts as one that waits.
	rests = 10
)

// Looks compares further looks at the main thread of one process with a first one. A thread that
// wants a processor and gets none stands still for another reason than one that hangs, so a look
// counts only if the thread has run since the look before.
type Looks struct {
	// Same is the number of looks that have found the thread where the first one did; MostLooks if
	// it waits, as then further looks would find the same.
	Same int
	// Moved reports whether one has found it elsewhere.
	Moved bool

	first []Frame
	// processor time at the last look, and at the last call of Due
	looked, seen int64
	waits        int
}

// Take takes a look: what faulthandler has written, and the processor time of the main thread until
// then, in hundredths of a second. It reports whether another look can add something.
func (l *Looks) Take(text string, ticks int64) bool {
	main, ok := Parse(text).Main()
	switch {
	case !ok:
		return false
	case l.first == nil:
		l.first = main.Frames
	case !slices.Equal(l.first, main.Frames):
		l.Moved = true
	case ticks-l.looked >= apart:
		l.Same++
	}
	l.looked, l.seen = ticks, ticks
	return !l.Moved && l.Same < MostLooks
}

// Due returns whether the next look is due, by the letter of the thread's state and its processor
// time, and whether one may be due later.
func (l *Looks) Due(state byte, ticks int64) (due, later bool) {
	if state == 'R' || ticks > l.seen {
		l.waits = 0
	} else {
		l.waits++
	}
	l.seen = ticks
	switch {
	case state == 0:
		return false, false
	case ticks-l.looked >= apart:
		return true, true
	case l.waits >= rests:
		l.Same = MostLooks
		return false, false
	}
	return false, true
}
