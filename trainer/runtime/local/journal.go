package local

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// journalFile has the journal of a job before it was resumed.
const journalFile = "journal.json"

// writeJournal keeps the journal of a job that is resumed. The caller gives its last status.
func (d dir) writeJournal(s journal.Snapshot, last *wire.JobStatus) error {
	drawn, err := d.curve()
	if err != nil { // the job can continue without it
		drawn = curve.Snapshot{}
	}
	text, err := role.EncodePast(role.Concluded(s, last), drawn)
	if err != nil {
		return err
	}
	return d.write(journalFile, append(text, '\n'))
}

// readPast returns the journal and the curves before the job was resumed; empty ones if it was not.
func (d dir) readPast() (s journal.Snapshot, drawn curve.Snapshot, err error) {
	text, err := d.readAny(journalFile)
	if err != nil {
		return s, drawn, err
	}
	if s, err = role.DecodeJournal(text); err != nil {
		return s, drawn, err
	}
	drawn, err = role.DecodeCurve(text)
	return s, drawn, err
}

// Journal returns the journal of a job, as its master wrote it last: some seconds ago at most.
// It returns [ErrNotFound] if there is no such job.
func Journal(_ context.Context, name string) (journal.Snapshot, error) {
	d, err := existing(name)
	if err != nil {
		return journal.Snapshot{}, err
	}
	s, err := d.journal()
	if err != nil {
		return s, err
	}
	last, err := d.stored()
	if err != nil {
		return s, nil
	}
	return role.Concluded(s, last), nil
}

// journal returns the journal of the job, from the files of its directory.
func (d dir) journal() (journal.Snapshot, error) { return fromRecord(d, role.JournalOf) }

// curve returns the curves of the job, from the files of its directory.
func (d dir) curve() (curve.Snapshot, error) { return fromRecord(d, role.CurveOf) }

// fromRecord reads something of the record of the last master, or of the time before the resume.
func fromRecord[T any](d dir, read func(record, before []byte) (T, error)) (none T, err error) {
	record, err := d.readAny(recordFile)
	if err != nil {
		return none, err
	}
	before, err := d.readAny(journalFile)
	if err != nil {
		return none, err
	}
	return read(record, before)
}

// View returns a job as its page shows it: its master's answer, or what was written last if no
// master answers. It returns [ErrNotFound] if there is no such job.
func View(ctx context.Context, name string) (role.View, error) {
	d, err := existing(name)
	if err != nil {
		return role.View{}, err
	}
	if d.alive() {
		var reply *wire.WatchReply
		err := d.ask(ctx, func(ctx context.Context, m wire.JobClient) (err error) {
			reply, err = m.Watch(ctx, new(wire.WatchRequest))
			return err
		})
		if err == nil {
			v, err := role.ViewOf(reply)
			d.withMaster(v.Status)
			return v, err
		}
	}
	v := role.View{}
	if v.Status, err = d.status(ctx); err != nil {
		return v, err
	}
	if v.Journal, err = Journal(ctx, name); err != nil {
		return v, err
	}
	v.Curve, err = d.curve()
	return v, err
}

// readAny returns the text of a file of the directory; nil if it does not exist.
func (d dir) readAny(file string) ([]byte, error) {
	text, err := os.ReadFile(d.path(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
