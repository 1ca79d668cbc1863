// Package data reads records of training data by shard and index, from RecordIO
// files and from CSV files.
//
//	master   Open ── Shards (indexes every file) ── Blocks of each task it leases ─┐
//	worker   Open ── Learn <───────────────────────────────────────────────────────┘
//	              └─ ReadAt(shard, i), which indexes the file only if the block of i was not learned
//
// Laws:
//
//  1. A shard is a file. Its name is the path relative to the data directory, with slashes, so that
//     it means the same on every machine. No name leads out of that directory.
//  2. The same files give the same shards in the same order: sorted by name.
//  3. Record i of a shard is always the same bytes. No record is skipped.
//  4. An error of reading names the file, and in it the offset of the chunk or the line.
//  5. Errors of the storage are distinct from errors of the data: they are an [outage.Error], and a
//     later attempt may succeed.
//  6. Only the master indexes files. It passes the positions of a task's records on to the worker
//     ([Files.Blocks], [Files.Learn]). If the file has changed since, reading it fails; it never
//     returns other records.
//
// A record of a RecordIO file is any bytes, usually a tf.train.Example (package example). A record
// of a CSV file is one unchanged row, with its quotes and without its line end: see [Fields].
package data

import "github.com/elasticdl/elasticdl/trainer/elastic/task"

// A Reader reads the records of a set of shards. It is safe for concurrent use.
type Reader interface {
	// Shards lists the shards that have records. It fails if there are none.
	Shards() ([]task.Shard, error)
	// ReadAt returns record i of a shard, counted from 0 like the shard's Start. The bytes stay
	// valid. They are shared, so callers must not change them. After an [outage.Error] the call may
	// be repeated.
	ReadAt(shard string, i int64) ([]byte, error)
	// Learn stores the positions of some records of a shard, so that ReadAt need not index the
	// file. The blocks are in order.
	Learn(shard string, blocks []task.Block) error
	// Looked returns how many bytes were read to index files. It rises while ReadAt indexes a long
	// file, as a sign of progress.
	Looked() int64
	// Close makes running and later reads fail.
	Close() error
}
