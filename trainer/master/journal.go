package master

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// keptIncidents is the number of incidents that the status has.
const keptIncidents = 20

// events passes events on, and writes the journal.
type events struct {
	journal  journal.Journal
	recovery recovery
	// the pods whose end was ordered
	unwanted map[pod.ID]bool
	// see [Config].OnEvent and [Config].OnEntry; nil: no call
	on    func(Event)
	entry func(journal.Entry)
	// has an element when there are entries or ordered ends that may not be in a record
	fresh chan struct{}
	// number of the last entry that is in a record, or in one that is being written
	saved int64
}

// newEvents returns the events of a master. Its journal continues that of the master before, or
// that of the job before it was resumed.
func newEvents(c *Config, former *record) *events {
	unwanted := make(map[pod.ID]bool)
	if former != nil {
		for _, id := range former.Unwanted {
			unwanted[id] = true
		}
	}
	return &events{journal: journal.Restore(journalBefore(c, former)), unwanted: unwanted, on: c.OnEvent,
		entry: c.OnEntry,
		fresh: make(chan struct{}, 1)}
}

// journalBefore returns the journal of the master before, or that of the job before it was resumed.
func journalBefore(c *Config, former *record) journal.Snapshot {
	if former != nil {
		return former.Journal
	}
	return c.Journal
}

// happen writes an event to the journal, and passes both on. The caller holds the mutex, so that
// events come in the order of the facts.
func (e *events) happen(event Event) {
	if e.on != nil {
		e.on(event)
	}
	now := time.Now()
	entry := e.translate(event)
	if entry.Kind != journal.PodEnded { // one that was ordered is no loss
		e.recovery.hear(event, now)
	}
	if entry.Kind == "" {
		return
	}
	// it may be a program's own words
	entry.Text = logline.Escape(entry.Text)
	entry = e.journal.Add(entry, now)
	signal(e.fresh)
	if e.entry != nil {
		e.entry(entry)
	}
}

// progress notes how far the training is, and tells the end of a recovery. The caller holds the
// mutex.
func (e *events) progress(p progressed, now time.Time) {
	if took, ok := e.recovery.progress(p, now); ok {
		e.happen(Recovered{After: took})
	}
}

// translate returns the entry of an event; without a kind: the journal has none.
func (e *events) translate(event Event) journal.Entry {
	switch event := event.(type) {
	case PodUnwanted:
		if e.unwanted == nil {
			e.unwanted = make(map[pod.ID]bool)
		}
		e.unwanted[event.ID] = true
		signal(e.fresh)
		return journal.Entry{}
	case PodEnded:
		ordered := e.unwanted[event.ID] || event.Cause == "left"
		delete(e.unwanted, event.ID)
		return endOf(event, ordered)
	}
	return EntryOf(event)
}

// EntryOf returns the entry of an event; without a kind: the journal has none. The end of a pod is
// taken as one that was not ordered.
func EntryOf(event Event) journal.Entry {
	switch event := event.(type) {
	case PodEnded:
		return endOf(event, false)
	case PodJoined, PodReplaced, PodRefused, Scaled:
		return entryOfPods(event)
	case Leased, LeaseReturned:
		return journal.Entry{} // there are too many
	}
	if entry := entryOfTraining(event); entry.Kind != "" {
		return entry
	}
	return entryOfJob(event)
}

// endOf returns the entry of a pod's end, which may have been ordered.
func endOf(e PodEnded, ordered bool) journal.Entry {
	entry := journal.Entry{Kind: journal.PodLost, Pod: e.ID.String(), Incarnation: e.Incarnation, Cause: e.Cause,
		Text: e.Reason}
	switch {
	case e.GivenUp:
		entry.Kind = journal.PodFailed
		entry.Text += "; it is not replaced: --relaunch_on_worker_failure allows no more"
	case ordered:
		entry.Kind = journal.PodEnded
	case e.Counted:
		entry.Kind = journal.PodFailed
	case e.Rejected:
		entry.Kind = journal.PodRejected
	}
	return entry
}

// entryOfPods returns the entry of an event of the job's pods.
func entryOfPods(event Event) journal.Entry {
	switch e := event.(type) {
	case PodJoined:
		return journal.Entry{Kind: journal.PodJoined, Pod: e.ID.String(), Incarnation: e.Incarnation, Text: "joined"}
	case PodReplaced:
		return journal.Entry{Kind: journal.PodReplaced, Pod: e.ID.String(), Text: "replaced: " + e.Reason}
	case PodRefused:
		return journal.Entry{Kind: journal.FailedCreate, Pod: e.ID.String(), Text: e.Reason}
	case Scaled:
		return journal.Entry{Kind: journal.JobScaled, Size: e.Workers,
			Text: fmt.Sprintf("scaled from %d to %s", e.Before, workers(e.Workers))}
	}
	return journal.Entry{}
}

// entryOfTraining returns the entry of an event of the model or its data.
func entryOfTraining(event Event) journal.Entry {
	switch e := event.(type) {
	case WorldFormed:
		return journal.Entry{Kind: journal.WorldFormed, Generation: e.World.Generation, Size: len(e.World.Members),
			Version: e.Version,
			Text:    fmt.Sprintf("world %d formed: %s", e.World.Generation, workers(len(e.World.Members)))}
	case EpochFinished:
		text := fmt.Sprintf("epoch %d finished", e.Epoch)
		if e.Records > 0 { // 0: it is not known how many
			text += fmt.Sprintf(", %s records", logline.Thousands(e.Records))
		}
		return journal.Entry{Kind: journal.EpochFinished, Epoch: e.Epoch, Records: e.Records, Text: text}
	case TrainingFinished:
		return journal.Entry{Kind: journal.TrainingFinished, Version: e.Version,
			Text: "the training is finished at version " + logline.Thousands(e.Version)}
	case TrainingRestarted:
		return journal.Entry{Kind: journal.TrainingStartedOver, Generation: e.ModelGeneration, Records: e.Records,
			Text: fmt.Sprintf("the training started over from the initial values: %s; %s records were "+
				"trained on till then", e.Reason, logline.Thousands(e.Records))}
	case RolledBack:
		return journal.Entry{Kind: journal.TrainingRolledBack, Generation: e.ModelGeneration, Number: e.Checkpoint,
			Version: e.Version, Records: e.Records - e.Kept, Epoch: e.Epochs,
			Text: fmt.Sprintf("the training returned to checkpoint %d at version %s, with %s of %s "+
				"records: %s", e.Checkpoint, logline.Thousands(e.Version), logline.Thousands(e.Kept),
				logline.Thousands(e.Records), e.Reason)}
	case ProgramResumed:
		return journal.Entry{Kind: journal.TrainingRolledBack, Generation: e.ModelGeneration, Version: e.Step,
			Records: e.Repeated, Epoch: e.Epochs, Text: e.Words()}
	case Resumed:
		from := fmt.Sprintf("checkpoint %d at version %s", e.Number, logline.Thousands(e.Version))
		if e.Number == 0 {
			from = "the checkpoint of its program"
		}
		return journal.Entry{Kind: journal.TrainingResumed, Number: e.Number, Version: e.Version, Records: e.Records,
			Epoch: e.Epochs, Text: fmt.Sprintf("the training continues from %s, with %s records", from,
				logline.Thousands(e.Records))}
	case CheckpointWritten:
		return journal.Entry{Kind: journal.CheckpointWritten, Number: e.Number, Version: e.Version, Records: e.Records,
			Text: fmt.Sprintf("checkpoint %d written at version %s, with %s records", e.Number,
				logline.Thousands(e.Version), logline.Thousands(e.Records))}
	case CheckpointFailed:
		return journal.Entry{Kind: journal.CheckpointFailed, Number: e.Number,
			Text: fmt.Sprintf("checkpoint %d was given up, and is tried again: %s", e.Number, e.Reason)}
	case CheckpointDamaged:
		return journal.Entry{Kind: journal.CheckpointDamaged, Number: e.Number,
			Text: fmt.Sprintf("checkpoint %d cannot be used: %s", e.Number, e.Reason)}
	case Evaluated:
		return journal.Entry{Kind: journal.Evaluated, Version: e.Version, Metrics: e.Metrics,
			Text: "evaluated version " + logline.Thousands(e.Version)}
	case EvaluationWithdrawn:
		return journal.Entry{Kind: journal.EvaluationWithdrawn, Version: e.Version,
			Text: fmt.Sprintf("the evaluation of version %s was given up", logline.Thousands(e.Version))}
	}
	return journal.Entry{}
}

// entryOfJob returns the entry of an event of the job as a whole.
func entryOfJob(event Event) journal.Entry {
	switch e := event.(type) {
	case Started:
		if e.Resumed {
			return journal.Entry{Kind: journal.JobContinued, Text: "The job is resumed"}
		}
		return journal.Entry{Kind: journal.JobStarted, Text: "The job begins"}
	case ProgramFailed:
		return journal.Entry{Kind: journal.ProgramFailed, Text: e.Text}
	case MasterReplaced:
		if e.Planned {
			return journal.Entry{Kind: journal.JobContinued, Number: int64(e.Incarnation), Text: "The job continues"}
		}
		return journal.Entry{Kind: journal.MasterLost, Number: int64(e.Incarnation),
			Text: fmt.Sprintf("the master was lost, and came back as its incarnation %d", e.Incarnation)}
	case Suspended:
		return journal.Entry{Kind: journal.JobSuspended, Text: "The job is suspended"}
	case QuotaReturned:
		return journal.Entry{Kind: journal.QuotaReturned, Seconds: e.Pause.Seconds(), Text: e.Words()}
	case Waits:
		return journal.Entry{Kind: journal.Waiting, Text: e.Words() + ": " + e.Reason}
	case Continues:
		return journal.Entry{Kind: journal.Continued, Seconds: e.After.Seconds(),
			Text: fmt.Sprintf("%s after %v", e.Words(), e.After.Round(time.Second))}
	case Stuck:
		return journal.Entry{Kind: journal.Stuck, Seconds: e.For.Seconds(), Ranks: e.Ranks, Text: e.Words()}
	case Unstuck:
		return journal.Entry{Kind: journal.Unstuck, Seconds: e.After.Seconds(), Text: e.Words()}
	case WorkerSlow:
		return journal.Entry{Kind: journal.WorkerSlow, Pod: workerName(e.Worker), Text: e.Pace()}
	case WorkerAtPace:
		return journal.Entry{Kind: journal.WorkerAtPace, Pod: workerName(e.Worker), Seconds: e.After.Seconds(),
			Text: e.Words()}
	case Recovered:
		return journal.Entry{Kind: journal.Recovered, Seconds: e.After.Seconds(),
			Text: fmt.Sprintf("the training continues %v after the loss", e.After.Round(10*time.Millisecond))}
	case Ended:
		switch {
		case e.State == job.Succeeded && e.Err == nil:
			return journal.Entry{Kind: journal.TrainingSucceeded, Text: "every record of every epoch was trained on"}
		case e.State == job.Stopped:
			return journal.Entry{Kind: journal.TrainingStopped, Text: fmt.Sprint(e.Err)}
		}
		return journal.Entry{Kind: journal.TrainingFailed, Text: fmt.Sprint(e.Err)}
	}
	return journal.Entry{}
}

// describe returns the newest incidents for the status. How a job has ended that is over is not one
// of them: the status has its reason.
func (e *events) describe() (all []*wire.Incident) {
	incidents := e.journal.Incidents(keptIncidents)
	if e.journal.Over() {
		end, _ := e.journal.Newest(func(e journal.Entry) bool { return e.Kind.End() })
		incidents = slices.DeleteFunc(incidents, func(e journal.Entry) bool { return e.N == end.N })
	}
	for _, i := range incidents {
		all = append(all, &wire.Incident{UnixMs: i.UnixMs, Kind: string(i.Kind), Text: i.Words()})
	}
	return all
}

// ReadJournal returns the journal in a record of a master, as [Memory] stores it; an empty one if
// there is no record.
func ReadJournal(text []byte) (journal.Snapshot, error) {
	var r struct {
		Journal journal.Snapshot `json:"journal"`
	}
	if len(text) == 0 {
		return r.Journal, nil
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return journal.Snapshot{}, fmt.Errorf("read the journal of the job: %w", err)
	}
	return r.Journal, nil
}
