package tensorboard

import "slices"

// backlogLimit is the number of bytes that wait for a file at most.
const backlogLimit = 1 << 20

// backlog holds encoded events that are in no file yet.
type backlog struct {
	waiting []encoded
	size    int // bytes
	limit   int
	// lost counts the events that were dropped because of the limit.
	lost int
}

type encoded struct {
	bytes []byte
	start bool
}

// add appends events. Above the limit it drops the oldest ones, but no start: without it the curves
// would show a state that was rolled back.
func (b *backlog) add(events []Event) {
	for _, e := range events {
		bytes := Encode(nil, e)
		b.waiting = append(b.waiting, encoded{bytes, e.Start})
		b.size += len(bytes)
	}
	for b.size > b.limit {
		// of starts alone the last one says enough
		oldest := max(0, slices.IndexFunc(b.waiting, func(e encoded) bool { return !e.start }))
		b.size -= len(b.waiting[oldest].bytes)
		b.waiting = slices.Delete(b.waiting, oldest, oldest+1)
		b.lost++
	}
}

// starts reports whether a start waits: the next master must find it.
func (b *backlog) starts() bool {
	return slices.ContainsFunc(b.waiting, func(e encoded) bool { return e.start })
}

// bytes returns all of it for a file.
func (b *backlog) bytes() (all []byte) {
	for _, e := range b.waiting {
		all = append(all, e.bytes...)
	}
	return all
}

// clear forgets what was written.
func (b *backlog) clear() { *b = backlog{limit: b.limit} }
