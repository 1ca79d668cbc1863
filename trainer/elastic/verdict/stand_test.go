package verdict

import (
	"testing"
	"time"
)

// A program waits for the slowest of its workers.
func TestStandsStill(t *testing.T) {
	for _, c := range []struct {
		stages []Stage
		asks   bool
		still  time.Duration
		want   string
	}{
		{nil, false, time.Hour, ""},
		{[]Stage{Unknown}, true, time.Hour, ""},
		{[]Stage{Unknown, Training, Silent}, true, time.Hour, "the first output of the processes of worker-2"},
		{[]Stage{Fetching, Importing}, false, 7 * time.Second, "the program's code, which is fetched by worker-0"},
		{[]Stage{Training, Importing, Importing}, true, 7 * time.Second,
			"torch to be imported, before processes start, by worker-1, worker-2"},
		{[]Stage{Silent, Started}, false, 5 * time.Second, "the first output of the processes of worker-0"},
		{[]Stage{Silent}, false, 4999 * time.Millisecond, ""},
		{[]Stage{Started, Started}, false, time.Hour, ""},
		{[]Stage{Training, Started}, true, time.Hour,
			"elasticdl.init(), which has yet to be called by the processes of worker-1"},
		{[]Stage{Training, Trained}, true, 61 * time.Second,
			"a step of its processes: none was completed for 1m1s"},
		{[]Stage{Trained, Trained}, true, 9 * time.Second,
			"the processes to end, as the training is complete, of worker-0, worker-1"},
	} {
		var members []Member
		for i, s := range c.stages {
			members = append(members, Member{i, s})
		}
		if got := StandsStill(members, c.asks, c.still); got != c.want {
			t.Errorf("%v after %v: %q, want %q", c.stages, c.still, got, c.want)
		}
	}
}
