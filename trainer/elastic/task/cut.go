package task

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
)

// cut divides shards into tasks. It computes each task from its number, so that its cost depends on
// the number of shards only.
type cut struct {
	// the shards that have records
	shards []Shard
	// by shard: the number of its first task
	first []int
	// number of tasks
	tasks int
	// of all shards
	records int64
	// records of a task; the last task of a shard may have fewer
	each int64
}

// cutUp divides shards into tasks of at most each records.
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

// settled returns the ledger with every epoch marked complete of which it has all tasks. A holder
// of the model learns from the master that an epoch is complete, and may be in the next epoch by
// then.
func (c *cut) settled(l *ledger.Ledger) *ledger.Ledger {
	if len(l.Epochs()) < 2 {
		return l
	}
	all := l.Clone()
	for len(all.Epochs()) > 1 {
		epoch := all.Settled() + 1
		for number := range c.tasks {
			if _, whole := all.Progress(ledger.Task{Epoch: epoch, Number: number}); !whole {
				return &all
			}
		}
		all.Settle(epoch)
	}
	return &all
}

// task returns the task of a number; like gives the fields that do not depend on the number.
func (c *cut) task(number int, like Task) Task {
	i := sort.Search(len(c.first), func(i int) bool { return c.first[i] > number }) - 1
	s := c.shards[i]
	like.Number, like.Shard = number, s.Name
	like.Start = s.Start + int64(number-c.first[i])*c.each
	like.End = min(like.Start+c.each, s.Start+s.Count)
	return like
}

// within returns the smallest number of tasks, taken in the given order, that have at least that
// many records, and by how many records they exceed that.
func (c *cut) within(order *permutation, records int64) (tasks int, more int64) {
	if records >= c.records {
		return c.tasks, 0
	}
	// Only the last task of a shard may have fewer than c.each records.
	type gap struct {
		// of the task in the order
		place int
		// that this task and the short tasks before it lack
		records int64
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

// todo holds the tasks that wait: tasks of a cut that were never leased, in their order, and tasks
// that were taken back.
//
// A place is a position in the order. Tasks are leased from the place from on; the places before it
// follow after the last one.
type todo struct {
	// the fields that all its tasks share
	like Task
	// the cut of its tasks; nil: only tasks that were taken back
	cut *cut
	// of the numbers of the tasks
	order permutation
	// the place of the first task that is leased
	from int
	// number of places passed since from
	next int
	// the first place beyond MaxRecords
	end int
	// records beyond MaxRecords of the task before end
	more int64

	// records that were in the model at the start, which are not trained on again
	applied ledger.Ledger
	// numbers of tasks that were taken out of turn
	apart map[int]bool
	// number of tasks at places not passed that are complete in applied, or in apart
	skipped int

	// lost or given back tasks: leased before all others, the last one first
	again []Task
	// failed tasks: leased after all others
	later []Task
}

// newTodo returns all tasks of a cut.
func newTodo(c *cut, order permutation, like Task) *todo {
	return &todo{like: like, cut: c, order: order, end: c.tasks}
}

// limit leaves out the tasks, and the end of the last task, that exceed that many records.
func (t *todo) limit(records int64) { t.end, t.more = t.cut.within(&t.order, records) }

// skip leaves out the records of the epoch that are in a ledger. It returns the number of complete
// tasks, and of records, that it leaves out. It is called before any task is taken.
func (t *todo) skip(l *ledger.Ledger) (tasks int, records int64, err error) {
	t.applied = l.Clone()
	epoch := t.like.Epoch
	for number := range l.Highest(epoch) + 1 {
		part, whole := l.Progress(ledger.Task{Epoch: epoch, Number: number})
		if part == 0 && !whole {
			continue
		}
		if number >= t.cut.tasks || t.order.indexOf(number) >= t.end {
			return 0, 0, fmt.Errorf("the ledger has task %d of epoch %d, which has %d tasks", number, epoch, t.end)
		}
		all := t.at(t.order.indexOf(number)).Records()
		if part > all {
			return 0, 0, fmt.Errorf("the ledger has %d records of task %d of epoch %d, which has %d",
				part, number, epoch, all)
		}
		if whole {
			tasks++
		}
		if whole && !t.like.Unsized {
			part = all
		}
		records += part
	}
	t.skipped = tasks
	return tasks, records, nil
}

// len returns the number of waiting tasks.
func (t *todo) len() int { return t.end - t.next - t.skipped + len(t.again) + len(t.later) }

// pop removes and returns the next task. There must be one.
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

// position returns the place that follows that many passed places.
func (t *todo) position(passed int) int {
	if place := t.from + passed; place < t.end {
		return place
	}
	return t.from + passed - t.end
}

// ahead returns the place of a task, and reports whether it was not passed yet.
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

// takeOut removes and returns the task of a number out of turn, and false if it does not wait.
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

// most returns the highest count of the records of a task, and false if there is no such task.
func (t *todo) most(number int) (int64, bool) {
	if t.cut == nil || number < 0 || number >= t.cut.tasks {
		return 0, false
	}
	place := t.order.indexOf(number)
	if place >= t.end {
		return 0, false
	}
	return t.at(place).most(), true
}

// left returns the task at a place, with Done set to its records in applied. It returns false if
// applied has the whole task, or if the task was taken out of turn.
func (t *todo) left(place int) (Task, bool) {
	task := t.at(place)
	part, whole := t.applied.Progress(ledger.Task{Epoch: task.Epoch, Number: task.Number})
	task.Done = part
	return task, !t.apart[task.Number] && (!whole || task.Epoch == 0)
}

// at returns the task at a place.
func (t *todo) at(place int) Task {
	task := t.cut.task(t.order.at(place), t.like)
	if place == t.end-1 {
		task.End -= t.more
	}
	return task
}

// first returns the waiting task with the smallest number, and false if none waits.
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
	case rest <= t.cut.tasks/rest: // few are left: search all of them
		for passed := t.next; passed < t.end; passed++ {
			if task, ok := t.left(t.position(passed)); ok {
				less(task)
			}
		}
	default:
		// many are left: one of the smallest numbers is among them
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
