package task

import "slices"

// fifo is a queue of tasks. Putting back what was taken costs as little as taking it.
type fifo struct {
	items []Task
	head  int
}

func (f *fifo) len() int { return len(f.items) - f.head }

func (f *fifo) push(t Task) { f.items = append(f.items, t) }

func (f *fifo) pushFront(t Task) {
	if f.head == 0 {
		f.items = slices.Insert(f.items, 0, t)
		return
	}
	f.head--
	f.items[f.head] = t
}

func (f *fifo) pop() Task {
	t := f.items[f.head]
	f.head++
	if f.len() == 0 {
		*f = fifo{items: f.items[:0]}
	}
	return t
}

func (f *fifo) remove(unwanted func(Task) bool) {
	f.items = slices.DeleteFunc(f.items[f.head:], unwanted)
	f.head = 0
}
