package worker

import (
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
)

func offerGen() *rapid.Generator[offer] {
	return rapid.Custom(func(t *rapid.T) offer {
		return offer{
			task: ledger.Task{Epoch: rapid.IntRange(1, 2).Draw(t, "epoch"),
				Number: rapid.IntRange(0, 12).Draw(t, "number")},
			of: 1 << 41, from: rapid.Int64Range(0, 1<<40).Draw(t, "from"),
			records: rapid.Int64Range(1, 100).Draw(t, "records"),
		}
	})
}

func headerGen(at rendezvous.Position) *rapid.Generator[header] {
	return rapid.Custom(func(t *rapid.T) header {
		return header{
			at: at, recall: rapid.Bool().Draw(t, "recall"),
			flush: rapid.Int64Range(0, 5).Draw(t, "flush"), release: rapid.Int64Range(0, 1<<40).Draw(t, "release"),
			offers: rapid.SliceOfN(offerGen(), 0, maxOffers).Draw(t, "offers"),
		}
	})
}

func TestHeaderSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := headerGen(rendezvous.Position{Beginning: rapid.Int64Range(0, 1<<40).Draw(t, "beginning"),
			Round: rapid.Int64Range(0, 1<<40).Draw(t, "round")}).Draw(t, "header")
		got, err := parseHeader(h.appendTo(nil))
		if err != nil || got.at != h.at || got.recall != h.recall || got.flush != h.flush ||
			got.release != h.release || !slices.Equal(got.offers, h.offers) {
			t.Fatalf("%+v, %v, want %+v", got, err, h)
		}
	})
}

// Encoding a parsed header gives the same bytes.
func FuzzHeader(f *testing.F) {
	f.Add(header{at: rendezvous.Position{Beginning: 3, Round: 7}, recall: true, flush: 1, release: 50,
		offers: []offer{{task: ledger.Task{Epoch: 2, Number: 3}, of: 512, from: 64, records: 64}}}.appendTo(nil))
	f.Add([]byte{2})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHeader(b)
		if err != nil {
			return
		}
		if again, err := parseHeader(h.appendTo(nil)); err != nil || !reflect.DeepEqual(again, h) {
			t.Fatalf("%+v, %v, want %+v", again, err, h)
		}
	})
}

func FuzzPosition(f *testing.F) {
	s := state{position: position{at: rendezvous.Position{Beginning: 2, Round: 9}, version: 3,
		records: 64, snapshotVersion: 2, flushed: 1}}
	s.ledger.Add(ledger.Task{Epoch: 1, Number: 4}, 64, 512)
	f.Add(s.appendPosition(nil))
	f.Add([]byte{0, 0, 0, 0, 0, 126})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, had, err := parsePosition(b)
		if err != nil {
			return
		}
		s := state{position: p, ledger: had}
		again, same, err := parsePosition(s.appendPosition(nil))
		if err != nil || again != p || !reflect.DeepEqual(same, had) {
			t.Fatalf("%+v %v, %v, want %+v %v", again, same, err, p, had)
		}
	})
}

// A round takes exactly what is needed, from each rank its first records, and as evenly as
// minibatches can be shared.
func TestAgreement(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		headers := rapid.SliceOfN(headerGen(rendezvous.Position{Beginning: 1, Round: 3}), 1, 6).Draw(t, "headers")
		need := rapid.Int64Range(0, 600).Draw(t, "need")
		a, err := agree(headers, need)
		if err != nil {
			t.Fatal(err)
		}
		var offered, taken int64
		recall, flush := false, int64(0)
		// the only rank that gives records of a task
		of := make(map[ledger.Task]int)
		for rank, h := range headers {
			for i, o := range h.offers {
				if first, ok := of[o.task]; ok && first != rank {
					h.offers = h.offers[:i]
					break
				}
				of[o.task] = rank
			}
			if len(a.takes[rank]) > len(h.offers) {
				t.Errorf("rank %d gives %d minibatches, and may %d of %+v", rank, len(a.takes[rank]),
					len(h.offers), headers)
			}
			headers[rank] = h
			recall = recall || h.recall
			flush = max(flush, h.flush)
			for i, o := range h.offers {
				offered += o.records
				if i >= len(a.takes[rank]) {
					continue
				}
				n := a.takes[rank][i]
				if taken += n; n <= 0 || n > o.records {
					t.Errorf("rank %d gives %d of %d records", rank, n, o.records)
				}
				if n < o.records && i < len(a.takes[rank])-1 {
					t.Errorf("rank %d leaves a gap in minibatch %d", rank, i)
				}
			}
		}
		want := offered
		if need > 0 {
			want = min(offered, need)
		}
		if recall {
			want = 0
		}
		if taken != want || a.records != want {
			t.Errorf("%d records are taken and %d announced, of %d, %d needed", taken, a.records, offered, need)
		}
		if a.recall != recall || a.flush != flush || a.release != headers[0].release {
			t.Errorf("%+v of %+v", a, headers)
		}
		for rank, h := range headers {
			for other := range headers {
				if more := len(a.takes[other]) - len(a.takes[rank]); !recall && more > 1 &&
					len(a.takes[rank]) < len(h.offers) {
					t.Errorf("rank %d gives %d minibatches more than rank %d, which has others", other, more, rank)
				}
			}
		}
	})
}

// If an update needs fewer records than the ranks have, each rank has its turn.
func TestRanksTakeTurns(t *testing.T) {
	const ranks, need = 3, 4
	var took [ranks]int64
	for round := range int64(ranks) {
		headers := make([]header, ranks)
		for rank := range headers {
			headers[rank] = header{at: rendezvous.Position{Beginning: 1, Round: round},
				offers: []offer{{task: ledger.Task{Epoch: 1, Number: rank}, of: need, records: need}}}
		}
		a, err := agree(headers, need)
		if err != nil {
			t.Fatal(err)
		}
		for rank, takes := range a.takes {
			for _, n := range takes {
				took[rank] += n
			}
		}
	}
	if want := [ranks]int64{need, need, need}; took != want {
		t.Errorf("the ranks gave %v records, want %v", took, want)
	}
}

func TestRanksOutOfStep(t *testing.T) {
	if _, err := agree([]header{{at: rendezvous.Position{Round: 3}},
		{at: rendezvous.Position{Round: 4}}}, 0); err == nil {
		t.Error("ranks at different rounds agree")
	}
	if _, err := agree([]header{{at: rendezvous.Position{Beginning: 1, Round: 3}},
		{at: rendezvous.Position{Beginning: 2, Round: 3}}}, 0); err == nil {
		t.Error("ranks of different models agree")
	}
}
