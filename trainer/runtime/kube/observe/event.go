package observe

import (
	"cmp"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
)

// Explanation returns what the events about an object, since a time, say of why it waits: the image
// that a node pulls, if no event is later than that, and otherwise the last warning; "" if neither.
// Those of a master are in the state, and do not explain why the job waits now.
func Explanation(events []core.Event, since time.Time) string {
	events = slices.DeleteFunc(slices.Clone(events), func(e core.Event) bool {
		return e.Source.Component == Component || e.LastTimestamp.Time.Before(since)
	})
	// times are in seconds, and names end in the nanoseconds of the first time
	slices.SortFunc(events, func(a, b core.Event) int {
		return cmp.Or(a.LastTimestamp.Compare(b.LastTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	for i, e := range slices.Backward(events) {
		if i == len(events)-1 && e.Reason == "Pulling" {
			return e.Message
		}
		if e.Type == core.EventTypeWarning {
			return e.Reason + ": " + e.Message
		}
	}
	return ""
}
