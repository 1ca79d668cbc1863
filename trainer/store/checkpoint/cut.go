package checkpoint

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// Cut describes how the open epoch was cut into tasks: an epoch that was begun ends with its cut.
type Cut struct {
	RecordsPerTask int64  `json:"records_per_task"`
	Shuffle        bool   `json:"shuffle"`
	Seed           uint64 `json:"seed"`
	MaxRecords     int64  `json:"max_records"`
	Shards         string `json:"shards"` // hash of names and record counts
	// Content is a hash of sizes and contents of the shards; "": a version that did not have it
	// wrote the commit.
	Content string `json:"content,omitempty"`
}

// DataFile is one shard of the training data, as a commit names it.
type DataFile struct {
	Name    string `json:"name"`
	Records int64  `json:"records"`
	Bytes   int64  `json:"bytes"`
	Sum     string `json:"sum"` // of the content
}

// mostFiles limits the files that a commit names. Of data with more files it has the hash only.
const mostFiles = 4096

// FilesOf returns the files of shards, as a commit has them: none if there are too many.
func FilesOf(shards []task.Shard) []DataFile {
	if len(shards) > mostFiles {
		return nil
	}
	files := make([]DataFile, len(shards))
	for i, s := range shards {
		files[i] = DataFile{s.Name, s.Count, s.Bytes, fmt.Sprintf("%016x", s.Sum)}
	}
	return files
}

// HashShards returns the hash of the names and record counts of shards, and that of their sizes
// and contents.
func HashShards(shards []task.Shard) (names, content string) {
	n, c := fnv.New64a(), fnv.New64a()
	for _, s := range shards {
		fmt.Fprintf(n, "%q %d %d\n", s.Name, s.Start, s.Count)
		fmt.Fprintf(c, "%q %d %x\n", s.Name, s.Bytes, s.Sum)
	}
	return fmt.Sprintf("%016x", n.Sum64()), fmt.Sprintf("%016x", c.Sum64())
}

// Changes returns in which way a job that cuts its records as is, with these shards, differs from
// the one that wrote the commit; none: it may continue from the commit. Times of files do not
// count, so a copy of the data will do.
func (c *Commit) Changes(is Cut, shards []task.Shard) []string {
	var changes []string
	had := c.Cut
	note := func(differs bool, format string, args ...any) {
		if differs {
			changes = append(changes, fmt.Sprintf(format, args...))
		}
	}
	note(had.RecordsPerTask != is.RecordsPerTask,
		"a task has %d records (--minibatch_size times --num_minibatches_per_task), and had %d",
		is.RecordsPerTask, had.RecordsPerTask)
	note(had.MaxRecords != is.MaxRecords,
		"the training ends after %d records (--minibatch_size times --max_step), and was to end "+
			"after %d", is.MaxRecords, had.MaxRecords)
	note(had.Shuffle != is.Shuffle, "--shuffle=%v, and was %v", is.Shuffle, had.Shuffle)
	note(had.Shuffle && is.Shuffle && had.Seed != is.Seed, "--seed=%d, and was %d", is.Seed, had.Seed)
	if had.Shards != is.Shards || had.Content != is.Content && had.Content != "" {
		changes = append(changes, ChangedFiles(c.Data, shards)...)
	}
	return changes
}

// namedFiles limits the files that a message names.
const namedFiles = 3

// ChangedFiles returns which shards are not those of before, and in what they differ, as text.
// The caller knows that some are not.
func ChangedFiles(had []DataFile, shards []task.Shard) []string {
	if len(had) == 0 || len(shards) > mostFiles {
		return []string{fmt.Sprintf("some of the %d data files have changed", len(shards))}
	}
	before := make(map[string]DataFile, len(had))
	for _, f := range had {
		before[f.Name] = f
	}
	var found []string
	for _, f := range FilesOf(shards) {
		was, known := before[f.Name]
		delete(before, f.Name)
		switch {
		case !known:
			found = append(found, fmt.Sprintf("%s was not there", f.Name))
		case f.Records != was.Records:
			found = append(found, fmt.Sprintf("%s has %d records, and had %d", f.Name, f.Records, was.Records))
		case f.Bytes != was.Bytes:
			found = append(found, fmt.Sprintf("%s has %d bytes, and had %d", f.Name, f.Bytes, was.Bytes))
		case f.Sum != was.Sum:
			found = append(found, fmt.Sprintf("%s has the same size and number of records, and other contents", f.Name))
		}
	}
	gone := make([]string, 0, len(before))
	for name := range before {
		gone = append(gone, fmt.Sprintf("%s is not there", name))
	}
	slices.Sort(gone)
	if found = append(found, gone...); len(found) == 0 {
		return []string{"the data files have another order"}
	}
	if more := len(found) - namedFiles; more > 0 {
		found = append(found[:namedFiles], fmt.Sprintf("%d more files differ", more))
	}
	return found
}
