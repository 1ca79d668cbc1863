package role

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// JournalOf returns the journal of a job: that in the last record of its masters or, if they have
// written none, that of before, when the job was resumed.
func JournalOf(record, before []byte) (journal.Snapshot, error) {
	if len(record) > 0 {
		return master.ReadJournal(record)
	}
	return DecodeJournal(before)
}

// Concluded returns the journal that a job has when it is resumed: with the end of the job, which
// its last status tells if no master could write it. A suspended job has not ended.
func Concluded(s journal.Snapshot, last *wire.JobStatus) journal.Snapshot {
	kinds := map[job.State]journal.Kind{job.Failed: journal.TrainingFailed, job.Stopped: journal.TrainingStopped}
	kind, ended := kinds[job.State(last.GetState())]
	j := journal.Restore(s)
	if !ended || j.Over() {
		return s
	}
	j.Add(journal.Entry{Kind: kind, Text: logline.Escape(last.Reason)}, time.UnixMilli(last.EndedUnixMs))
	records, account := s.Book, s.Goodput.Totals()
	s = j.Snapshot()
	s.Book, s.Goodput = records, account
	s.Conditions = nil // they are those of a job that runs
	return s
}

// EncodePast returns the journal and the curves of a job as text, for [DecodeJournal] and
// [DecodeCurve].
func EncodePast(s journal.Snapshot, c curve.Snapshot) ([]byte, error) {
	return json.Marshal(struct {
		journal.Snapshot
		Curve curve.Snapshot `json:"curve,omitzero"`
	}{s, c})
}

// DecodeJournal reads a journal; empty text is an empty one.
func DecodeJournal(text []byte) (s journal.Snapshot, err error) {
	if len(text) == 0 {
		return s, nil
	}
	if err := json.Unmarshal(text, &s); err != nil {
		return s, fmt.Errorf("read the journal of the job: %w", err)
	}
	return s, nil
}

// CurveOf returns the curves of a job: those in the last record of its masters or, if they have
// written none, those of before, when the job was resumed.
func CurveOf(record, before []byte) (curve.Snapshot, error) {
	if len(record) > 0 {
		return master.ReadCurve(record)
	}
	return DecodeCurve(before)
}

// DecodeCurve reads the curves that [EncodePast] wrote; empty text has empty ones.
func DecodeCurve(text []byte) (curve.Snapshot, error) { return master.ReadCurve(text) }

// View is a job as its page shows it.
type View struct {
	Status  *wire.JobStatus
	Journal journal.Snapshot
	Curve   curve.Snapshot
}

// ViewOf returns the answer of a master.
func ViewOf(r *wire.WatchReply) (v View, err error) {
	v.Status = r.Status
	if v.Journal, err = DecodeJournal(r.Journal); err != nil {
		return v, err
	}
	if len(r.Curve) == 0 { // of a master of an older version
		return v, nil
	}
	if err := json.Unmarshal(r.Curve, &v.Curve); err != nil {
		return v, fmt.Errorf("read the curves of the job: %w", err)
	}
	return v, nil
}
