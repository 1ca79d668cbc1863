package master

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	// keptIncidents is the number of incidents that the history of a job has.
	keptIncidents = 20
	// keptIncident is the largest length of the text of an incident, in bytes.
	keptIncident = 600
)

// Kinds of incidents.
const (
	// a pod that was not to end has ended, or does not do its work
	incidentPod     = "pod"
	incidentProgram = "program" // a process of a program has failed
	incidentModel   = "model"   // the training returned
	incidentMaster  = "master"  // the master was lost
	incidentQuota   = "quota"   // the job gave its quota back
	// IncidentJob is the kind of the end of a job that was resumed later.
	IncidentJob = "job"
)

// incident is something that went wrong, as a record has it.
type incident struct {
	UnixMs int64  `json:"unixMs"`
	Kind   string `json:"kind"`
	Text   string `json:"text"`
}

// history has the newest incidents of a job, oldest first. It reads no clock. The zero value is
// that of a new job.
type history struct {
	all []incident
	// unwanted are the pods whose end was ordered: how they end is no incident.
	unwanted map[pod.ID]bool
}

// newHistory returns the history of a job that continues from earlier times, which are shortened if
// they are too long.
func newHistory(earlier []*wire.Incident) (h history) {
	for _, i := range earlier {
		h.add(incident{i.UnixMs, i.Kind, i.Text})
	}
	return h
}

// add appends an incident. If there are too many, the oldest of the kind with the most incidents is
// dropped, so that many of one kind drive out none of another.
func (h *history) add(i incident) {
	i.Text = logline.Escape(strings.ToValidUTF8(i.Text[:min(len(i.Text), keptIncident)], ""))
	h.all = append(h.all, i)
	if len(h.all) <= keptIncidents {
		return
	}
	number := make(map[string]int)
	for _, i := range h.all {
		number[i.Kind]++
	}
	most := slices.MaxFunc(h.all, func(a, b incident) int { return number[a.Kind] - number[b.Kind] })
	at := slices.IndexFunc(h.all, func(i incident) bool { return i.Kind == most.Kind })
	h.all = slices.Delete(h.all, at, at+1)
}

// hear notes an event, if it is an incident.
func (h *history) hear(e Event, now time.Time) {
	note := func(kind, text string) { h.add(incident{now.UnixMilli(), kind, text}) }
	switch e := e.(type) {
	case PodUnwanted:
		if h.unwanted == nil {
			h.unwanted = make(map[pod.ID]bool)
		}
		h.unwanted[e.ID] = true
	case PodReplaced:
		note(incidentPod, fmt.Sprintf("%v: replaced: %s", e.ID, e.Reason))
	case PodEnded:
		ordered := h.unwanted[e.ID] || e.Reason == "left"
		delete(h.unwanted, e.ID)
		switch {
		case e.GivenUp:
			note(incidentPod, fmt.Sprintf("%v: %s; not replaced", e.ID, e.Reason))
		case !ordered:
			note(incidentPod, fmt.Sprintf("%v: %s", e.ID, e.Reason))
		}
	case ProgramFailed:
		note(incidentProgram, e.Text)
	case TrainingRestarted:
		note(incidentModel, fmt.Sprintf("the training started over: %s", e.Reason))
	case RolledBack:
		note(incidentModel, fmt.Sprintf("the training returned to checkpoint %d: %s", e.Checkpoint, e.Reason))
	case ProgramResumed:
		note(incidentModel, e.Words())
	case CheckpointDamaged:
		note(incidentModel, fmt.Sprintf("checkpoint %d cannot be read: %s", e.Number, e.Reason))
	case QuotaReturned:
		note(incidentQuota, e.Words())
	case MasterReplaced:
		if !e.Planned {
			note(incidentMaster, fmt.Sprintf("the master was lost, and came back as its incarnation %d", e.Incarnation))
		}
	}
}

// save returns what a record keeps.
func (h *history) save() []incident { return slices.Clone(h.all) }

// restore sets what a record has kept.
func (h *history) restore(saved []incident) {
	h.all = nil
	for _, i := range saved {
		h.add(i)
	}
}

// describe returns the history for the status.
func (h *history) describe() (all []*wire.Incident) {
	for _, i := range h.all {
		all = append(all, &wire.Incident{UnixMs: i.UnixMs, Kind: i.Kind, Text: i.Text})
	}
	return all
}
