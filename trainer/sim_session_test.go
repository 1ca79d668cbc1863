package trainer_test

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// session is a process that uses the package, as session.py has it: its state, its world, and the
// messages of the agent.
type session struct {
	*programWatch
	process *fakeProcess
	link    *link
	data    dataSet
	book    book
	group   *processGroup

	// its world; 0: none
	generation int64
	rank, size int
	source     int
	// epochs all records of which are in the state that the world begins with
	worldSettled int
	// the state: rounds, how often each record is in it, the records that the ledger counts
	packageState
	// it has a state
	live bool
	// state on disk, which the process has arrived with
	loaded *packageState
	// it has the state of this world
	synced bool
	// credits that no header has named yet
	pending []credit
	// all records are in the state
	done bool
	// newest round of which it has written a checkpoint
	written int64
	// generation of which the agent knows that all ranks have its beginning, and the round
	met, metRound int64

	mu      sync.Mutex
	changed *sync.Cond
	// the next world, if it has come
	next *told
	// newest generations that it was recalled from, at once and after a round
	recalled, asked int64
	// the job stops, and the agent asks for the records that every rank has
	stops, account bool
	// when the state is saved that a leaving rank 0 has kept; zero: it need not be
	unsaved time.Time
}

// packageState is the shared state of the ranks.
type packageState struct {
	Round   int64
	Settled int
	// records of shards of unknown length in these epochs
	Counted int64
	// by epoch and record
	Counts []byte
	// by task: epoch · tasks + number
	Ledger map[int]int64
}

func (s packageState) clone() packageState {
	s.Counts, s.Ledger = slices.Clone(s.Counts), maps.Clone(s.Ledger)
	return s
}

// errWorldChanged leaves the training loop, as WorldChanged does.
var errWorldChanged = errors.New("the world changed")

// runPackaged runs a script that uses the package, and returns its exit code.
func (w *programWatch) runPackaged(p *fakeProcess) int {
	if w.handles {
		p.handle()
	}
	p.sleep(p.within(10*time.Millisecond, w.startup+20*time.Millisecond))
	if w.quit(p) {
		return 0
	}
	s := &session{programWatch: w, process: p, data: w.data, written: -1,
		packageState: packageState{Counts: make([]byte, w.records), Ledger: make(map[int]int64)}}
	s.changed = sync.NewCond(&s.mu)
	s.book.session = s
	context.AfterFunc(p.ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.changed.Broadcast()
	})
	s.link = newLink(p, s.hear, map[string]any{"v": 1, "pid": p.pid, "local_rank": p.local, "survives": true,
		"torch": "2.0", "backend": "gloo"})
	if w.path != "" {
		s.resume()
	}
	s.form(true)
	for {
		err := s.sync()
		if err == nil {
			err = s.train()
		}
		if err == nil {
			break
		}
		s.form(false)
	}
	s.afterTraining()
	s.finish()
	p.sleep(p.within(time.Millisecond, w.tail+2*time.Millisecond))
	return 0
}

// hear takes a message of the agent's.
func (s *session) hear(m told) {
	s.mu.Lock()
	switch deadline := time.Unix(0, int64(m.Deadline*1e9)); m.Op {
	case "world", "outside":
		s.next = &m
	case "recall":
		if m.Now {
			s.recalled = max(s.recalled, m.Generation)
		} else {
			s.asked = max(s.asked, m.Generation)
		}
	case "leave":
		s.unsaved = time.Now().Add(max(0, time.Until(deadline)) / 2)
	case "stop":
		if !s.stops {
			s.unsaved = time.Now().Add(max(0, time.Until(deadline)) / 2)
		}
		s.stops = true
	case "account":
		s.account = true
	}
	group := s.group
	s.changed.Broadcast()
	s.mu.Unlock()
	switch {
	case m.Op == "end":
		s.process.exits(m.Code)
	case m.Op == "recall" && m.Now:
		s.note(func() {
			if s.process.generation == m.Generation && s.process.waits == nil {
				s.noteBreak(s.process)
			}
		})
		s.link.cancel(m.Generation)
		if group != nil && group.generation <= m.Generation {
			group.condemn(errCondemned)
		}
	}
}

// isRecalled reports whether a member of the world is lost.
func (s *session) isRecalled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.generation > 0 && s.recalled >= s.generation
}

// await waits until something is so, or the limit is over; zero: there is none. It reports whether
// it is so.
func (s *session) await(limit time.Time, is func() bool) bool {
	if !limit.IsZero() {
		timer := time.AfterFunc(time.Until(limit), func() {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.changed.Broadcast()
		})
		defer timer.Stop()
	}
	defer s.process.stand()
	s.mu.Lock()
	defer s.mu.Unlock()
	for !is() {
		if s.process.ctx.Err() != nil || !limit.IsZero() && !time.Now().Before(limit) {
			return false
		}
		s.changed.Wait()
	}
	return true
}

// resume arrives with the state on disk.
func (s *session) resume() {
	if _, err := s.link.ask("checkpoint", 0, map[string]any{"path": filepath.Join(s.job.Output, s.path)}); err != nil {
		s.note(func() { s.complain("%v cannot claim its checkpoint: %v", s.process, err) })
		s.process.exits(crashed)
	}
	s.look()
}

// look takes the newest state on disk.
func (s *session) look() {
	s.note(func() {
		if s.file != nil {
			c := s.file.clone()
			s.loaded = &c
		}
	})
	if s.loaded != nil {
		s.Round, s.Ledger = s.loaded.Round, maps.Clone(s.loaded.Ledger)
		s.Settled, s.Counted = s.loaded.Settled, s.loaded.Counted
		s.settle(s.data.settled(s.Ledger, s.Settled))
	}
}

// stretches returns the ledger, as messages have it.
func (s *session) stretches() [][3]int64 {
	all := [][3]int64{}
	for _, task := range slices.Sorted(maps.Keys(s.Ledger)) {
		all = append(all, [3]int64{int64(task / s.data.tasks()), int64(task % s.data.tasks()), s.Ledger[task]})
	}
	return all
}

// sayAccount reports the records in the state of every rank.
func (s *session) sayAccount() {
	s.link.say("account", map[string]any{"formation": s.generation, "ledger": s.stretches(), "settled": s.Settled,
		"counted": s.Counted})
}

// settle drops the tasks of epochs all records of which are in the state.
func (s *session) settle(epochs int) {
	if epochs > s.Settled {
		s.Settled = epochs
		maps.DeleteFunc(s.Ledger, func(task int, n int64) bool {
			rests := task/s.data.tasks() < epochs
			if rests && s.data.stream() {
				s.Counted += ledger.Count(n)
			}
			return rests
		})
	}
}

// form returns when the process is in a world. Its state is not yet that of the world. early: it
// has yet to make its model, for which others that train do not wait.
func (s *session) form(early bool) {
	for {
		s.synced, s.done, s.pending = false, false, nil
		if s.group != nil {
			s.group.condemn(errCondemned)
			s.mu.Lock()
			s.group = nil
			s.mu.Unlock()
		}
		round := int64(-1)
		if s.live || s.loaded != nil {
			round = s.Round
		}
		s.note(func() {
			s.left[s.generation] = true
			s.process.waits = &absence{since: time.Now()}
		})
		s.spring(arrives, s.process.host.name)
		s.link.say("arrive", map[string]any{"formation": s.generation, "round": round, "ledger": s.stretches(),
			"settled": s.Settled, "counted": s.Counted, "read": !s.live, "early": early})
		m := s.nextWorld()
		if m.Op == "outside" {
			s.note(func() {
				s.process.waits = nil
				if m.Rank < 1 || m.Rank >= m.Size {
					s.complain("%v has the rank %d of %d outside of the world", s.process, m.Rank, m.Size)
				}
			})
			s.process.sleep(s.process.within(time.Millisecond, 3*time.Second))
			early = false
			if s.path != "" {
				s.look() // others may have written another
			}
		} else if s.enter(m) {
			return
		}
	}
}

// nextWorld waits for a world. If none comes before a leaving rank 0 has to save its state, it
// does.
func (s *session) nextWorld() told {
	for {
		var limit time.Time
		s.mu.Lock()
		if s.live && s.rank == 0 {
			limit = s.unsaved
		}
		s.mu.Unlock()
		if s.await(limit, func() bool {
			return s.next != nil && (s.next.Op == "outside" || s.next.Generation > s.generation)
		}) {
			m := *s.next
			s.next = nil
			return m
		}
		s.saveEnd(false)
	}
}

// enter makes the group of a world. False: the world is over before.
func (s *session) enter(m told) bool {
	s.mu.Lock()
	s.generation, s.rank, s.size, s.source = m.Generation, m.Rank, m.Size, m.Source
	s.mu.Unlock()
	s.worldSettled = m.Settled
	s.book.void(m.Floor)
	s.note(func() { s.process.standing = standing{generation: m.Generation, rank: m.Rank, size: m.Size} })
	s.spring(enters, s.process.host.name)
	if s.isRecalled() {
		return false
	}
	store := agentStore{s.link, m.Generation}
	if ended, err := store.meet(m.Rank, m.Size); err != nil || ended {
		s.explain("the ranks cannot meet")
		return false
	}
	g := newGroup(s.process, m.Rank, m.Size)
	g.generation = m.Generation
	s.mu.Lock()
	s.group = g
	s.mu.Unlock()
	if s.isRecalled() {
		return false
	}
	if err := g.connect(store, time.Minute); err != nil {
		s.explain("the group cannot be made: " + err.Error())
		return false
	}
	return !s.isRecalled()
}

// explain returns when the agent has said that a member is lost. If it knows of none, the process
// ends.
func (s *session) explain(why string) {
	if !s.isRecalled() {
		if _, err := s.link.ask("explain", s.generation, nil); err == nil {
			s.note(func() { s.noteDoubt(s.process) })
			s.link.say("doubt", map[string]any{"why": why})
			s.process.exits(codeDoubt)
		}
	}
	s.await(time.Time{}, func() bool { return s.recalled >= s.generation })
}

// lostPeer turns the error of a collective into the end of the world.
func (s *session) lostPeer(err error) error {
	s.explain("a collective failed: " + err.Error())
	return errWorldChanged
}

// sync copies the state of the rank that has the newest.
func (s *session) sync() error {
	source := max(s.source, 0)
	if s.loaded != nil && !s.live && s.rank == source {
		s.note(func() {
			if s.file == nil || s.file.Round < s.loaded.Round {
				s.complain("%v loads round %d, which is not on disk", s.process, s.loaded.Round)
			}
		})
		s.Counts = slices.Clone(s.loaded.Counts)
	}
	if s.size > 1 {
		if _, err := s.group.gather([]byte{1}); err != nil {
			return s.lostPeer(err)
		}
		var own []byte
		if s.rank == source {
			own, _ = json.Marshal(s.packageState)
		}
		body, err := s.group.spread(source, own)
		if err != nil {
			return s.lostPeer(err)
		}
		var newest packageState
		if err := json.Unmarshal(body, &newest); err != nil {
			panic(err)
		}
		s.packageState = newest
	}
	s.settle(s.worldSettled)
	s.live, s.synced, s.loaded = true, true, nil
	s.note(func() { s.takes(s) })
	s.book.rewind()
	return nil
}

// finish tells the agent that the process needs no further world.
func (s *session) finish() {
	s.note(func() {
		for record, times := range s.Counts {
			if times != 1 {
				s.complain("%v has completed the training with record %d %d times in its state", s.process, record,
					times)
				break
			}
		}
		s.process.trained, s.complete = true, true
		s.trainedIn = max(s.trainedIn, s.generation)
	})
	s.sayAccount()
	s.link.say("done", map[string]any{"round": s.Round})
	s.spring(trainingEnd, s.process.host.name)
}
