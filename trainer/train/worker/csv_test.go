package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/train/data"
	"github.com/elasticdl/elasticdl/trainer/train/ps"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// feedSecond reads a batch from rows: the number in the second field of each.
func feedSecond(_ zoo.Mode, rows [][]byte, b *zoo.Batch) error {
	b.Reset(len(rows))
	var fields [][]byte
	for i, row := range rows {
		var err error
		if fields, err = data.Fields(fields[:0], row, ';'); err != nil {
			return fmt.Errorf("record %d: %w", i, err)
		}
		n, err := strconv.Atoi(string(fields[1]))
		if err != nil {
			return fmt.Errorf("record %d: column 2: %w", i, err)
		}
		b.Labels[i] = int32(n)
	}
	return nil
}

// A model whose feed takes rows is trained on a CSV file; a row that it cannot take is reported.
func TestRowsOfCSV(t *testing.T) {
	dir := t.TempDir()
	text := "name;number\n\"a;b\";7\n\"c \"\"d\"\"\";8\ne;9\nf;10\ng;11\nh;none\n"
	if err := os.WriteFile(filepath.Join(dir, "rows.csv"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	reader, err := data.Open(dir, map[string]string{"delimiter": ";"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	shards, err := reader.Shards()
	if err != nil || len(shards) != 1 || shards[0].Count != 6 {
		t.Fatalf("shards %v, %v", shards, err)
	}
	bubble(t, func(t *testing.T) {
		rows := func(lease, start, end int64) *wire.Task {
			return &wire.Task{Kind: wire.TaskKind_TRAINING, Lease: lease, Number: lease,
				Shard: shards[0].Name, Start: start, End: end, Epoch: 1}
		}
		b := newBench(t, ps.ServerConfig{Async: true}, rows(1, 0, 5), rows(2, 5, 6))
		b.Training = reader
		b.Model.Feed = feedSecond
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if want := [][]int32{{7, 8, 9, 10}, {11}}; !slices.EqualFunc(b.engine.steps, want, slices.Equal) {
			t.Errorf("steps %v, want %v", b.engine.steps, want)
		}
		if r := b.master.reports; len(r) != 2 || r[0].Error != "" ||
			!strings.Contains(r[1].Error,
				`feed record 5 of rows.csv: record 0: column 2: strconv.Atoi: parsing "none"`) {
			t.Errorf("reports %v", r)
		}
	})
}

// A worker that knows the offsets of a task's records reads no other part of the file.
func TestToldBlocks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rows.csv")
	text := "name;number\n" + strings.Repeat("a;7\n", 3000)
	write := func(text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(text)
	master, err := data.Open(dir, map[string]string{"delimiter": ";"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := master.Shards(); err != nil {
		t.Fatal(err)
	}
	told := func(lease int64, blocks []task.Block) *wire.Task {
		task := &wire.Task{Kind: wire.TaskKind_TRAINING, Lease: lease, Number: lease, Shard: "rows.csv",
			Start: 2500, End: 2504, Epoch: 1}
		for _, b := range blocks {
			task.Blocks = append(task.Blocks, &wire.Block{First: b.First, Records: b.Records,
				Offset: b.Offset, Size: b.Size, Checksum: b.Checksum})
		}
		return task
	}
	// its first row is bad now, so that reading it is noticed
	write(strings.Replace(text, ";7", "77", 1))
	bubble(t, func(t *testing.T) {
		bad := []task.Block{{First: 2500, Records: -1}}
		b := newBench(t, ps.ServerConfig{Async: true}, told(1, master.Blocks("rows.csv", 2500, 2504)), told(2, bad))
		worker, err := data.Open(dir, map[string]string{"delimiter": ";"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		b.Training = worker
		b.Model.Feed = feedSecond
		if err := work(t.Context(), b.Config); err != nil {
			t.Fatal(err)
		}
		if want := [][]int32{{7, 7, 7, 7}}; !slices.EqualFunc(b.engine.steps, want, slices.Equal) {
			t.Errorf("steps %v, want %v", b.engine.steps, want)
		}
		if r := b.master.reports; len(r) != 2 || r[0].Error != "" || !strings.Contains(r[1].Error, "rows.csv") {
			t.Errorf("reports %v", r)
		}
	})
}
