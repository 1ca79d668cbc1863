// Package data reads training data by shard and number of record, from
// RecordIO files and from CSV files.
//
// Laws:
//
//  1. A shard is a file. Its name is relative to the data's directory, with
//     slashes, so that it means the same on every machine, and no name leads
//     out of that directory.
//  2. The shards of the same files are the same, in the same order: sorted by name.
//  3. Record i of a shard is always the same bytes; no record is passed over.
//  4. What cannot be read is an error that names the file, and in it the offset
//     of the chunk or the line.
//  5. An error of the storage under the data is told apart from one of the data: it is a [StorageError], and reading again
//     later may help.
//  6. A file is indexed once in a job: where the records of a task are is told to who reads them ([Files.Blocks],
//     [Files.Learn]). What the index says of a file that has changed since is an error, not other records.
//
// A record of a RecordIO file is whatever was written, mostly a
// tf.train.Example (package example). A record of a CSV file is a row as it
// lies in the file, quotes and all, without its line end: see [Fields].
package data

import "github.com/elasticdl/elasticdl/trainer/task"

// A Reader gives the records of a set of shards. It may be used by several
// goroutines.
type Reader interface {
	// Shards lists the shards that have records. That there are none is an error.
	Shards() ([]task.Shard, error)
	// ReadAt is record i of a shard, counted from 0 like the shard's Start. The
	// bytes stay valid, are shared, and must not be changed. After a [StorageError] the call may be repeated.
	ReadAt(shard string, i int64) ([]byte, error)
	// Learn notes where records of a shard are, in order, so that ReadAt need not look for them.
	Learn(shard string, blocks []task.Block) error
	// Looked returns how many bytes were read to find records. It rises while ReadAt looks for one, which may take long.
	Looked() int64
	Close() error
}
