package goodput

import (
	"cmp"
	"slices"
)

// Limits of [Account.Slow].
const (
	// SlowTimes is the median of the others that a slow worker exceeds, as a factor.
	SlowTimes = 1.5
	// SlowLeast is the least difference to that median, in milliseconds for one step.
	SlowLeast = 1.0
	// SlowSteps is the least number of steps.
	SlowSteps = 5
	// MostSlow is the largest number of slow workers that are named.
	MostSlow = 10
)

// halfLife is the time after which older steps count half, in ms, if there are enough of them.
const halfLife = 5_000

// pace is the time that a worker takes for a step, over about the last ten seconds, or ten steps.
type pace struct {
	steps, compute, peers float64
	halved                int64 // Unix time in ms
}

func (p *pace) add(steps, compute, peers, at int64) {
	if at-p.halved >= halfLife && p.steps >= 2*SlowSteps {
		p.steps, p.compute, p.peers, p.halved = p.steps/2, p.compute/2, p.peers/2, at
	}
	p.steps += float64(max(0, steps))
	p.compute += float64(max(0, compute))
	p.peers += float64(max(0, peers))
}

// measure finds the least wait of a worker for the others.
func (a *Account) measure() {
	a.least = 0
	first := true
	for _, s := range a.slots {
		if s.cause != Training || s.pace.steps < SlowSteps {
			continue
		}
		if wait := s.pace.peers / s.pace.steps; first || wait < a.least {
			first, a.least = false, wait
		}
	}
}

// Slow is a worker that computes slower than the others.
type Slow struct {
	Worker int
	// Step is its own computing for one step, and Median that of the other workers, in ms.
	Step, Median float64
}

// Slow returns the workers that compute clearly slower than the others, the slowest first.
func (a *Account) Slow() []Slow {
	var all []Slow
	for _, number := range a.all() {
		if s := a.slots[number]; s.cause == Training && s.pace.steps >= SlowSteps && s.pace.compute > 0 {
			all = append(all, Slow{Worker: number, Step: s.pace.compute / s.pace.steps})
		}
	}
	return slow(all)
}

// slow returns those of the workers that are slow, and sets the median of the others.
func slow(all []Slow) (found []Slow) {
	slices.SortStableFunc(all, func(x, y Slow) int { return cmp.Compare(x.Step, y.Step) })
	for i, s := range slices.Backward(all) {
		if s.Median = medianWithout(all, i); s.Median > 0 && s.Step > SlowTimes*s.Median &&
			s.Step-s.Median > SlowLeast && len(found) < MostSlow {
			found = append(found, s)
		}
	}
	return found
}

// medianWithout returns the median step of sorted workers without one of them; 0 if there is no
// other.
func medianWithout(all []Slow, without int) float64 {
	at := func(i int) float64 {
		if i >= without {
			i++
		}
		return all[i].Step
	}
	n := len(all) - 1
	if n <= 0 {
		return 0
	}
	return (at((n-1)/2) + at(n/2)) / 2
}
