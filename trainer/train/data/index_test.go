package data

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"pgregory.net/rapid"
)

// twoFiles writes one file of each format, with 5000 records each.
func twoFiles(t testing.TB) (dir string) {
	dir = t.TempDir()
	write(t, dir, "records", 5000)
	var rows strings.Builder
	rows.WriteString("a,b\n")
	for i := range 5000 {
		fmt.Fprintf(&rows, "%d,\"x\n%s\"\n", i, strings.Repeat("y", i%300))
		if i%7 == 0 {
			rows.WriteString("\n")
		}
	}
	writeFile(t, dir, "rows.csv", rows.String())
	return dir
}

// A reader that learned the blocks of records reads the same records as one that indexed the file,
// without indexing it.
func TestBlocks(t *testing.T) {
	dir := twoFiles(t)
	whole := open(t, dir, nil)
	if whole.Blocks("rows.csv", 0, 10) != nil {
		t.Error("blocks of a file that is not indexed")
	}
	if _, err := whole.Shards(); err != nil {
		t.Fatal(err)
	}
	for _, shard := range []string{"records", "rows.csv"} {
		told := open(t, dir, nil)
		rapid.Check(t, func(t *rapid.T) {
			start := rapid.Int64Range(0, 4999).Draw(t, "start")
			end := rapid.Int64Range(start+1, 5000).Draw(t, "end")
			blocks := whole.Blocks(shard, start, end)
			if last := blocks[len(blocks)-1]; blocks[0].First > start ||
				blocks[0].First+blocks[0].Records <= start || last.First >= end || last.First+last.Records < end {
				t.Fatalf("records [%d, %d) are in %v", start, end, blocks)
			}
			if err := told.Learn(shard, blocks); err != nil {
				t.Fatal(err)
			}
			for _, i := range []int64{start, (start + end) / 2, end - 1} {
				got, err := told.ReadAt(shard, i)
				want, _ := whole.ReadAt(shard, i)
				if err != nil || string(got) != string(want) || len(want) == 0 {
					t.Fatalf("record %d: %q, %v, want %q", i, got, err, want)
				}
			}
		})
		if len(told.indexes) > 0 || told.Looked() > 0 {
			t.Errorf("%s was indexed", shard)
		}
		part := open(t, dir, nil)
		if err := part.Learn(shard, whole.Blocks(shard, 0, 1)); err != nil {
			t.Fatal(err)
		}
		// its block was not learned
		if got, err := part.ReadAt(shard, 4999); err != nil || len(got) == 0 {
			t.Errorf("%q, %v", got, err)
		}
		if part.Looked() == 0 {
			t.Error("Looked is 0 after a file was indexed")
		}
		if err := os.Truncate(filepath.Join(dir, shard), 5000); err != nil {
			t.Fatal(err)
		}
		told.cache = cache{}
		if _, err := told.ReadAt(shard, 4999); err == nil || outage.Is(err) ||
			!strings.Contains(err.Error(), "changed") || !strings.Contains(err.Error(), shard) {
			t.Errorf("a truncated file: %v", err)
		}
	}
}

func TestLearnRefuses(t *testing.T) {
	f := open(t, twoFiles(t), nil)
	for _, blocks := range [][]task.Block{
		{{First: -1, Records: 1, Offset: 0, Size: 1}},
		{{First: 0, Records: 0, Offset: 0, Size: 1}},
		{{First: 0, Records: 1, Offset: -1, Size: 1}},
		{{First: 0, Records: 1, Offset: 0, Size: 0}},
		{{First: 1 << 62, Records: 1 << 62, Offset: 0, Size: 1}},
		{{First: 0, Records: 1, Offset: 1 << 62, Size: 1 << 62}},
		{{First: 0, Records: 2, Offset: 0, Size: 1}, {First: 1, Records: 1, Offset: 1, Size: 1}},
	} {
		if err := f.Learn("records", blocks); err == nil || !strings.Contains(err.Error(), "records") {
			t.Errorf("%v: %v", blocks, err)
		}
	}
}

// Wrong blocks give an error or other records of the file. They do not panic.
func FuzzLearn(f *testing.F) {
	dir := twoFiles(f)
	whole := open(f, dir, nil)
	if _, err := whole.Shards(); err != nil {
		f.Fatal(err)
	}
	for _, shard := range []string{"records", "rows.csv"} {
		var b []byte
		for _, block := range whole.Blocks(shard, 100, 3000)[:2] {
			for _, v := range []int64{block.First, block.Records, block.Offset, block.Size} {
				b = binary.AppendVarint(b, v)
			}
		}
		f.Add(b, shard == "records", int64(110))
	}
	f.Fuzz(func(t *testing.T, b []byte, records bool, i int64) {
		var blocks []task.Block
		for len(b) > 0 {
			var v [4]int64
			for k := range v {
				n := 0
				if v[k], n = binary.Varint(b); n <= 0 {
					return
				}
				b = b[n:]
			}
			blocks = append(blocks, task.Block{First: v[0], Records: v[1], Offset: v[2], Size: v[3]})
		}
		shard := "rows.csv"
		if records {
			shard = "records"
		}
		told := open(t, dir, nil)
		if told.Learn(shard, blocks) != nil {
			return
		}
		told.ReadAt(shard, i)
	})
}

// Reading a block that the file does not have any more fails. After the new block was learned, it
// is read.
func TestBlockThatHasChanged(t *testing.T) {
	dir := twoFiles(t)
	whole, told := open(t, dir, nil), open(t, dir, nil)
	if _, err := whole.Shards(); err != nil {
		t.Fatal(err)
	}
	for _, shard := range []string{"records", "rows.csv"} {
		right := whole.Blocks(shard, 0, 5000)
		for name, wrong := range map[string]task.Block{
			"longer": {First: 0, Records: right[0].Records, Offset: right[0].Offset,
				Size: right[0].Size + right[1].Size},
			"more records": {First: 0, Records: right[0].Records + 1, Offset: right[0].Offset, Size: right[0].Size},
		} {
			if err := told.Learn(shard, []task.Block{wrong}); err != nil {
				t.Fatal(err)
			}
			if _, err := told.ReadAt(shard, 0); err == nil || !strings.Contains(err.Error(), "changed") {
				t.Errorf("%s, %s: %v", shard, name, err)
			}
		}
		if err := told.Learn(shard, right[:1]); err != nil {
			t.Fatal(err)
		}
		if b, err := told.ReadAt(shard, 0); err != nil || len(b) == 0 {
			t.Errorf("%s: %q, %v", shard, b, err)
		}
	}
}

// A chunk without records gives no block.
func TestEmptyChunk(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "some", 3)
	some, err := os.ReadFile(filepath.Join(dir, "some"))
	if err != nil {
		t.Fatal(err)
	}
	empty := make([]byte, 20)
	binary.LittleEndian.PutUint32(empty, 0x01020304)
	writeFile(t, dir, "some", string(empty)+string(some)+string(empty)+string(some)+string(empty))
	whole, told := open(t, dir, nil), open(t, dir, nil)
	if shards, err := whole.Shards(); err != nil || shards[0].Count != 6 {
		t.Fatal(shards, err)
	}
	if err := told.Learn("some", whole.Blocks("some", 0, 6)); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"some 0", "some 1", "some 2", "some 0", "some 1", "some 2"} {
		if b, err := told.ReadAt("some", int64(i)); err != nil || string(b) != want {
			t.Errorf("record %d: %q, %v", i, b, err)
		}
	}
}
