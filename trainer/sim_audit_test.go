package trainer_test

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/audit"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// checkAudit asserts that the last record of the masters proves that each record was applied once,
// whatever befell the job. Without the package a program has no account.
func (s *simulation) checkAudit(t *testing.T, status *wire.JobStatus) {
	past, err := master.ReadJournal(s.record)
	if err != nil {
		t.Fatal(err)
	}
	want := audit.Proved
	if s.program != nil && !s.program.packaged {
		want = audit.Unprovable
	}
	r := audit.Check(audit.Evidence{State: status.GetState(), Program: s.program != nil, Journal: past})
	if r.Verdict == want {
		return
	}
	t.Errorf("the audit says %s %s, want %s: %+v", r.Verdict, r.Reason, want, r)
	for _, e := range past.Entries {
		t.Logf("%d %s epoch %d, %d records: %s", e.N, e.Kind, e.Epoch, e.Records, e.Text)
	}
}
