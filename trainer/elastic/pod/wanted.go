package pod

import "iter"

// Wanted returns the workers that the job wants, one for each line that may still run: the pod that
// has the line's place, or is to get it. They are in the order in which they were wanted.
func (t *Table) Wanted() iter.Seq[Pod] {
	return func(yield func(Pod) bool) {
		for _, e := range t.pods {
			if e.wanted() && !yield(e.Pod) {
				return
			}
		}
	}
}
