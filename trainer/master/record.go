package master

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/evaluation"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/lifecycle"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/rendezvous"
	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// recordFormat is the version of the meaning of a record.
const recordFormat = 2

// record is a master's state for the next one. The first part is written before anybody hears of
// it: numbers that were given out, the model generation, the world of a ring, the end. The rest is
// hints, which may be old. The holders of the model report what is in it.
type record struct {
	Format int `json:"format"`
	// incarnation of the master that wrote it
	By int `json:"by"`
	lifecycle.Snapshot
	ModelGeneration int64 `json:"life"`
	// the highest generation that may have begun
	HighestGeneration int64 `json:"lives"`
	// what that generation began with
	Base custody.Base `json:"base,omitzero"`
	// the highest number of a checkpoint that was begun
	Cut int64 `json:"cut,omitempty"`
	// checkpoints that could not be read and are not removed yet
	Damaged []checkpoint.Name `json:"damaged,omitempty"`
	Pods    pod.Snapshot      `json:"pods"`
	Ring    *savedRing        `json:"ring,omitempty"`
	Program *savedProgram     `json:"program,omitempty"`
	// what is read; nil: a program declares it
	Data *savedData `json:"data,omitempty"`
	// number of workers in the newest specification of the job
	Spec int `json:"spec"`
	// how often in a row the job has given back the quota of its queue
	Yields int `json:"yields,omitempty"`
	// number of records that were done
	Done int64 `json:"done,omitempty"`
	// number of records that were done before the job was resumed
	Resumed  int64 `json:"resumed,omitempty"`
	Rejected int64 `json:"rejected,omitempty"`
	// why the training last returned
	RollbackReason string `json:"anew,omitempty"`
	// how often the training returned
	Rewinds int `json:"rewinds,omitempty"`
	// what has happened
	Journal journal.Snapshot `json:"journal,omitzero"`
	// pods whose end was ordered, and is not seen yet
	Unwanted []pod.ID `json:"unwanted,omitempty"`
	// how the training has progressed
	Curve    curve.Snapshot   `json:"curve,omitzero"`
	Tasks    task.Snapshot    `json:"tasks"`
	Measures evaluation.Saved `json:"measures"`
	// the newest results
	Results   []checkpoint.Evaluation `json:"results,omitempty"`
	Evaluated int64                   `json:"evaluated,omitempty"`
}

// briefJournal is the number of the newest entries of the journal in a record that would be too
// large with all of them.
const briefJournal = 50

// savedRing is the part of a record about a ring.
type savedRing struct {
	Meeting rendezvous.Snapshot `json:"meeting"`
	Custody custody.SavedRing   `json:"custody"`
	// processes of the members, by worker
	Processes map[int]uint64 `json:"processes,omitempty"`
}

// savedData is the part of a record about the files that a job reads.
type savedData struct {
	Content string                `json:"content"` // hash of names, sizes and contents
	Files   []checkpoint.DataFile `json:"files,omitempty"`
}

// namedData is the largest number of files that a record names.
const namedData = 100

// saveData returns what the next master compares with the files that it finds. The caller holds the
// mutex.
func (m *master) saveData() *savedData {
	if m.program != nil {
		return nil
	}
	all := slices.Concat(m.Training, m.Validation)
	names, content := checkpoint.HashShards(all)
	s := &savedData{Content: names + content}
	if len(all) <= namedData {
		s.Files = checkpoint.FilesOf(all)
	}
	return s
}

// sameData returns an error if the files are not those of which a part is in the model: the next
// part would be of others.
func (m *master) sameData(was *savedData) error {
	is := m.saveData()
	if was == nil || is == nil || was.Content == is.Content {
		return nil
	}
	changes := checkpoint.ChangedFiles(was.Files, slices.Concat(m.Training, m.Validation))
	return fmt.Errorf("the data has changed since the job began: %s; restore it, or begin a new job",
		strings.Join(changes, "; "))
}

// memoir encodes the record. The caller holds the mutex.
func (m *master) memoir() ([]byte, error) {
	r := record{
		Format: recordFormat, By: m.Self.Header().Incarnation, Snapshot: m.stage.Snapshot(),
		ModelGeneration:   m.Self.ModelGeneration(),
		HighestGeneration: m.highestGeneration(), Base: m.checkpoints.base.Base, Cut: m.checkpoints.highestGiven(),
		Damaged: m.checkpoints.damages(),
		Pods:    m.fleet.table.Snapshot(), Data: m.saveData(),
		Spec: m.fleet.specified, Done: m.work.queue.Stats().Done, Rejected: m.contacts.rejectedBefore,
		Journal: m.events.journal.Snapshot(), Tasks: m.work.queue.Snapshot(),
	}
	r.Journal.Goodput = m.account.Snapshot()
	if m.admission != nil {
		r.Yields = m.admission.Attempts()
	}
	m.events.saved = r.Journal.Last
	r.Unwanted = slices.SortedFunc(maps.Keys(m.events.unwanted), pod.ID.Compare)
	m.work.enter()
	r.Journal.Book = m.work.book.Save()
	m.progress.save(&r)
	m.evaluations.save(&r)
	// nothing newer than the previous record is known
	if m.stage.Recovering() {
		r.Tasks, r.Done = m.handover.record.Tasks, m.handover.record.Done
	}
	if m.ring != nil {
		r.Ring = m.ring.save()
	}
	if m.program != nil {
		r.Program = m.program.save()
	}
	text, err := json.Marshal(r)
	if err == nil && len(text) > MostRecord {
		// the training needs the rest
		r.Journal.Brief = true
		r.Journal.Entries = r.Journal.Entries[max(0, len(r.Journal.Entries)-briefJournal):]
		r.Curve = curve.Snapshot{}
		r.Journal.Goodput = r.Journal.Goodput.Brief()
		text, err = json.Marshal(r)
	}
	if err == nil && len(text) > MostRecord {
		r.Tasks, r.Measures, r.Results = task.Snapshot{}, evaluation.Saved{}, nil
		text, err = json.Marshal(r)
	}
	if err == nil && len(text) > MostRecord {
		err = fmt.Errorf("%d bytes, more than the limit of %d", len(text), MostRecord)
	}
	return text, err
}

// readRecord decodes the record of the previous master; nil if there was none.
func readRecord(text []byte) (*record, error) {
	if len(text) == 0 {
		return nil, nil
	}
	r := new(record)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("read the record of the previous master: %w", err)
	}
	switch {
	case r.Format != recordFormat:
		return nil, fmt.Errorf("read the record of the previous master: format %d, expected %d: all "+
			"masters of a job must be of one version of elasticdl", r.Format, recordFormat)
	case r.ModelGeneration < 1 || r.By < 0 || r.HighestGeneration < 0 || r.Cut < 0 || r.Done < 0 || r.Resumed < 0 ||
		r.Evaluated < 0 || r.Rewinds < 0 || r.Spec < 0 || r.Yields < 0:
		return nil, fmt.Errorf("read the record of the previous master: impossible values: generation %d, "+
			"checkpoint %d, %d records, %d evaluations, %d workers", r.ModelGeneration, r.Cut, r.Done,
			r.Evaluated, r.Spec)
	}
	return r, nil
}
