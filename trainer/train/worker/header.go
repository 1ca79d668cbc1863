package worker

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
)

// maxOffers is the largest number of minibatches that a rank brings to one round.
const maxOffers = 4

// header is the message of each rank to all others at the beginning of a round.
type header struct {
	// of its state: the same on every rank
	at rendezvous.Position
	// this rank was recalled to the rendezvous; then all ranks go, at once
	recall bool
	// the newest flush order that it knows
	flush int64
	// the master needs no snapshot up to this version (rank 0's counts)
	release int64
	offers  []offer
}

// offer is a minibatch: the records of a task, in their order, that begin at from.
type offer struct {
	task          ledger.Task
	of            int64 // records of the task
	from, records int64
}

func (h header) appendTo(b []byte) []byte {
	var flags uint64
	if h.recall {
		flags = 1
	}
	b = binary.AppendUvarint(b, flags)
	for _, v := range []int64{h.at.Beginning, h.at.Round, h.flush, h.release, int64(len(h.offers))} {
		b = binary.AppendVarint(b, v)
	}
	for _, o := range h.offers {
		for _, v := range []int64{int64(o.task.Epoch), int64(o.task.Number), o.of, o.from, o.records} {
			b = binary.AppendVarint(b, v)
		}
	}
	return b
}

// parseHeader decodes what appendTo has encoded. Trailing bytes are an error.
func parseHeader(b []byte) (header, error) {
	bad := false
	next := func() int64 {
		v, n := binary.Varint(b)
		if n <= 0 || bad {
			bad = true
			return 0
		}
		b = b[n:]
		return v
	}
	flags, n := binary.Uvarint(b)
	if n <= 0 || flags > 1 {
		return header{}, errors.New("parse header: the byte of flags is missing")
	}
	b = b[n:]
	h := header{recall: flags == 1, at: rendezvous.Position{Beginning: next(), Round: next()}, flush: next(),
		release: next()}
	count := next()
	if h.at.Beginning < 0 || h.at.Round < 0 {
		return header{}, fmt.Errorf("parse header: round %d of beginning %d is negative", h.at.Round, h.at.Beginning)
	}
	if bad || count < 0 || count > maxOffers {
		return header{}, fmt.Errorf("parse header: %d offers, want at most %d", count, maxOffers)
	}
	for range count {
		o := offer{task: ledger.Task{Epoch: int(next()), Number: int(next())}, of: next(), from: next(),
			records: next()}
		if bad || o.from < 0 || o.records <= 0 || o.from+o.records < 0 {
			return header{}, errors.New("parse header: an offer without records")
		}
		if o.from+o.records > o.of || o.task.Epoch <= 0 || o.task.Number < 0 || o.task.Number >= ledger.MaxTasks {
			return header{}, fmt.Errorf("parse header: impossible offer %+v", o)
		}
		h.offers = append(h.offers, o)
	}
	if len(b) > 0 {
		return header{}, fmt.Errorf("parse header: %d trailing bytes", len(b))
	}
	return h, nil
}

// agreement is the plan of a round. Each rank computes it from the headers of all ranks, with the
// same result.
type agreement struct {
	// by rank: records of each of its offers that are in the round, a prefix of them
	takes [][]int64
	// by rank: index of the first offer that cannot be taken, as another rank offers its task
	barred []int
	offers [][]offer
	// of all ranks together
	records int64
	recall  bool
	flush   int64
	release int64
}

// bar finds the tasks that two ranks offer. Only the first of these ranks contributes records of
// such a task, whatever the master has leased to whom: no record may be in the state twice.
func bar(headers []header) []int {
	by := make(map[ledger.Task]int)
	barred := make([]int, len(headers))
	for rank, h := range headers {
		barred[rank] = len(h.offers)
		for i, o := range h.offers {
			if first, ok := by[o.task]; ok && first != rank {
				barred[rank] = i
				break
			}
			by[o.task] = rank
		}
	}
	return barred
}

// agree plans a round. It takes the ranks' minibatches in turn, the first ones of each rank first,
// until there are need records; it may take a part of the last minibatch. With need 0 it takes all.
// In each round another rank comes first, so that every rank has its turn when few records are
// needed.
func agree(headers []header, need int64) (agreement, error) {
	a := agreement{takes: make([][]int64, len(headers)), offers: make([][]offer, len(headers)),
		release: headers[0].release, barred: bar(headers)}
	for rank, h := range headers {
		if h.at != headers[0].at {
			return a, fmt.Errorf("rank %d is at round %d since generation %d, rank 0 at round %d since generation %d",
				rank, h.at.Round, h.at.Beginning, headers[0].at.Round, headers[0].at.Beginning)
		}
		a.offers[rank] = h.offers
		a.recall = a.recall || h.recall
		a.flush = max(a.flush, h.flush)
	}
	size := int64(len(headers))
	if a.recall { // newcomers do not wait for another round
		return a, nil
	}
	for i := range maxOffers {
		for turn := range size {
			rank := (headers[0].at.Round + turn) % size
			h := headers[rank]
			if i >= a.barred[rank] || need > 0 && a.records == need {
				continue
			}
			n := h.offers[i].records
			if need > 0 {
				n = min(n, need-a.records)
			}
			a.takes[rank] = append(a.takes[rank], n)
			a.records += n
		}
	}
	return a, nil
}
