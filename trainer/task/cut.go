package task

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/elasticdl/elasticdl/trainer/ledger"
)

// cut is the tasks of some shards, each computed from its number: making a cut costs as much as there are shards.
type cut struct {
	shards  []Shard // none empty
	first   []int   // by shard: the number of its first task
	tasks   int
	records int64 // of all of them
	each    int64 // records of a task; the last one of a shard may have fewer
}

// cutUp cuts shards into tasks of at most so many records each.
func cutUp(shards []Shard, each int64) *cut {
	c := &cut{each: each}
	for _, s := range shards {
		if s.Count > 0 {
			c.shards = append(c.shards, s)
			c.first = append(c.first, c.tasks)
			c.tasks += int((s.Count + each - 1) / each)
			c.records += s.Count
		}
	}
	return c
}

// settled returns the ledger with the epochs complete of which every task is had. Who holds a model hears from the master that an epoch is
// complete, perhaps when it is in the next one.
func (c *cut) settled(l *ledger.Ledger) *ledger.Ledger {
	if len(l.Epochs()) < 2 {
		return l
	}
	all := l.Clone()
	for len(all.Epochs()) > 1 {
		epoch := all.Settled() + 1
		for number := range c.tasks {
			if _, whole := all.Had(ledger.Task{Epoch: epoch, Number: number}); !whole {
				return &all
			}
		}
		all.Settle(epoch)
	}
	return &all
}

// task returns the task of a number, which is like another but for its records.
func (c *cut) task(number int, like Task) Task {
	i := sort.Search(len(c.first), func(i int) bool { return c.first[i] > number }) - 1
	s := c.shards[i]
	like.Number, like.Shard = number, s.Name
	like.Start = s.Start + int64(number-c.first[i])*c.each
	like.End = min(like.Start+c.each, s.Start+s.Count)
	return like
}

// within returns how many tasks, taken in an order, it takes to have so many records, and how many
// records more than that they have.
func (c *cut) within(order *permutation, records int64) (tasks int, more int64) {
	if records >= c.records {
		return c.tasks, 0
	}
	// Only the last task of a shard may be short of records: those are the ones to look at.
	type gap struct {
		place   int
		records int64 // that this task and all such before it are short of
	}
	var gaps []gap
	for i, s := range c.shards {
		last := c.tasks - 1
		if i+1 < len(c.first) {
			last = c.first[i+1] - 1
		}
		if rest := s.Count % c.each; rest > 0 {
			gaps = append(gaps, gap{order.indexOf(last), c.each - rest})
		}
	}
	slices.SortFunc(gaps, func(a, b gap) int { return cmp.Compare(a.place, b.place) })
	for i := range gaps[:max(0, len(gaps)-1)] {
		gaps[i+1].records += gaps[i].records
	}
	have := func(tasks int) int64 {
		all := int64(tasks) * c.each
		if i := sort.Search(len(gaps), func(i int) bool { return gaps[i].place >= tasks }); i > 0 {
			all -= gaps[i-1].records
		}
		return all
	}
	tasks = sort.Search(c.tasks, func(n int) bool { return have(n) >= records })
	return tasks, have(tasks) - records
}

// todo is the tasks that wait: those of a cut that were never leased, in their order, and those that came back.
type todo struct {
	like  Task // what its tasks are besides their records
	cut   *cut // nil: only what came back
	order permutation
	from  int   // the place of the first one that is taken: after the last place come those before it
	next  int   // how many places were passed since
	end   int   // places from here on are not to be done
	more  int64 // records of the task before end that are not to be done

	had     ledger.Ledger // what was had when it began: no such record is done again
	apart   map[int]bool  // by number: was taken out of its turn
	skipped int           // tasks at places that were not passed which are had whole, or apart

	again []Task // lost: they come first, the last one of them before the others
	later []Task // failed: they come last
}

func newTodo(c *cut, order permutation, like Task) *todo {
	return &todo{like: like, cut: c, order: order, end: c.tasks}
}

// limit leaves out what comes after so many records.
func (t *todo) limit(records int64) { t.end, t.more = t.cut.within(&t.order, records) }

// skip leaves out what a ledger has of the epoch, and returns how many tasks that is, whole, and how many records. Nothing
// may have been taken yet.
func (t *todo) skip(l *ledger.Ledger) (tasks int, records int64, err error) {
	t.had = l.Clone()
	epoch := t.like.Epoch
	for number := range l.Highest(epoch) + 1 {
		part, whole := l.Had(ledger.Task{Epoch: epoch, Number: number})
		if part == 0 && !whole {
			continue
		}
		if number >= t.cut.tasks || t.order.indexOf(number) >= t.end {
			return 0, 0, fmt.Errorf("task %d of epoch %d is none of the %d that there are", number, epoch, t.end)
		}
		all := t.at(t.order.indexOf(number)).Records()
		if part > all {
			return 0, 0, fmt.Errorf("%d records of task %d of epoch %d, which has %d", part, number, epoch, all)
		}
		if whole {
			tasks++
			part = all
		}
		records += part
	}
	t.skipped = tasks
	return tasks, records, nil
}

func (t *todo) len() int { return t.end - t.next - t.skipped + len(t.again) + len(t.later) }

// pop takes the next task. There must be one.
func (t *todo) pop() Task {
	if n := len(t.again) - 1; n >= 0 {
		task := t.again[n]
		t.again = t.again[:n]
		return task
	}
	for t.next < t.end {
		t.next++
		if task, ok := t.left(t.position(t.next - 1)); ok {
			return task
		}
		t.skipped--
	}
	task := t.later[0]
	t.later = t.later[1:]
	return task
}

// position returns where the order is when so many places were passed.
func (t *todo) position(passed int) int {
	if place := t.from + passed; place < t.end {
		return place
	}
	return t.from + passed - t.end
}

// ahead reports whether a number's place is one of those that were not passed.
func (t *todo) ahead(number int) (place int, ok bool) {
	if t.cut == nil || number < 0 || number >= t.cut.tasks {
		return 0, false
	}
	place = t.order.indexOf(number)
	if place >= t.end {
		return 0, false
	}
	passed := place - t.from
	if passed < 0 {
		passed += t.end
	}
	return place, passed >= t.next
}

// takeOut takes a task out of its turn, if it waits.
func (t *todo) takeOut(number int) (Task, bool) {
	is := func(task Task) bool { return task.Number == number }
	for _, waiting := range []*[]Task{&t.again, &t.later} {
		if i := slices.IndexFunc(*waiting, is); i >= 0 {
			task := (*waiting)[i]
			*waiting = slices.Delete(slices.Clone(*waiting), i, i+1)
			return task, true
		}
	}
	place, ok := t.ahead(number)
	if !ok {
		return Task{}, false
	}
	task, ok := t.left(place)
	if !ok {
		return Task{}, false
	}
	if t.apart == nil {
		t.apart = make(map[int]bool)
	}
	t.apart[number] = true
	t.skipped++
	return task, true
}

// sized returns how many records the task of a number has, false if there is no such task.
func (t *todo) sized(number int) (int64, bool) {
	if t.cut == nil || number < 0 || number >= t.cut.tasks {
		return 0, false
	}
	place := t.order.indexOf(number)
	if place >= t.end {
		return 0, false
	}
	return t.at(place).Records(), true
}

// left returns the task at a place of the order with what of it is had; false: all of it, or it was taken out of its turn.
func (t *todo) left(place int) (Task, bool) {
	task := t.at(place)
	part, whole := t.had.Had(ledger.Task{Epoch: task.Epoch, Number: task.Number})
	task.Done = part
	return task, !t.apart[task.Number] && (!whole || task.Epoch == 0)
}

// at returns the task at a place of the order.
func (t *todo) at(place int) Task {
	task := t.cut.task(t.order.at(place), t.like)
	if place == t.end-1 {
		task.End -= t.more
	}
	return task
}

// first returns the waiting task of the least number, false if none waits.
func (t *todo) first() (Task, bool) {
	var first Task
	found := false
	less := func(task Task) {
		if !found || task.Number < first.Number {
			first, found = task, true
		}
	}
	for _, task := range t.again {
		less(task)
	}
	for _, task := range t.later {
		less(task)
	}
	rest := t.end - t.next - t.skipped
	switch {
	case rest == 0:
	case rest <= t.cut.tasks/rest: // few are left: look at them all
		for passed := t.next; passed < t.end; passed++ {
			if task, ok := t.left(t.position(passed)); ok {
				less(task)
			}
		}
	default: // many: one of the first numbers is among them
		for number := 0; ; number++ {
			if place, ok := t.ahead(number); ok {
				if task, ok := t.left(place); ok {
					less(task)
					break
				}
			}
		}
	}
	return first, found
}
