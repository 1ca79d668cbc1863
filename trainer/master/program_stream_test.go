package master

import (
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/elasticdl/elasticdl/trainer/elastic/audit"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A program may train on shards whose lengths it finds by reading. The status has no total, a shard
// is done when its end is reported, the next master knows how many records were credited, and the
// audit proves that each shard was read from its first record to its end.
func TestProgramOfShardsOfUnknownLength(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, runJob(0))
		a, b := r.peer(0), r.peer(1)
		d := &wire.Dataset{Size: 2, Epochs: 2, Task: 1, Stream: true, Digest: 5}
		_, err := r.asks(0, &wire.Dataset{Size: 2, Epochs: 2, Task: 4, Stream: true})
		wantCode(t, err, codes.InvalidArgument)
		if _, err := r.asks(0, d); err != nil {
			t.Fatal(err)
		}
		_, err = r.asks(1, &wire.Dataset{Size: 2, Epochs: 2, Task: 1, Stream: true, Digest: 6})
		wantCode(t, err, codes.FailedPrecondition)
		lengths := []int64{7, 0}
		read := func(lease *wire.Task) {
			t.Helper()
			if !lease.Stream || lease.Start != lease.Number {
				t.Fatalf("%v, want a shard of unknown length", lease)
			}
			r.say(&wire.ReportTaskRequest{Lease: lease.Lease, Done: ledger.End + lengths[lease.Number]})
		}
		first := r.task(0)
		_, err = r.ReportTask(t.Context(), &wire.ReportTaskRequest{Lease: first.Lease, Done: 7})
		if err == nil {
			t.Error("a shard is done, and its end was not reported")
		}
		read(first)
		second := r.task(0, first.Lease)
		if s := r.look(); s.RecordsDone != 7 || s.RecordsTotal != 0 || s.Epoch != 1 || s.Epochs != 2 {
			t.Errorf("status %v, want 7 records of an unknown number", s)
		}
		read(second)
		third := r.task(0)
		if third.Epoch != 2 {
			t.Errorf("%v, want a shard of the second epoch", third)
		}
		read(third)
		fourth := r.task(0)
		past, err := ReadJournal(r.memory.read())
		if err != nil {
			t.Fatal(err)
		}
		check := func(state string, want audit.Verdict) audit.Report {
			t.Helper()
			report := audit.Check(audit.Evidence{State: state, Program: true, Journal: past})
			if report.Verdict != want || report.Shards != 2 || report.Records != 0 {
				t.Errorf("the audit of a job in state %s is %+v, want %s", state, report, want)
			}
			return report
		}
		check("Running", audit.Proved)
		check("Stopped", audit.Incomplete)
		read(fourth)
		if end := r.task(0); end.Kind != wire.TaskKind_END {
			t.Errorf("%v, want the end", end)
		}
		a.says(func(r *wire.HeartbeatRequest) { r.Finished = 1 })
		b.says(func(r *wire.HeartbeatRequest) { r.Finished = 1 })
		r.finish(a, b)
		if past, err = ReadJournal(r.memory.read()); err != nil {
			t.Fatal(err)
		}
		if report := check("Succeeded", audit.Proved); report.Applied != 14 || report.Finished != 2 {
			t.Errorf("%+v, want 14 records of two epochs", report)
		}
	})
}

// A job that is resumed learns from the state how many records of shards of unknown length were
// credited in complete epochs, also if the journal is lost.
func TestResumedProgramCountsCompleteEpochs(t *testing.T) {
	for _, kept := range []bool{true, false} {
		t.Run(fmt.Sprintf("journal=%v", kept), func(t *testing.T) { countsCompleteEpochs(t, kept) })
	}
}

func countsCompleteEpochs(t *testing.T, kept bool) {
	bubble(t, func(t *testing.T) {
		d := &wire.Dataset{Size: 2, Epochs: 2, Task: 1, Stream: true}
		r := reign(t, runJob(0))
		a, b := r.peer(0), r.peer(1)
		if _, err := r.asks(0, d); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			lease := r.task(0)
			r.say(&wire.ReportTaskRequest{Lease: lease.Lease, Done: ledger.End + 5})
		}
		r.ends(Leave, ErrLeft)
		a.close()
		b.close()
		past, err := ReadJournal(r.memory.read())
		if err != nil {
			t.Fatal(err)
		}
		resumed := reign(t, func(c *Config) {
			if runJob(0)(c); kept {
				c.Journal = past
			}
		})
		p := resumed.stranger(0)
		go p.live(resumed.MasterClient)
		var saved ledger.Ledger
		saved.SettleCounted(1, 10)
		saved.Add(ledger.Task{Epoch: 2}, 3, ledger.End)
		p.arrive(&wire.Arrival{Round: 5, Version: 5, Ledger: saved.Append(nil), Process: 7,
			Crew: &wire.Crew{Processes: 1}})
		time.Sleep(20 * time.Second)
		p.nextWorld()
		if _, err := resumed.asks(0, d); err != nil {
			t.Fatal(err)
		}
		if s := resumed.look(); s.RecordsDone != 13 || s.Epoch != 2 {
			t.Errorf("%d records in epoch %d, want 10 of the first epoch and 3 of the second", s.RecordsDone, s.Epoch)
		}
		resumed.ends(Leave, ErrLeft)
		p.close()
		now, err := ReadJournal(resumed.memory.read())
		if err != nil {
			t.Fatal(err)
		}
		again := int64(0)
		if kept {
			again = 2
		}
		if got := audit.Check(audit.Evidence{State: "Running", Program: true, Journal: now}); got.Applied != 13 ||
			got.Verdict != audit.Proved || got.Repeated != again {
			t.Errorf("%+v, want 13 records, and %d that are due again", got, again)
		}
	})
}
