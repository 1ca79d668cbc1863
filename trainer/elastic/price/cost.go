package price

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Share returns the part of a node that a pod takes: the largest of its parts of CPUs, memory and
// GPUs, at most 1. It is 0, not known, if the pod requests none of these.
func Share(requests, node map[string]float64) (share float64) {
	for resource, amount := range requests {
		if all := node[resource]; all > 0 {
			share = max(share, amount/all)
		}
	}
	return min(share, 1)
}

// Pod is a pod of a job on a node.
type Pod struct {
	// pods of a role cost about the same: a pod whose node is not known costs as much as the others
	Role string
	// zero = its node is not known
	Machine Machine
	// of the node; 0 = not known
	Share float64
	// when it got its node; zero = it has none, and costs nothing
	Start time.Time
	// zero = it has not ended
	End time.Time
}

// hour returns the price of an hour of the pod.
func (p Pod) hour() (dollars float64, ok bool) {
	dollars, ok = p.Machine.Hour()
	return dollars * p.Share, ok && p.Share > 0
}

// Cost is the cost of a job.
type Cost struct {
	// US dollars so far, and per hour now
	Spent, Hour float64
	// machines of the pods that have a price, by name
	Machines []string
	// pods that have ended whose node is not known, counted at the mean price of their role
	Assumed int
	// pods that are not counted, because no price is known
	Unknown int
	// region and month of the prices: "us-east-1, 2026-07"
	Of string
}

// Known reports whether a price of any pod is known.
func (c Cost) Known() bool { return len(c.Machines) > 0 }

// Sum returns the cost of pods until now.
func Sum(pods []Pod, now time.Time) (c Cost) {
	machines, of := map[string]bool{}, map[string]bool{}
	type sum struct {
		hours float64
		n     int
	}
	roles := map[string]sum{}
	for _, p := range pods {
		if each, ok := p.hour(); ok && !p.Start.IsZero() {
			machines[p.Machine.String()], of[p.Machine.Cloud.Of()] = true, true
			roles[p.Role] = sum{roles[p.Role].hours + each, roles[p.Role].n + 1}
		}
	}
	for _, p := range pods {
		each, known := p.hour()
		mean := roles[p.Role]
		switch {
		case p.Start.IsZero():
			continue
		case known:
		case !p.End.IsZero() && p.Machine == (Machine{}) && mean.n > 0:
			each = mean.hours / float64(mean.n)
			c.Assumed++
		default:
			c.Unknown++
			continue
		}
		end := p.End
		if end.IsZero() {
			end = now
			c.Hour += each
		}
		c.Spent += each * max(0, end.Sub(p.Start).Hours())
	}
	c.Machines = slices.Sorted(maps.Keys(machines))
	c.Of = strings.Join(slices.Sorted(maps.Keys(of)), "; ")
	return c
}

// String returns a line for the user; "" if no price is known.
func (c Cost) String() string {
	if !c.Known() {
		return ""
	}
	text := fmt.Sprintf("about %.2f $ so far, %.2f $/h now (%s; prices of %s)", c.Spent, c.Hour,
		strings.Join(c.Machines, ", "), c.Of)
	if c.Assumed > 0 {
		text += fmt.Sprintf("; %s counted at the mean of the others", pods(c.Assumed, "that has ended",
			"that have ended"))
	}
	if c.Unknown > 0 {
		text += fmt.Sprintf("; not counted: %s", pods(c.Unknown, "without a known price", "without a known price"))
	}
	return text
}

// pods returns "1 pod one" or "n pods many".
func pods(n int, one, many string) string {
	if n == 1 {
		return "1 pod " + one
	}
	return fmt.Sprintf("%d pods %s", n, many)
}
