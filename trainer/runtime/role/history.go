package role

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// HistoryOf returns the history that a job has when it is resumed: that of its last status, and how
// it has ended. A suspended job has not ended.
func HistoryOf(last *wire.JobStatus) []*wire.Incident {
	all := slices.Clone(last.GetHistory())
	if state := job.State(last.GetState()); state == job.Failed || state == job.Stopped {
		text := fmt.Sprintf("the job %s", state)
		if last.Reason != "" {
			text += ": " + last.Reason
		}
		all = append(all, &wire.Incident{UnixMs: last.EndedUnixMs, Kind: master.IncidentJob, Text: text})
	}
	return all
}

// EncodeHistory returns a history as text, for [DecodeHistory].
func EncodeHistory(all []*wire.Incident) ([]byte, error) {
	return protojson.Marshal(&wire.JobStatus{History: all})
}

// DecodeHistory reads a history; empty text is an empty one.
func DecodeHistory(text []byte) ([]*wire.Incident, error) {
	if len(text) == 0 {
		return nil, nil
	}
	s := new(wire.JobStatus)
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("read the history of the job: %w", err)
	}
	return s.History, nil
}
