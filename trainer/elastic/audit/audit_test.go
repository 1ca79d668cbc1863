package audit

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/book"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// work is a job that trains in a test: a queue, whose workers are lost and whose model returns,
// with its book and its journal as a master keeps them.
type work struct {
	shards  []task.Shard
	policy  task.Policy
	queue   *task.Queue
	book    *book.Book
	journal journal.Journal
	now     time.Time
	// of the tasks, if they are unknown to the queue; nil: they are known
	lengths []int64
	saved   ledger.Ledger
	// what is in the model
	model ledger.Ledger
}

func newWork(t *rapid.T) *work {
	w := &work{now: time.UnixMilli(1000)}
	for i := range rapid.IntRange(1, 3).Draw(t, "shards") {
		w.shards = append(w.shards, task.Shard{Name: fmt.Sprint("shard-", i),
			Count: rapid.Int64Range(1, 12).Draw(t, "records")})
	}
	w.policy = task.Policy{RecordsPerTask: rapid.Int64Range(2, 5).Draw(t, "each"),
		Epochs: rapid.IntRange(1, 4).Draw(t, "epochs"), Shuffle: rapid.Bool().Draw(t, "shuffle"), Seed: 3}
	if rapid.Bool().Draw(t, "limited") {
		w.policy.MaxRecords = rapid.Int64Range(1, 60).Draw(t, "most")
	}
	if rapid.Bool().Draw(t, "unsized") {
		w.policy.RecordsPerTask, w.policy.MaxRecords, w.policy.Unsized = 1, 0, true
		for _, s := range w.shards {
			w.lengths = append(w.lengths, rapid.SliceOfN(rapid.Int64Range(0, 4), int(s.Count), int(s.Count)).
				Draw(t, "lengths")...)
		}
	}
	var err error
	if w.queue, err = task.New(w.shards, w.policy); err != nil {
		t.Fatal(err)
	}
	w.book = book.New(book.Saved{})
	if err := w.book.Plan(w.shards, w.policy); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *work) add(e journal.Entry) {
	w.now = w.now.Add(time.Second)
	w.journal.Add(e, w.now)
}

// train takes a lease, and trains on all or some of its records; it returns false if there is none.
func (w *work) train(t *rapid.T) bool {
	l, ok := w.queue.Lease(1, w.now)
	if !ok {
		return false
	}
	most := l.Records()
	if l.Unsized {
		most = w.lengths[l.Number] + 1
	}
	done := rapid.Int64Range(l.Done, most).Draw(t, "done")
	if l.Unsized && done == most {
		done = ledger.End + most - 1
		ensure(t, w.queue.Touch(l.ID, 1, done, w.now))
	}
	if l.Whole(done) {
		ensure(t, w.queue.Done(l.ID, 1, w.now))
	} else {
		ensure(t, w.queue.Touch(l.ID, 1, done, w.now))
		w.queue.Lose(1, nil, "", w.now)
	}
	w.model.Add(ledger.Task{Epoch: l.Epoch, Number: l.Number}, done, l.Records())
	w.enter()
	return true
}

func (w *work) enter() {
	for _, c := range w.queue.Credits() {
		w.book.Enter(c)
	}
}

// back returns the model to the checkpoint.
func (w *work) back(t *rapid.T) {
	w.enter()
	ensure(t, w.queue.Rewind(&w.saved))
	w.book.Set(&w.saved)
	w.model = w.saved.Clone()
	w.add(journal.Entry{Kind: journal.TrainingRolledBack, Epoch: w.book.Finished()})
}

// step does something; it returns false when the training is done.
func (w *work) step(t *rapid.T) bool {
	switch rapid.IntRange(0, 15).Draw(t, "step") {
	case 0:
		w.saved = w.model.Clone()
		return true
	case 1:
		w.back(t)
		return true
	case 2:
		w.add(journal.Entry{Kind: journal.PodLost, Pod: "worker-1", Cause: "killed"})
		return true
	}
	return w.train(t) || w.next()
}

// next ends the epoch, as a master does; it returns false if there is no other.
func (w *work) next() bool {
	if w.queue.TrainingDone() {
		return false
	}
	stats := w.queue.Stats()
	if w.book.Finished() < stats.Epoch {
		w.book.Finish()
		w.add(journal.Entry{Kind: journal.EpochFinished, Epoch: stats.Epoch, Records: stats.EpochDone})
	}
	w.model.Settle(stats.Epoch)
	return w.queue.NextEpoch()
}

// evidence returns what the job has left, through JSON.
func (w *work) evidence(t *rapid.T, state string) Evidence {
	s := w.journal.Snapshot()
	s.Book = w.book.Save()
	text, err := json.Marshal(s)
	ensure(t, err)
	var again journal.Snapshot
	ensure(t, json.Unmarshal(text, &again))
	return Evidence{State: state, Journal: again}
}

func ensure(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

// run trains for some steps; done reports whether all is trained.
func (w *work) run(t *rapid.T, steps int) (done bool) {
	for range steps {
		if !w.step(t) {
			return true
		}
	}
	return false
}

// finish trains to the end, without more rollbacks.
func (w *work) finish(t *rapid.T) {
	for {
		for w.train(t) {
		}
		if !w.next() {
			return
		}
	}
}

// Law 2: a job whose records were each credited once is proved, at each moment and at its end.
func TestSoundJobsAreProved(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWork(t)
		done := w.run(t, rapid.IntRange(0, 60).Draw(t, "steps"))
		if r := Check(w.evidence(t, "Running")); r.Verdict != Proved || r.Applied != w.queue.Stats().Done {
			t.Fatalf("while it runs: %+v, want %d records", r, w.queue.Stats().Done)
		}
		if !done {
			r := Check(w.evidence(t, "Stopped"))
			_, left := w.queue.Remaining()
			all := left == 0 && w.queue.Stats().Epoch == w.policy.Epochs // although it has not ended
			if w.lengths == nil {
				all = r.Applied == w.queue.Stats().Total
			}
			if all && r.Verdict != Proved || !all && (r.Verdict != Incomplete || len(r.Findings) == 0) {
				t.Fatalf("stopped: %+v", r)
			}
			w.finish(t)
		}
		r := Check(w.evidence(t, "Succeeded"))
		want := w.queue.Stats().Total
		if w.lengths != nil {
			for _, n := range w.lengths {
				want += n * int64(w.policy.Epochs)
			}
		}
		if r.Verdict != Proved || r.Applied != want || r.Finished != r.Epochs || r.Open != 0 {
			t.Fatalf("at the end: %+v, want %d records", r, want)
		}
	})
}

// Law 1: evidence with one entry that is missing, doubled or changed is not proved, and the finding
// names it.
func TestSpoiledEvidenceIsNamed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWork(t)
		w.run(t, rapid.IntRange(0, 40).Draw(t, "steps"))
		if len(w.book.Lines) == 0 {
			for w.train(t) {
			}
			if w.next() {
				w.run(t, 3)
			}
		}
		if len(w.book.Lines) == 0 {
			t.Skip("the model has returned to the beginning")
		}
		e := w.evidence(t, "Running")
		spoilers := []func(*rapid.T, *Evidence) string{line, lineTwice, sum, end, endTwice, endChanged}
		if l := e.Journal.Book.Open.Ledger; l != nil && l.Highest(e.Journal.Book.Open.Epoch) >= 0 {
			spoilers = append(spoilers, part, partMore)
		}
		i := rapid.IntRange(0, len(spoilers)-1).Draw(t, "spoiler")
		want := spoilers[i](t, &e)
		r := Check(e)
		if r.Verdict != Violated || !slices.ContainsFunc(r.Findings, func(f Finding) bool {
			return strings.Contains(f.Text, want)
		}) {
			t.Fatalf("spoiler %d: %+v, want %q", i, r, want)
		}
	})
}

// line removes the line of an epoch from the ledger.
func line(t *rapid.T, e *Evidence) string {
	b := &e.Journal.Book
	i := rapid.IntRange(0, len(b.Lines)-1).Draw(t, "line")
	epoch := b.Lines[i].First
	b.Lines = slices.Delete(b.Lines, i, i+1)
	switch {
	case i < len(b.Lines):
		return fmt.Sprintf("epoch %d: missing from the ledger", epoch)
	case b.Open.Epoch > 0:
		return fmt.Sprintf("epoch %d: open in the ledger, and %d epochs are finished", epoch+1, epoch-1)
	}
	return fmt.Sprintf("epoch %d: its end is in the journal, and not in the ledger", epoch)
}

// lineTwice doubles the line of an epoch.
func lineTwice(t *rapid.T, e *Evidence) string {
	b := &e.Journal.Book
	i := rapid.IntRange(0, len(b.Lines)-1).Draw(t, "line")
	b.Lines = slices.Insert(b.Lines, i, b.Lines[i])
	return fmt.Sprintf("epoch %d: twice in the ledger", b.Lines[i].First)
}

// sum adds a task to the sum of an epoch, or takes it out.
func sum(t *rapid.T, e *Evidence) string {
	b := &e.Journal.Book
	i := rapid.IntRange(0, len(b.Lines)-1).Draw(t, "line")
	l := &b.Lines[i]
	layout, err := b.Data.Layout()
	ensure(t, err)
	var tasks []task.Task
	for one := range layout.Of(l.First) {
		tasks = append(tasks, one)
	}
	one := rapid.SampledFrom(tasks).Draw(t, "task")
	of := book.Factor(l.First) * book.Sum(one.Number, 0, one.Records())
	where := fmt.Sprintf("epoch %d, records [%d, %d) of %s: ", l.First, one.Start, one.End, one.Shard)
	if one.Unsized {
		where = fmt.Sprintf("epoch %d, shard %d from record 0 to its end: ", l.First, one.Number)
	}
	if rapid.Bool().Draw(t, "twice") {
		l.Sum, l.Records = l.Sum+of, l.Records+ledger.Count(one.Records())
		return where + "applied twice"
	}
	l.Sum, l.Records = l.Sum-of, l.Records-ledger.Count(one.Records())
	return where + "missing: never applied"
}

// part removes the entry of a task from the open epoch, partMore adds one.
func part(t *rapid.T, e *Evidence) string { return parts(t, e, true) }

func partMore(t *rapid.T, e *Evidence) string { return parts(t, e, false) }

func parts(t *rapid.T, e *Evidence, remove bool) string {
	p := &e.Journal.Book.Open
	layout, err := e.Journal.Book.Data.Layout()
	ensure(t, err)
	var all, with []task.Task
	for one := range layout.Of(p.Epoch) {
		all = append(all, one)
		if n, whole := p.Ledger.Progress(ledger.Task{Epoch: p.Epoch, Number: one.Number}); (n > 0 || whole) == remove {
			with = append(with, one)
		}
	}
	if len(with) == 0 { // all tasks have an entry
		return sum(t, e)
	}
	spoiled := rapid.SampledFrom(with).Draw(t, "task")
	var l ledger.Ledger
	l.Settle(p.Epoch - 1)
	for _, one := range all {
		at := ledger.Task{Epoch: p.Epoch, Number: one.Number}
		n := one.In(p.Ledger)
		if one.Number == spoiled.Number && remove {
			continue
		} else if one.Number == spoiled.Number {
			n = one.Records()
		}
		l.Add(at, n, one.Records())
	}
	p.Ledger = &l
	text := "in the ledger, and not credited"
	if remove {
		text = "credited, and missing from the ledger"
	}
	return text
}

// ends returns the places of the ends of epochs that were not undone.
func ends(e *Evidence) (at []int) {
	for i, entry := range e.Journal.Entries {
		switch {
		case entry.Kind == journal.EpochFinished:
			at = append(at, i)
		case entry.Kind == journal.TrainingRolledBack:
			at = slices.DeleteFunc(at, func(i int) bool { return e.Journal.Entries[i].Epoch > entry.Epoch })
		}
	}
	return at
}

// end removes the end of an epoch from the journal, endTwice doubles it, endChanged changes it.
func end(t *rapid.T, e *Evidence) string {
	// the model has returned to the end of an epoch that had not ended yet
	if len(ends(e)) == 0 {
		return line(t, e)
	}
	i := rapid.SampledFrom(ends(e)).Draw(t, "end")
	epoch := e.Journal.Entries[i].Epoch
	e.Journal.Entries = slices.Delete(e.Journal.Entries, i, i+1)
	return fmt.Sprintf("epoch %d: its end is missing from the journal", epoch)
}

func endTwice(t *rapid.T, e *Evidence) string {
	if len(ends(e)) == 0 {
		return lineTwice(t, e)
	}
	i := rapid.SampledFrom(ends(e)).Draw(t, "end")
	e.Journal.Entries = slices.Insert(e.Journal.Entries, i, e.Journal.Entries[i])
	return fmt.Sprintf("epoch %d: its end is twice in the journal", e.Journal.Entries[i].Epoch)
}

func endChanged(t *rapid.T, e *Evidence) string {
	if len(ends(e)) == 0 {
		return lineTwice(t, e)
	}
	i := rapid.SampledFrom(ends(e)).Draw(t, "end")
	e.Journal.Entries[i].Records++
	return fmt.Sprintf("epoch %d: its end in the journal has %d records", e.Journal.Entries[i].Epoch,
		e.Journal.Entries[i].Records)
}

// A fault that the book noted while the job trained is named by its records.
func TestFaultsAreNamed(t *testing.T) {
	for _, c := range []struct {
		credits []task.Credit
		shuffle bool
		want    string
		// the tasks are shards of unknown length
		unsized bool
	}{
		{[]task.Credit{{To: 3}, {From: 1, To: 4}}, false, "epoch 1, records [101, 103) of a: applied twice", false},
		{[]task.Credit{{To: 3}, {From: 1, To: ledger.End + 4}}, true,
			"epoch 1, records [1, 3) of shard 0: applied twice", true},
		{[]task.Credit{{To: ledger.End + 4}, {To: 2}}, false,
			"epoch 1, records [0, 2) of shard 0: applied twice", true},
		{[]task.Credit{{To: 2}, {From: 5, To: 6}}, true, "epoch 1, records [2, 5) of shard 0: missing: never applied",
			true},
		{[]task.Credit{{To: 3}, {From: 1, To: 4}}, true,
			"epoch 1, 2 of the records [100, 104) of a: numbers 1 to 2 of their order: applied twice", false},
		{[]task.Credit{{To: 2}, {From: 3, To: 4}}, false, "epoch 1, records [102, 103) of a: missing: never applied",
			false},
		{[]task.Credit{{Task: ledger.Task{Number: 2}, To: 1}, {Task: ledger.Task{Number: 2}, To: 1}}, true,
			"epoch 1, records [0, 1) of b: applied twice", false},
	} {
		b := book.New(book.Saved{})
		shards := []task.Shard{{Name: "a", Start: 100, Count: 6}, {Name: "b", Count: 1}}
		p := task.Policy{RecordsPerTask: 4, Epochs: 1, Shuffle: c.shuffle}
		if c.unsized {
			p.RecordsPerTask, p.Unsized = 1, true
		}
		if err := b.Plan(shards, p); err != nil {
			t.Fatal(err)
		}
		for _, credit := range c.credits {
			credit.Task.Epoch = 1
			b.Enter(credit)
		}
		r := Check(Evidence{State: "Running", Journal: journal.Snapshot{Book: b.Save()}})
		if r.Verdict != Violated || len(r.Findings) != 1 || r.Findings[0].Text != c.want {
			t.Errorf("%+v, want %q", r.Findings, c.want)
		}
	}
}

// Without an account nothing is proved, and the reason says why.
func TestNothingToProve(t *testing.T) {
	for _, c := range []struct {
		e    Evidence
		want string
	}{
		{Evidence{State: "Succeeded", Program: true}, "this program does not use elasticdl's data package: " +
			"nothing can be proved about its records"},
		{Evidence{State: "Running", Program: true}, "this program has not declared a data set"},
		{Evidence{State: "Running"}, "the master has written no record yet"},
		{Evidence{State: "Succeeded", Journal: journal.Snapshot{Last: 3}}, "this job has trained on no records"},
		{Evidence{Journal: journal.Snapshot{Book: book.Saved{Data: &book.Data{Tasks: -1}}}},
			"the account of the job is damaged"},
	} {
		if r := Check(c.e); r.Verdict != Unprovable || !strings.Contains(r.Reason, c.want) {
			t.Errorf("%+v: %+v, want %q", c.e, r, c.want)
		}
	}
}

// A journal that was full has dropped its oldest entries; from what is left nothing false is
// concluded, and a missing entry is still named.
func TestDroppedEntries(t *testing.T) {
	b := book.New(book.Saved{})
	if err := b.Plan([]task.Shard{{Name: "a", Count: 1}}, task.Policy{RecordsPerTask: 1}); err != nil {
		t.Fatal(err)
	}
	var j journal.Journal
	for epoch := 1; epoch <= 3*journal.Most; epoch++ {
		b.Enter(task.Credit{Task: ledger.Task{Epoch: epoch}, To: 1})
		b.Finish()
		j.Add(journal.Entry{Kind: journal.EpochFinished, Epoch: epoch, Records: 1}, time.UnixMilli(int64(epoch)))
	}
	s := j.Snapshot()
	s.Book = b.Save()
	if r := Check(Evidence{State: "Running", Journal: s}); r.Verdict != Proved || r.Finished != 3*journal.Most {
		t.Fatalf("%+v", r)
	}
	brief := s
	brief.Brief, brief.Entries = true, s.Entries[len(s.Entries)-50:]
	if r := Check(Evidence{State: "Running", Journal: brief}); r.Verdict != Proved {
		t.Fatalf("a brief one: %+v", r)
	}
	if brief.Brief = false; Check(Evidence{State: "Running", Journal: brief}).Verdict != Violated {
		t.Fatal("entries are missing although there is room for them")
	}
	gone := s.Entries[500].Epoch
	s.Entries = slices.Delete(slices.Clone(s.Entries), 500, 501)
	r := Check(Evidence{State: "Running", Journal: s})
	want := fmt.Sprintf("epoch %d: its end is missing from the journal", gone)
	if r.Verdict != Violated || r.Findings[0].Text != want {
		t.Fatalf("%+v, want %q", r.Findings, want)
	}
}

// A model may return to the end of an epoch that had not ended. Where an entry is missing as well,
// its epoch is named, and not the one that never had any.
func TestMissingEndAmongRollbacks(t *testing.T) {
	b := book.New(book.Saved{})
	if err := b.Plan([]task.Shard{{Name: "a", Count: 1}}, task.Policy{RecordsPerTask: 1, Epochs: 3}); err != nil {
		t.Fatal(err)
	}
	var j journal.Journal
	now := time.UnixMilli(1)
	var model ledger.Ledger
	model.Add(ledger.Task{Epoch: 1}, 1, 1)
	b.Set(&model)
	j.Add(journal.Entry{Kind: journal.TrainingRolledBack, Epoch: b.Finished()}, now)
	b.Enter(task.Credit{Task: ledger.Task{Epoch: 2}, To: 1})
	b.Finish()
	j.Add(journal.Entry{Kind: journal.EpochFinished, Epoch: 2, Records: 1}, now)
	model.Add(ledger.Task{Epoch: 2}, 1, 1)
	b.Set(&model)
	j.Add(journal.Entry{Kind: journal.TrainingRolledBack, Epoch: b.Finished()}, now)
	s := j.Snapshot()
	s.Book = b.Save()
	if r := Check(Evidence{State: "Running", Journal: s}); r.Verdict != Proved || r.Finished != 2 {
		t.Fatalf("%+v", r)
	}
	s.Entries = slices.Delete(slices.Clone(s.Entries), 1, 2)
	r := Check(Evidence{State: "Running", Journal: s})
	want := "epoch 2: its end is missing from the journal"
	if r.Verdict != Violated || r.Findings[0].Text != want {
		t.Errorf("%+v, want %q", r, want)
	}
}

// Any evidence is judged, and no more findings are listed than Law 3 allows.
func FuzzCheck(f *testing.F) {
	f.Add("Running", `{"last":3,"entries":[{"n":2,"kind":"EpochFinished","epoch":1,"records":5}],"book":{"data":`+
		`{"shards":[{"name":"a","records":5,"times":1}],"tasks":2,"records":5,"sum":"1","perTask":4,"epochs":2},`+
		`"epochs":[{"first":1,"last":1,"records":5,"sum":"7"}],"open":{"epoch":2,"records":4,"sum":"3"}}}`)
	f.Add("Stopped", `{"book":{"data":{"shards":[{"name":"a","records":2,"times":1}],"tasks":2,"sum":"`+
		fmt.Sprint(book.Sum(0, 0, ledger.End)+book.Sum(1, 0, ledger.End))+`","perTask":1,"epochs":2,"unsized":true},`+
		`"open":{"epoch":1,"records":4,"sum":"3","ledger":"AAEAAQAE"}}}`)
	f.Fuzz(func(t *testing.T, state, text string) {
		e := Evidence{State: state}
		if json.Unmarshal([]byte(text), &e.Journal) != nil {
			return
		}
		if d := e.Journal.Book.Data; d != nil && (d.Tasks > 1000 || d.Epochs > 1000) {
			return // it takes long
		}
		r := Check(e)
		if r.Verdict == "" || len(r.Findings) > MostFindings || (r.Verdict == Violated) != (len(r.Findings) > 0) &&
			r.Verdict != Incomplete {
			t.Errorf("%+v", r)
		}
	})
}
