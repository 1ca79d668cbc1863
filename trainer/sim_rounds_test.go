package trainer_test

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// dataSet is the records of a job whose script uses the package.
type dataSet struct {
	size, epochs int
	shuffle      bool
	seed         uint64
	// records of a task
	task int
	// of its shards, which the script finds by reading; nil: its tasks have a known length
	lengths []int64
}

// tasks is the number of tasks of an epoch.
func (d dataSet) tasks() int {
	if d.stream() {
		return len(d.lengths)
	}
	return (d.size + d.task - 1) / d.task
}

// stream reports whether the master does not know the lengths of its tasks.
func (d dataSet) stream() bool { return d.lengths != nil }

// declared returns what a process says of it.
func (d dataSet) declared() map[string]any {
	m := map[string]any{"size": d.size, "epochs": d.epochs, "shuffle": d.shuffle, "seed": d.seed,
		"records_per_task": d.task}
	if d.stream() {
		m["size"], m["records_per_task"], m["stream"] = len(d.lengths), 1, true
	}
	return m
}

// start returns the index of a task's first record in an epoch.
func (d dataSet) start(number int) int64 {
	if !d.stream() {
		return int64(number * d.task)
	}
	start := int64(0)
	for _, n := range d.lengths[:number] {
		start += n
	}
	return start
}

// settled returns how many epochs are complete in a state.
func (d dataSet) settled(parts map[int]int64, settled int) int {
	for {
		records, ends := int64(0), 0
		for number := range d.tasks() {
			n := parts[settled*d.tasks()+number]
			records += ledger.Count(n)
			if ledger.Ended(n) {
				ends++
			}
		}
		if records < int64(d.size) || d.stream() && ends < d.tasks() {
			return settled
		}
		settled++
	}
}

// credit is a stretch of records of a task.
type credit struct {
	Epoch, Number int
	First, Last   int64
}

func (c credit) records() int64 { return ledger.Count(c.Last) - ledger.Count(c.First) }

func (c credit) task(d dataSet) int { return c.Epoch*d.tasks() + c.Number }

// lease is records that no other process trains on.
type lease struct {
	ID            int64 `json:"lease"`
	Epoch, Number int
	Start, End    int64
	Done          int64
	Wait, Over    bool

	credited, taken int64
	// of a shard whose length the script finds by reading; -1: no such shard
	length int64
}

// size returns the least count of all its records.
func (l *lease) size() int64 {
	if l.length >= 0 {
		return ledger.End
	}
	return l.End - l.Start
}

// read takes up to n records, and the end of a shard if it has fewer.
func (l *lease) read(n int64) credit {
	c := credit{l.Epoch, l.Number, l.taken, min(l.taken+n, l.End-l.Start)}
	if l.length >= 0 {
		if c.Last = l.taken + n; c.Last > l.length {
			c.Last = ledger.End + l.length
		}
	}
	l.taken = c.Last
	return c
}

// book is the leases of a process, as leases.py has them.
type book struct {
	session *session
	held    []*lease
	// the data set was declared
	declared bool
	// the master has no more
	ended bool
	floor int64
	// records were reported to the agent of which it does not know that all ranks have them
	news bool
}

func (b *book) declare() {
	if b.declared {
		return
	}
	s, d := b.session, b.session.data
	if _, err := s.link.ask("dataset", 0, d.declared()); err != nil {
		s.note(func() {
			// the master may have replaced the worker
			if !s.hit[s.process.host.name] {
				s.complain("%v cannot declare its data set: %v", s.process, err)
			}
		})
		s.process.exits(crashed)
	}
	b.declared = true
}

// ask asks for a lease with records. Nil: there is none now.
func (b *book) ask() *lease {
	s := b.session
	for !b.ended {
		reply, err := s.link.ask("lease", 0, nil)
		if err != nil {
			s.note(func() { s.complain("%v gets no lease: %v", s.process, err) })
			s.process.exits(crashed)
		}
		l := new(lease)
		if err := json.Unmarshal(reply, l); err != nil {
			panic(err)
		}
		if b.ended = l.Over; l.Over {
			s.spring(exhausted, s.process.host.name)
		}
		if l.Over || l.Wait {
			return nil
		}
		l.length = -1
		if s.data.stream() {
			l.length = s.data.lengths[l.Number]
		}
		l.credited = s.Ledger[l.Epoch*s.data.tasks()+l.Number]
		if l.Epoch < s.Settled {
			l.credited = l.size() + max(0, l.length)
		}
		l.taken = l.credited
		if l.credited > l.Done {
			b.had([][2]int64{{l.ID, l.credited}})
		}
		if l.ID >= b.floor && !slices.ContainsFunc(b.held, func(h *lease) bool { return h.ID == l.ID }) {
			b.held = append(b.held, l)
			if l.taken < l.size() {
				return l
			}
		}
	}
	return nil
}

func (b *book) had(progress [][2]int64) {
	if len(progress) > 0 {
		b.session.link.say("had", map[string]any{"leases": progress})
		b.news = true
	}
}

// take takes up to n records.
func (b *book) take(n int64) (total int64, credits []credit) {
	const stretches = 16
	for total < n && len(credits) < stretches {
		var l *lease
		if i := slices.IndexFunc(b.held, func(h *lease) bool { return h.taken < h.size() }); i >= 0 {
			l = b.held[i]
		} else if l = b.ask(); l == nil {
			break
		}
		c := l.read(n - total)
		credits = append(credits, c)
		total += c.records()
	}
	return total, credits
}

// credit notes which records are in the state, and returns the progress of leases.
func (b *book) credit() [][2]int64 {
	progress := [][2]int64{}
	for _, h := range b.held {
		if done := b.session.Ledger[h.Epoch*b.session.data.tasks()+h.Number]; done > h.credited {
			h.credited = done
			progress = append(progress, [2]int64{h.ID, done})
		}
	}
	b.held = slices.DeleteFunc(b.held, func(h *lease) bool { return h.credited >= h.size() })
	return progress
}

// rewind returns records that were taken and are not in the state to their leases.
func (b *book) rewind() {
	b.ended = false
	b.had(b.credit())
	for _, h := range b.held {
		h.credited = min(h.credited, b.session.Ledger[h.Epoch*b.session.data.tasks()+h.Number])
		h.taken = b.session.Ledger[h.Epoch*b.session.data.tasks()+h.Number]
	}
}

// void drops the leases below the floor.
func (b *book) void(floor int64) {
	b.floor = max(b.floor, floor)
	b.held = slices.DeleteFunc(b.held, func(h *lease) bool { return h.ID < b.floor })
}

// header is a rank's message to the others in a round.
type header struct {
	Leave, Stop, Ended bool
	Weight             int64
	Credits            []credit
}

// begin opens a round with the records that this rank brings.
func (s *session) begin(weight int64, credits []credit) ([]header, error) {
	s.mu.Lock()
	own := header{Stop: s.stops, Leave: s.asked >= s.generation, Ended: s.book.ended, Weight: weight, Credits: credits}
	s.mu.Unlock()
	body, _ := json.Marshal(own)
	rows, err := s.group.gather(body)
	if err != nil {
		return nil, s.lostPeer(err)
	}
	all := make([]header, len(rows))
	for r, row := range rows {
		if err := json.Unmarshal(row, &all[r]); err != nil {
			panic(err)
		}
	}
	return all, nil
}

func anyOf(headers []header, is func(header) bool) bool { return slices.ContainsFunc(headers, is) }

func leaves(h header) bool { return h.Leave }
func stops(h header) bool  { return h.Stop }
func open(h header) bool   { return !h.Ended }

// train is the training function of the script.
func (s *session) train() error {
	s.book.declare()
	s.book.rewind()
	for !s.done {
		weight, credits := s.book.take(int64(s.job.MinibatchSize))
		headers, err := s.begin(weight, credits)
		if err != nil {
			return err
		}
		total := int64(0)
		for _, h := range headers {
			total += h.Weight
		}
		if total == 0 {
			s.tell(s.book.takeNews() || s.metRound < s.Round)
			s.enterAll(headers)
			s.book.had(s.book.credit())
			switch {
			case !anyOf(headers, open):
				s.done = true
				return nil
			case anyOf(headers, stops):
				return s.rest()
			}
			if err := s.check(anyOf(headers, leaves)); err != nil {
				return err
			}
			s.process.sleep(20 * time.Millisecond)
			continue
		}
		s.process.sleep(s.step)
		// the gradients
		if _, err := s.group.gather([]byte{1}); err != nil {
			return s.lostPeer(err)
		}
		if err := s.commit(headers, weight, total); err != nil {
			return err
		}
		if s.measure > 0 && s.Round%16 == 0 { // it measures the model on its own, or so
			s.process.sleep(s.measure)
		}
	}
	return nil
}

func (b *book) takeNews() (news bool) {
	news, b.news = b.news, false
	return news
}

// tell tells the agent what follows from a round that all ranks have begun.
func (s *session) tell(news bool) {
	if news || s.met != s.generation {
		s.met, s.metRound = s.generation, s.Round
		s.link.say("met", map[string]any{"formation": s.generation})
	}
	s.mu.Lock()
	asked := s.account
	s.account = false
	s.mu.Unlock()
	if asked {
		s.sayAccount()
	}
}

// commit ends a round: its records are in the state.
func (s *session) commit(headers []header, own, total int64) error {
	s.tell(false)
	s.enterAll(headers)
	s.Round++
	s.note(func() {
		if s.takes(s); s.rank == 0 {
			s.noteRound(s.generation)
		}
	})
	s.spring(update, s.process.host.name)
	leases := s.book.credit()
	s.link.say("round", map[string]any{"formation": s.generation, "round": s.Round, "leases": leases, "loss": 1,
		"records": own, "total": total})
	if s.path != "" && s.rank == 0 && s.every > 0 && s.Round%s.every == 0 {
		s.write()
	}
	if anyOf(headers, stops) {
		return s.rest()
	}
	last := anyOf(headers, leaves)
	s.mu.Lock()
	due := !s.unsaved.IsZero() && (last || !time.Now().Before(s.unsaved))
	s.mu.Unlock()
	if due && s.rank == 0 {
		s.saveEnd(false)
	}
	return s.check(last)
}

// enterAll enters the credits of all ranks in the ledger, and their records in the state.
func (s *session) enterAll(headers []header) {
	var credits []credit
	for _, h := range headers {
		credits = append(credits, h.Credits...)
	}
	slices.SortFunc(credits, func(a, b credit) int {
		return int(int64(a.task(s.data)-b.task(s.data))*1e6 + a.First - b.First)
	})
	for _, c := range credits {
		if c.First != s.Ledger[c.task(s.data)] || c.Epoch < s.Settled {
			s.note(func() { s.complain("%v: %+v follows on %d", s.process, c, s.Ledger[c.task(s.data)]) })
			s.link.say("doubt", map[string]any{"why": "a stretch that does not follow"})
			s.process.exits(codeDoubt)
		}
		s.Ledger[c.task(s.data)] = c.Last
		first := int64(c.Epoch*s.data.size) + s.data.start(c.Number) + c.First
		for i := range c.records() {
			s.Counts[first+i]++
		}
	}
}

// check returns an error if a member is lost, or all were asked to leave after this round.
func (s *session) check(asked bool) error {
	if asked || s.isRecalled() {
		return errWorldChanged
	}
	return nil
}

// rest ends the training between two rounds, as the job stops.
func (s *session) rest() error {
	if s.rank == 0 {
		s.saveEnd(true)
	}
	s.await(time.Time{}, func() bool { return s.recalled >= s.generation })
	return errWorldChanged
}

// saveEnd saves the state before the process is ended.
func (s *session) saveEnd(stopping bool) {
	why := ""
	switch {
	case s.path == "":
		why = "the script declares no checkpoint"
	case s.written != s.Round:
		s.write()
	}
	s.mu.Lock()
	s.unsaved = time.Time{}
	stopping = stopping || s.stops
	s.mu.Unlock()
	if stopping {
		s.link.say("rest", map[string]any{"round": s.Round, "why": why})
	}
}

// write writes the checkpoint, in place of the one before.
func (s *session) write() {
	s.spring(saving, s.process.host.name)
	c := s.clone()
	s.process.sleep(s.saveTime)
	superseded := false
	s.note(func() {
		if superseded = s.file != nil && s.fileOf > s.generation; !superseded {
			s.file, s.fileOf = &c, s.generation
		}
	})
	if superseded {
		return
	}
	s.written = s.Round
	s.link.say("saved", map[string]any{"round": s.Round, "path": filepath.Join(s.job.Output, s.path)})
}

// afterTraining writes a checkpoint of the end.
func (s *session) afterTraining() {
	if s.path != "" && s.rank == 0 && s.every > 0 && s.Round%s.every != 0 {
		s.write()
	}
}
