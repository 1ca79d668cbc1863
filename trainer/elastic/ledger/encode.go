package ledger

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// Append appends the ledger to b, as varints and little-endian words of 64 bits:
//
//	number of settled epochs
//	if they have records of tasks of unknown length:  0 · the number of these records
//	for each other epoch:  its number · how many words · how many parts · the words
//	  for each part:       task number less that of the part before · records
func (l *Ledger) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(l.settled))
	if l.counted > 0 {
		b = binary.AppendUvarint(b, 0)
		b = binary.AppendUvarint(b, uint64(l.counted))
	}
	for _, n := range l.Epochs() {
		e := l.open[n]
		b = binary.AppendUvarint(b, uint64(n))
		b = binary.AppendUvarint(b, uint64(len(e.whole)))
		b = binary.AppendUvarint(b, uint64(len(e.parts)))
		for _, word := range e.whole {
			b = binary.LittleEndian.AppendUint64(b, word)
		}
		before := 0
		for _, number := range slices.Sorted(maps.Keys(e.parts)) {
			b = binary.AppendUvarint(b, uint64(number-before))
			b = binary.AppendUvarint(b, uint64(e.parts[number]))
			before = number
		}
	}
	return b
}

// errCut is returned for bytes that end too early, or hold a number that is out of its range.
var errCut = errors.New("it is cut short, or damaged")

// Parse reads a ledger, which must fill all of b.
func Parse(b []byte) (Ledger, error) {
	r := reader{b}
	l := Ledger{}
	err := l.parse(&r)
	if err != nil {
		return Ledger{}, fmt.Errorf("parse ledger: %w", err)
	}
	return l, nil
}

func (l *Ledger) parse(r *reader) error {
	settled, err := r.number(math.MaxInt32)
	if err != nil {
		return err
	}
	l.settled = settled
	if settled > 0 && len(r.rest) > 0 && r.rest[0] == 0 {
		r.rest = r.rest[1:]
		counted, err := r.number(math.MaxInt64)
		if err != nil {
			return err
		}
		if counted == 0 {
			return fmt.Errorf("%d epochs are settled, and have 0 counted records", settled)
		}
		l.counted = int64(counted)
	}
	for before := settled; len(r.rest) > 0; {
		n, err := r.number(math.MaxInt32)
		if err != nil {
			return err
		}
		if n <= before {
			return fmt.Errorf("epoch %d follows epoch %d", n, before)
		}
		before = n
		e, err := r.epoch()
		if err != nil {
			return fmt.Errorf("epoch %d: %w", n, err)
		}
		l.epoch(n)
		l.open[n] = e
	}
	return nil
}

// reader reads numbers from the front of rest.
type reader struct{ rest []byte }

// number reads a number that is at most most.
func (r *reader) number(most int64) (int, error) {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > uint64(most) {
		return 0, errCut
	}
	r.rest = r.rest[n:]
	return int(v), nil
}

func (r *reader) epoch() (*open, error) {
	words, err := r.number(MaxTasks / 64)
	if err != nil {
		return nil, err
	}
	parts, err := r.number(MaxTasks)
	if err != nil {
		return nil, err
	}
	if len(r.rest) < 8*words || len(r.rest)-8*words < 2*parts {
		return nil, errCut
	}
	if words+parts == 0 {
		return nil, errors.New("nothing is had of it")
	}
	e := &open{whole: make([]uint64, words), parts: make(map[int]int64, parts)}
	for i := range e.whole {
		e.whole[i] = binary.LittleEndian.Uint64(r.rest[8*i:])
	}
	r.rest = r.rest[8*words:]
	if words > 0 && e.whole[words-1] == 0 {
		return nil, errors.New("its last word is empty")
	}
	return e, r.parts(e, parts)
}

func (r *reader) parts(e *open, n int) error {
	number := 0
	for i := range n {
		step, err := r.number(MaxTasks)
		if err != nil {
			return err
		}
		records, err := r.number(math.MaxInt64)
		if err != nil {
			return err
		}
		number += step
		if i > 0 && step == 0 || number >= MaxTasks || records == 0 || e.has(number) {
			return fmt.Errorf("an impossible part: %d records of task %d", records, number)
		}
		e.parts[number] = int64(records)
	}
	return nil
}

// MarshalText writes the ledger as [Ledger.Append] does, in base 64.
func (l Ledger) MarshalText() ([]byte, error) {
	return base64.StdEncoding.AppendEncode(nil, l.Append(nil)), nil
}

// UnmarshalText reads what MarshalText has written.
func (l *Ledger) UnmarshalText(text []byte) error {
	b, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return fmt.Errorf("parse ledger: %w", err)
	}
	*l, err = Parse(b)
	return err
}
