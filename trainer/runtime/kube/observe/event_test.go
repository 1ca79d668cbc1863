package observe

import (
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A node that pulls an image is the reason why its pod waits, until it has it.
func TestExplanation(t *testing.T) {
	event := func(second int64, name, kind, reason, message string) core.Event {
		return core.Event{ObjectMeta: meta.ObjectMeta{Name: name}, Type: kind, Reason: reason, Message: message,
			LastTimestamp: meta.Unix(second, 0)}
	}
	mount := event(3, "w.1", "Warning", "FailedMount", "no such claim")
	pulling := event(5, "w.2", "Normal", "Pulling", "Pulling image \"a\"")
	pulled := event(5, "w.3", "Normal", "Pulled", "Successfully pulled")
	again := event(6, "w.2", "Normal", "Pulling", "Pulling image \"b\"")
	anew := event(9, "w.4", "Warning", "TrainingStartedOver", "no checkpoint")
	anew.Source.Component = Component
	for _, test := range []struct {
		name   string
		since  int64
		events []core.Event
		want   string
	}{
		{"no events", 0, nil, ""},
		{"a warning", 0, []core.Event{mount}, "FailedMount: no such claim"},
		{"an old one", 4, []core.Event{mount}, ""},
		{"it pulls, in any order", 0, []core.Event{pulling, mount}, `Pulling image "a"`},
		{"it has pulled in the same second", 0, []core.Event{pulled, pulling}, ""},
		{"then the warning counts", 0, []core.Event{pulling, pulled, mount}, "FailedMount: no such claim"},
		{"it pulls the next", 0, []core.Event{again, pulled, anew}, `Pulling image "b"`},
	} {
		if got := Explanation(test.events, time.Unix(test.since, 0)); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}
