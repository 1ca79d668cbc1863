package local

import (
	"context"
	"errors"
	"io/fs"
	"os"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// journalFile has the journal of a job before it was resumed.
const journalFile = "journal.json"

// writeJournal keeps the journal of a job that is resumed. The caller gives its last status.
func (d dir) writeJournal(s journal.Snapshot, last *wire.JobStatus) error {
	text, err := role.EncodeJournal(role.Concluded(s, last))
	if err != nil {
		return err
	}
	return d.write(journalFile, append(text, '\n'))
}

// readJournal returns the journal before the job was resumed; an empty one if it was not.
func (d dir) readJournal() (journal.Snapshot, error) {
	text, err := d.readAny(journalFile)
	if err != nil {
		return journal.Snapshot{}, err
	}
	return role.DecodeJournal(text)
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
func (d dir) journal() (journal.Snapshot, error) {
	record, err := d.readAny(recordFile)
	if err != nil {
		return journal.Snapshot{}, err
	}
	before, err := d.readAny(journalFile)
	if err != nil {
		return journal.Snapshot{}, err
	}
	return role.JournalOf(record, before)
}

// readAny returns the text of a file of the directory; nil if it does not exist.
func (d dir) readAny(file string) ([]byte, error) {
	text, err := os.ReadFile(d.path(file))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return text, err
}
