package master

import (
	"fmt"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// loss is the loss of all states of a program's processes. Only its processes know their
// checkpoint: the checkpoint that they read, or the initial values. Until they have said it, the
// master claims neither.
type loss struct {
	ModelGeneration int64  `json:"life"`
	Reason          string `json:"reason"`
	Records         int64  `json:"records,omitempty"` // number of records that were credited
	// AtLeast reports whether more records may have been trained on: the master was lost, too.
	AtLeast bool  `json:"atLeast,omitempty"`
	After   int64 `json:"after"` // the last generation before the loss
	// Rested reports whether nothing was lost: the job has rested, and its processes ended as
	// planned.
	Rested bool `json:"rested,omitempty"`
}

// lose notes that all states are lost. The training continues in the given generation with what
// processes find.
func (g *program) lose(l loss) {
	l.After = g.ring.custody.World().Generation
	g.lost = &l
	g.progress.rolledBack(l.Reason + "; the program starts again, from what it has saved")
}

// rested notes that all processes have ended as planned, with a number of records in their states.
// They continue from what they have saved, which may be less.
func (g *program) rested(records int64) {
	if records > 0 && g.lost == nil {
		// none of their agents is left that could tell the beginning of an earlier world
		g.lost = &loss{ModelGeneration: g.Self.ModelGeneration(), Reason: "the job has rested", Records: records,
			Rested: true}
	}
}

// continues handles the first declaration of a data set in a job that was resumed: its book has the
// records of the job before, and the queue has none. If the program has not read its checkpoint
// yet, the records in that are credited again, and their epochs end again.
func (g *program) continues(read bool) {
	begun := g.begun
	g.begun = nil
	records := g.work.book.Records()
	if read || records == 0 || g.work.queue.Stats().Done > 0 {
		return
	}
	g.work.book.Set(new(ledger.Ledger))
	g.rested(records)
	// the queue can count the records of each ledger now
	if err := g.begunWith(begun); err != nil {
		g.Log.Warn("The state that the program began with is not of its data set", "reason", err)
	}
}

// begunWith handles what the first rank of a world has begun with that has no source: all ranks
// take its state.
func (g *program) begunWith(o *wire.Origin) error {
	if o != nil && g.work.dataset == nil {
		g.begun = o
		if g.work.book.Records() > 0 {
			// the declaration needs it, and it is reported once
			g.host.remember()
		}
	}
	if o == nil || g.lost == nil || o.Generation <= g.lost.After {
		return nil
	}
	var applied ledger.Ledger
	if len(o.Ledger) > 0 {
		var err error
		if applied, err = ledger.Parse(o.Ledger); err != nil {
			return err
		}
	}
	records := int64(0)
	if g.work.dataset != nil {
		// otherwise the declaration is refused
		if n, err := g.work.queue.Records(&applied); err == nil {
			records = n
		}
	}
	// its records are credited again, and their epochs end again
	g.found(o.Version, records, g.work.book.Finished())
	return nil
}

// found tells what the program continues from after a loss of all states: a state with that many
// updates, records and complete epochs, 0 for the initial values.
func (g *program) found(version, records int64, epochs int) {
	if g.lost == nil {
		return
	}
	l := g.lost
	g.lost = nil
	if l.Rested && records >= l.Records {
		g.events.happen(Resumed{Version: version, Records: records, Epochs: epochs})
		return
	}
	if version == 0 && records == 0 {
		g.progress.explain(rollbackText(kept{}, l.Records, l.Records > 0, l.Reason))
		g.Log.Warn("The training starts over: the program has read no checkpoint", "reason", l.Reason,
			"model_generation", l.ModelGeneration, "records", l.Records)
		g.events.happen(TrainingRestarted{ModelGeneration: l.ModelGeneration, Reason: l.Reason, Records: l.Records})
		return
	}
	e := ProgramResumed{ModelGeneration: l.ModelGeneration, Reason: l.Reason, Step: version, Records: records,
		Epochs: epochs, Repeated: max(0, l.Records-records), AtLeast: l.AtLeast}
	g.progress.explain(e.Words())
	g.Log.Warn("The program resumed from its checkpoint", "reason", l.Reason, "model_generation",
		l.ModelGeneration, "step",
		version, "records", records, "of", l.Records)
	g.events.happen(e)
}

// sets tells that the program has set the number of finished epochs, with the state of a checkpoint
// that it has read. If all states were lost, [program.found] tells it.
func (g *program) sets(before int64, epochs int) {
	records, now := g.work.queue.Stats().Done, g.work.book.Finished()
	switch {
	case g.lost != nil || now == epochs:
	case now > epochs:
		g.events.happen(Resumed{Records: records, Epochs: now})
	default:
		g.events.happen(ProgramResumed{ModelGeneration: g.Self.ModelGeneration(), Records: records, Epochs: now,
			Reason: "no process has kept its state", Repeated: max(0, before-records)})
	}
}

// ProgramResumed tells that all states of a program's processes were lost, and that it continues
// from its own checkpoint.
type ProgramResumed struct {
	// ModelGeneration is the model generation that begins.
	ModelGeneration int64
	Reason          string
	Step            int64 // number of updates in the checkpoint
	// Records is the number of records that are in the checkpoint, 0 if the program has declared no
	// data set.
	Records int64
	// Epochs is the number of epochs that are in the checkpoint completely.
	Epochs int
	// Repeated counts the records that were credited before and are not in the checkpoint. AtLeast
	// reports whether there may be more.
	Repeated int64
	AtLeast  bool
}

func (ProgramResumed) event() {}

// Words returns what has happened as text.
func (e ProgramResumed) Words() string {
	text := "resumed from the checkpoint at step " + logline.Thousands(e.Step)
	if e.Records > 0 {
		text += fmt.Sprintf(", with %s records", logline.Thousands(e.Records))
	}
	if e.Repeated > 0 {
		text += "; "
		if e.AtLeast {
			text += "at least "
		}
		text += logline.Thousands(e.Repeated) + " records are repeated"
	}
	return text + ": " + e.Reason
}
