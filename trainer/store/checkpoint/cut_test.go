package checkpoint

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// cutOf returns the cut of a job with these shards.
func cutOf(shards []task.Shard) Cut {
	c := Cut{RecordsPerTask: 64, Shuffle: true, Seed: 5, MaxRecords: 900}
	c.Shards, c.Content = HashShards(shards)
	return c
}

func shardsOf(n int) []task.Shard {
	shards := make([]task.Shard, n)
	for i := range shards {
		shards[i] = task.Shard{Name: fmt.Sprintf("f%d", i), Count: int64(100 + i),
			Bytes: int64(1000 + i), Sum: uint64(7 * (i + 1))}
	}
	return shards
}

// A commit is of one cut of one data set. Differences are named, and times of files are ignored.
func TestChanges(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(cut *Cut, shards *[]task.Shard)
		want   []string
	}{
		{"nothing", func(*Cut, *[]task.Shard) {}, nil},
		{"tasks", func(c *Cut, _ *[]task.Shard) { c.RecordsPerTask = 32 },
			[]string{"a task has 32 records (--minibatch_size times --num_minibatches_per_task), and had 64"}},
		{"end", func(c *Cut, _ *[]task.Shard) { c.MaxRecords = 0 },
			[]string{"the training ends after 0 records (--minibatch_size times --max_step), and " +
				"was to end after 900"}},
		{"shuffle and seed", func(c *Cut, _ *[]task.Shard) {
			c.Shuffle, c.Seed = false, 6
		}, []string{"--shuffle=false, and was true"}},
		{"seed", func(c *Cut, _ *[]task.Shard) { c.Seed = 6 }, []string{"--seed=6, and was 5"}},
		{"content", func(_ *Cut, s *[]task.Shard) {
			(*s)[1].Sum++
		}, []string{"f1 has the same size and number of records, and other contents"}},
		{"size", func(_ *Cut, s *[]task.Shard) {
			(*s)[1].Bytes++
			(*s)[1].Sum++
		}, []string{"f1 has 1002 bytes, and had 1001"}},
		{"records", func(_ *Cut, s *[]task.Shard) { (*s)[2].Count = 9 }, []string{"f2 has 9 records, and had 102"}},
		{"renamed", func(_ *Cut, s *[]task.Shard) {
			(*s)[0].Name = "a0"
		}, []string{"a0 was not there", "f0 is not there"}},
		{"removed", func(_ *Cut, s *[]task.Shard) { *s = (*s)[1:] }, []string{"f0 is not there"}},
		{"order", func(_ *Cut, s *[]task.Shard) { slices.Reverse(*s) }, []string{"the data files have another order"}},
		{"many", func(_ *Cut, s *[]task.Shard) {
			for i := range *s {
				(*s)[i].Sum = 1
			}
		}, []string{"f0 has the same size and number of records, and other contents",
			"f1 has the same size and number of records, and other contents",
			"f2 has the same size and number of records, and other contents", "2 more files differ"}},
		{"three", func(_ *Cut, s *[]task.Shard) { (*s)[0].Sum, (*s)[1].Sum, (*s)[4].Sum = 1, 1, 1 },
			[]string{"f0 has the same size and number of records, and other contents",
				"f1 has the same size and number of records, and other contents",
				"f4 has the same size and number of records, and other contents"}},
		{"two things", func(c *Cut, s *[]task.Shard) {
			c.Seed, (*s)[3].Sum = 1, 1
		}, []string{"--seed=1, and was 5", "f3 has the same size and number of records, and other contents"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			commit := &Commit{Cut: cutOf(shardsOf(5)), Data: FilesOf(shardsOf(5))}
			shards := shardsOf(5)
			is := cutOf(shards)
			c.change(&is, &shards)
			is.Shards, is.Content = HashShards(shards)
			if got := commit.Changes(is, shards); !slices.Equal(got, c.want) {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A seed from which nothing is drawn may change.
func TestSeedWithoutShuffle(t *testing.T) {
	shards := shardsOf(1)
	is := cutOf(shards)
	is.Shuffle = false
	commit := &Commit{Cut: is, Data: FilesOf(shards)}
	is.Seed = 77
	if got := commit.Changes(is, shards); got != nil {
		t.Errorf("%q", got)
	}
}

// A commit of a version that had no hash of contents fits what has the same names and counts; of
// data with too many files it has the hash alone.
func TestChangesOfWhatIsNotNamed(t *testing.T) {
	shards := shardsOf(2)
	before := &Commit{Cut: cutOf(shards)}
	before.Cut.Content = ""
	other := shardsOf(2)
	other[0].Sum = 1
	if got := before.Changes(cutOf(other), other); got != nil {
		t.Errorf("a commit of before: %q", got)
	}
	other[0].Count = 1
	if got := before.Changes(cutOf(other), other); len(got) != 1 ||
		!strings.Contains(got[0], "some of the 2 data files have changed") {
		t.Errorf("a commit of before, of other shards: %q", got)
	}
	if n := len(FilesOf(shardsOf(mostFiles))); n != mostFiles {
		t.Errorf("%d files are named", n)
	}
	many := shardsOf(mostFiles + 1)
	if FilesOf(many) != nil {
		t.Error("a commit names too many files")
	}
	commit := &Commit{Cut: cutOf(many)}
	many[3].Sum = 1
	if got := commit.Changes(cutOf(many), many); len(got) != 1 ||
		!strings.Contains(got[0], "some of the 4097 data files have changed") {
		t.Errorf("%q", got)
	}
}
