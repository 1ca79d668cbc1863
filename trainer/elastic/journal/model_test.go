package journal

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// kinds that the tests add: incidents, warnings and facts.
var kinds = []Kind{PodLost, PodFailed, PodEnded, Recovered, WorldFormed, CheckpointWritten, FailedCreate,
	TrainingRolledBack, Evaluated}

func drawEntry(t *rapid.T) Entry {
	e := Entry{
		Kind:  rapid.SampledFrom(kinds).Draw(t, "kind"),
		Pod:   rapid.SampledFrom([]string{"", "worker-1", "ps-0"}).Draw(t, "pod"),
		Cause: rapid.SampledFrom([]string{"", "preempted", "killed"}).Draw(t, "cause"),
		Text: strings.Repeat(rapid.SampledFrom([]string{"x", "\xff", "损", "\x1b["}).Draw(t, "text"),
			rapid.IntRange(0, 900).Draw(t, "length")),
		Number: rapid.Int64Range(0, 9).Draw(t, "number"), Seconds: rapid.Float64Range(0, 700).Draw(t, "seconds"),
	}
	if e.Kind == Evaluated {
		loss := rapid.SampledFrom([]float64{0.5, math.NaN(), math.Inf(1)}).Draw(t, "loss")
		e.Metrics = map[string]float64{"loss": loss}
	}
	return e
}

// The laws of a journal, with a twin that is saved and restored before each call.
func TestJournalModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var j Journal
		count, ends, lost := make(map[Kind]int64), make(map[string]int64), make(map[string]int64)
		recoveries, seconds, number := int64(0), 0.0, int64(0)
		now := time.UnixMilli(1000)
		for range rapid.IntRange(1, 15).Draw(t, "bursts") {
			e := drawEntry(t)
			twin := Restore(throughJSON(t, j.Snapshot()))
			for range rapid.IntRange(1, 200).Draw(t, "times") {
				now = now.Add(time.Millisecond)
				got, again := j.Add(e, now), twin.Add(e, now)
				number++
				if got.N != number || !got.Time().Equal(now) || !reflect.DeepEqual(got, again) {
					t.Fatalf("%+v, of the twin %+v, want number %d", got, again, number)
				}
				count[e.Kind]++
				switch e.Kind {
				case PodLost, PodFailed:
					lost[roleOf(e.Pod)+" "+e.Cause]++
					ends[roleOf(e.Pod)+" "+e.Cause]++
				case PodEnded:
					ends[roleOf(e.Pod)+" "+e.Cause]++
				case Recovered:
					recoveries, seconds = recoveries+1, seconds+e.Seconds
				}
			}
			if !reflect.DeepEqual(twin.Snapshot(), j.Snapshot()) {
				t.Fatalf("restored: %d entries, %+v\nwant %d, %+v", len(twin.entries), twin.totals, len(j.entries),
					j.totals)
			}
		}
		checkBounds(t, &j)
		totals := j.Totals()
		if !maps.Equal(totals.Kinds, count) || !maps.Equal(totals.Ends, ends) || !maps.Equal(totals.Lost, lost) ||
			totals.Recoveries.Count() != recoveries || math.Abs(totals.Recoveries.Sum-seconds) > 1e-6*(1+seconds) {
			t.Fatalf("totals %+v, want %v, %v, %d recoveries of %v s", totals, count, ends, recoveries, seconds)
		}
	})
}

// checkBounds checks the order and the limits of a journal.
func checkBounds(t *rapid.T, j *Journal) {
	all := j.Entries(0)
	text, err := json.Marshal(all)
	if err != nil || len(all) > Most || len(text) > MostBytes+2 {
		t.Fatalf("%d entries of %d bytes: %v", len(all), len(text), err)
	}
	for i, e := range all {
		if i > 0 && e.N <= all[i-1].N || len(e.Text) > MostText || !utf8.ValidString(e.Text) {
			t.Fatalf("entry %d: %+v", i, e)
		}
	}
	if n := rapid.Int64Range(0, j.last+1).Draw(t, "above"); len(j.Entries(n)) > int(max(0, j.last-n)) {
		t.Fatalf("%d entries above %d of %d", len(j.Entries(n)), n, j.last)
	}
	for _, e := range j.Incidents(5) {
		if !e.Kind.Incident() {
			t.Fatalf("no incident: %+v", e)
		}
	}
}

func throughJSON(t *rapid.T, s Snapshot) (again Snapshot) {
	text, err := json.Marshal(s)
	if err == nil {
		err = json.Unmarshal(text, &again)
	}
	if err != nil {
		t.Fatal(err)
	}
	return again
}

// One kind drives out no other, in the journal and in its incidents.
func TestOneKindDrivesOutNoOther(t *testing.T) {
	var j Journal
	first := j.Add(Entry{Kind: TrainingFailed, Text: "no data"}, time.UnixMilli(1))
	for i := range 5 * Most {
		lost := Entry{Kind: PodLost, Pod: fmt.Sprint("worker-", i), Cause: "preempted", Text: "preempted"}
		j.Add(lost, time.UnixMilli(2))
	}
	if all := j.Entries(0); all[0].N != first.N || len(all) < Most/2 || all[len(all)-1].N != 5*Most+1 {
		t.Errorf("%d entries: %+v", len(all), all[0])
	}
	all := j.Incidents(20)
	if len(all) != 20 || all[0].N != first.N || all[19].Words() != "worker-4999: preempted" {
		t.Errorf("%d incidents: %+v", len(all), all)
	}
	if e, ok := j.Newest(func(e Entry) bool { return e.Kind == TrainingFailed }); !ok || e.N != first.N {
		t.Errorf("%+v, %t", e, ok)
	}
	if _, ok := j.Newest(func(e Entry) bool { return e.Kind == Waiting }); ok {
		t.Error("an entry that was never added")
	}
}

// A program that reports a metric by each name that it can think of takes no room of others.
func TestManyMetrics(t *testing.T) {
	var j Journal
	all := map[string]float64{strings.Repeat("a", MostName+1): 1}
	for i := range 10_000 {
		all[fmt.Sprintf("metric %05d", i)] = float64(i)
	}
	j.Add(Entry{Kind: WorldFormed}, time.UnixMilli(1))
	j.Add(Entry{Kind: Evaluated, Metrics: all}, time.UnixMilli(2))
	entries := j.Entries(0)
	if len(entries) != 2 || len(entries[1].Metrics) != MostMetrics || entries[1].Metrics["metric 00029"] != 29 {
		t.Errorf("%d entries: %v", len(entries), entries[len(entries)-1].Metrics)
	}
}

// A snapshot of another version, or a damaged one, makes a journal that keeps its limits.
func FuzzRestore(f *testing.F) {
	f.Add(`{"last":3,"entries":[{"n":2,"kind":"PodLost"},{"n":1}],"totals":{"recoveries":{"counts":[1]}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		var s Snapshot
		if json.Unmarshal([]byte(text), &s) != nil {
			return
		}
		j := Restore(s)
		e := j.Add(Entry{Kind: Recovered, Seconds: 1}, time.UnixMilli(1))
		all := j.Entries(0)
		if len(all) == 0 || !slices.IsSortedFunc(all, func(a, b Entry) int { return cmp.Compare(a.N, b.N) }) ||
			all[len(all)-1].N != e.N || j.all > MostBytes {
			t.Errorf("%+v", j.Snapshot())
		}
	})
}

// The time of a condition is that of the last change of its status.
func TestConditionTimes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var j Journal
		want := make(map[string]Condition)
		for i := range rapid.IntRange(1, 50).Draw(t, "steps") {
			at := time.UnixMilli(int64(100 + i))
			for _, c := range j.Observe(Judge(drawFacts(t)), at) {
				if was, ok := want[c.Type]; !ok || was.Status != c.Status {
					was.UnixMs = at.UnixMilli()
					want[c.Type] = Condition{Status: c.Status, UnixMs: was.UnixMs}
				}
				if c.UnixMs != want[c.Type].UnixMs || c.Reason == "" {
					t.Fatalf("%+v, want %+v", c, want[c.Type])
				}
			}
			j = Restore(throughJSON(t, j.Snapshot()))
		}
	})
}

func drawFacts(t *rapid.T) Facts {
	text := rapid.SampledFrom([]string{"", "text"})
	states := []string{"Pending", "Running", "Suspended", "Succeeded", "Failed", "Stopped"}
	return Facts{
		State:  rapid.SampledFrom(states).Draw(t, "state"),
		Reason: text.Draw(t, "reason"), Waiting: text.Draw(t, "waiting"),
		Queue: text.Draw(t, "queue"), Queued: text.Draw(t, "queued"),
		Asked: rapid.IntRange(1, 3).Draw(t, "asked"), Working: rapid.IntRange(0, 3).Draw(t, "working"),
		Saves: rapid.Bool().Draw(t, "saves"), Saved: rapid.Int64Range(0, 1).Draw(t, "saved"),
		Unsaved: text.Draw(t, "unsaved"),
	}
}

// The conditions of typical jobs.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name  string
		facts Facts
		want  string // those that hold, and the messages of all
	}{
		{"waits for quota", Facts{State: "Pending", Queue: "team-a", Queued: "1 of 3 pods has quota", Asked: 4,
			Waiting: "no worker runs"},
			"Admitted=false WaitingForQuota (1 of 3 pods has quota)|Running=false Waiting (no worker runs)|Degraded=false Pending|" +
				"Checkpointed=false NotConfigured (no checkpoint is known to the job)|Complete=false NotSucceeded|Failed=false NotFailed"},
		{"trains with fewer", Facts{State: "Running", Asked: 4, Working: 3, Saves: true, Saved: 7,
			Holds: "version 1,200 with 5,000 records"},
			"Admitted=true NoQueue|Running=true Training (3 of 4 workers)|Degraded=true WorkersMissing (3 of 4 workers run)|" +
				"Checkpointed=true CheckpointWritten (version 1,200 with 5,000 records)|Complete=false NotSucceeded|Failed=false NotFailed"},
		{"stuck", Facts{State: "Running", Asked: 4, Working: 3, Stuck: "rank 1"},
			"Admitted=true NoQueue|Running=false NoProgress (rank 1)|Degraded=true NoProgress (rank 1)|" +
				"Checkpointed=false NotConfigured (no checkpoint is known to the job)|Complete=false NotSucceeded|" +
				"Failed=false NotFailed"},
		{"stuck without a master", Facts{State: "Running", Asked: 1, Working: 1, Stuck: "x", Waiting: "master"},
			"Admitted=true NoQueue|Running=false Waiting (master)|Degraded=true NoProgress (x)|" +
				"Checkpointed=false NotConfigured (no checkpoint is known to the job)|Complete=false NotSucceeded|" +
				"Failed=false NotFailed"},
		{"stopped as it was stuck", Facts{State: "Stopped", Reason: "by me", Stuck: "x"},
			"Admitted=false Finished|Running=false Finished|Degraded=false Finished|" +
				"Checkpointed=false NotConfigured (no checkpoint is known to the job)|Complete=false NotSucceeded|" +
				"Failed=true Stopped (by me)"},
		{"disk full", Facts{State: "Running", Asked: 1, Working: 1, Saves: true, Unsaved: "no space left",
			Problems: []string{"no space left on /home"}},
			"Admitted=true NoQueue|Running=true Training (1 of 1 workers)|Degraded=true Problem (no space left on /home)|" +
				"Checkpointed=false CheckpointFailed (the last attempt: no space left)|Complete=false NotSucceeded|Failed=false NotFailed"},
		{"suspended", Facts{State: "Suspended", Queue: "team-a", Asked: 1, Saves: true, Saved: 7, Holds: "version 9"},
			"Admitted=false Suspended|Running=false Suspended|Degraded=false Suspended|" +
				"Checkpointed=true CheckpointWritten (version 9)|Complete=false NotSucceeded|Failed=false NotFailed"},
		{"resumed, its bucket away", Facts{State: "Running", Asked: 1, Working: 1, Saves: true, Unread: true},
			"Admitted=true NoQueue|Running=true Training (1 of 1 workers)|Degraded=false AsRequested|" +
				"Checkpointed=false Unread (the directory could not be read yet)|Complete=false NotSucceeded|Failed=false NotFailed"},
		{"stopped", Facts{State: "Stopped", Reason: "stopped: by me", Waiting: "x", Queue: "q", Queued: "y", Asked: 1},
			"Admitted=false Finished|Running=false Finished|Degraded=false Finished|" +
				"Checkpointed=false NotConfigured (no checkpoint is known to the job)|Complete=false NotSucceeded|" +
				"Failed=true Stopped (stopped: by me)"},
		{"succeeded", Facts{State: "Succeeded", Asked: 1, Saves: true},
			"Admitted=false Finished|Running=false Finished|Degraded=false Finished|Checkpointed=false NoneYet|" +
				"Complete=true Succeeded|Failed=false NotFailed"},
	} {
		var got []string
		for _, c := range Judge(c.facts) {
			text := fmt.Sprintf("%s=%t %s", c.Type, c.Status, c.Reason)
			if c.Message != "" {
				text += " (" + c.Message + ")"
			}
			got = append(got, text)
		}
		if text := strings.Join(got, "|"); text != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.name, text, c.want)
		}
	}
}
