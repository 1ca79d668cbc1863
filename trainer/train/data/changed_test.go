package data

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// replaced are files of each format, and others with as many bytes and records.
var replaced = []struct {
	name, file    string
	before, after func(t *testing.T, dir string)
	// that has changed
	record int64
	params map[string]string
	// only what is above the records has changed
	blocksAreTheSame bool
}{
	{name: "RecordIO", file: "some", before: func(t *testing.T, dir string) { write(t, dir, "some", 100) },
		after: func(t *testing.T, dir string) {
			write(t, dir, "same", 100) // the records have the name
			if err := os.Rename(filepath.Join(dir, "same"), filepath.Join(dir, "some")); err != nil {
				t.Fatal(err)
			}
		}},
	{name: "a value", file: "a.csv", before: text("x,y\n1,2\n3,4\n"), after: text("x,y\n1,2\n3,5\n")},
	{name: "two rows changed places", file: "a.csv", before: text("x,y\n1,2\n3,4\n"), after: text("x,y\n3,4\n1,2\n")},
	{name: "without header", file: "a.csv", before: text("1,2\n3,4\n"), after: text("1,2\n3,5\n"),
		params: map[string]string{"header": "False"}},
	{name: "a column's name", file: "a.csv", before: text("x,y\n1,2\n"), after: text("x,z\n1,2\n"),
		blocksAreTheSame: true},
	{name: "an empty line moved", file: "a.csv", before: text("x,y\n1,2\n\n3,4\n5,6\n"),
		after: text("x,y\n1,2\n3,4\n\n5,6\n"), record: 2},
	{name: "in the second block", file: "a.csv", before: text(strings.Repeat("1,2\n", 3000)),
		after: text(strings.Repeat("1,2\n", 2999) + "1,3\n"), record: 2900},
}

func text(content string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) { writeFile(t, dir, "a.csv", content) }
}

// The sum of a shard tells files apart that have as many bytes and records. It does not depend on
// names and times, so a copy has the same.
func TestSumsAreOfContents(t *testing.T) {
	for _, c := range replaced {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			sum := func() (uint64, int64, int64) {
				shards, err := open(t, dir, c.params).Shards()
				if err != nil || len(shards) != 1 {
					t.Fatal(shards, err)
				}
				return shards[0].Sum, shards[0].Bytes, shards[0].Count
			}
			c.before(t, dir)
			before, bytes, records := sum()
			if info, err := os.Stat(filepath.Join(dir, c.file)); err != nil || info.Size() != bytes {
				t.Fatalf("%d bytes, the file has %d (%v)", bytes, info.Size(), err)
			}
			if err := os.Chtimes(filepath.Join(dir, c.file), time.Unix(1, 0), time.Unix(1, 0)); err != nil {
				t.Fatal(err)
			}
			if again, _, _ := sum(); again != before || before == 0 {
				t.Errorf("the sum is %x, and of a copy %x", before, again)
			}
			c.after(t, dir)
			if after, b, n := sum(); after == before || b != bytes || n != records {
				t.Errorf("sum %x, %d bytes, %d records; before %x, %d and %d", after, b, n, before, bytes, records)
			}
		})
	}
}

// A file that is replaced after it was indexed is not read, neither by who has indexed it nor by
// who was notified of the index.
func TestReplacedFileIsNotRead(t *testing.T) {
	for _, c := range replaced {
		if c.blocksAreTheSame {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			c.before(t, dir)
			whole, told := open(t, dir, c.params), open(t, dir, c.params)
			if _, err := whole.Shards(); err != nil {
				t.Fatal(err)
			}
			blocks := whole.Blocks(c.file, c.record, c.record+1)
			if err := told.Learn(c.file, blocks); err != nil || len(blocks) != 1 {
				t.Fatal(blocks, err)
			}
			c.after(t, dir)
			for i, r := range []*Files{whole, told} {
				b, err := r.ReadAt(c.file, c.record)
				if err == nil || !strings.Contains(err.Error(), "the file has changed") ||
					!strings.Contains(err.Error(), filepath.Join(dir, c.file)) {
					t.Errorf("reader %d has read %q, %v", i, b, err)
				}
			}
			c.before(t, dir) // it is restored
			for i, r := range []*Files{whole, told} {
				if _, err := r.ReadAt(c.file, c.record); err != nil {
					t.Errorf("reader %d: %v", i, err)
				}
			}
		})
	}
}
