package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The functions of this file depend on nothing but a commit's record and the time.

// commitTable returns the output of `elasticdl checkpoint ls`.
func commitTable(all []commitState, now time.Time) string {
	rows := [][]string{{"NUMBER", "STATE", "VERSION", "RECORDS", "SHARDS", "SIZE", "AGE"}}
	var notes strings.Builder
	for _, s := range all {
		row := []string{strconv.FormatInt(s.Number, 10), s.State, "-", "-", strconv.Itoa(s.Shards),
			bytesText(s.Bytes), "-"}
		if s.record != nil {
			row[2], row[3] = logline.Thousands(s.Version), logline.Thousands(s.Records)
			row[6] = since(*s.Time, now)
		}
		rows = append(rows, row)
		if s.State == commitDamaged || s.State == commitUnreadable {
			fmt.Fprintf(&notes, "commit %d: %s\n", s.Number, strings.Join(s.Problems, "; "))
		}
	}
	return table(rows) + notes.String()
}

// verdictOf returns the output of `elasticdl checkpoint verify` for a commit.
func verdictOf(s commitState) string {
	if s.State == commitComplete {
		return fmt.Sprintf("commit %d is whole: %s, %s\n", s.Number, count(int64(s.Shards), "shard"),
			bytesText(s.Bytes))
	}
	if len(s.Problems) == 1 {
		return fmt.Sprintf("commit %d is %s: %s\n", s.Number, s.State, s.Problems[0])
	}
	return fmt.Sprintf("commit %d is %s:\n  %s\n", s.Number, s.State, strings.Join(s.Problems, "\n  "))
}

// inspected is a commit as JSON: its record, and its ledger by epoch.
type inspected struct {
	*checkpoint.Commit
	Epochs epochs `json:"epochs"`
}

// epochs holds, by epoch, which training records are in a model.
type epochs struct {
	Complete int         `json:"complete"`
	Open     []openEpoch `json:"open"`
}

// openEpoch is an epoch of which not all records are in the model.
type openEpoch struct {
	Epoch int `json:"epoch"`
	// number of tasks all of whose records are in the model
	Tasks int `json:"tasks"`
	// number of records in the model of partly trained tasks, by the number of the task
	Parts map[int]int64 `json:"parts"`
}

func epochsOf(l *ledger.Ledger) epochs {
	e := epochs{Complete: l.Settled(), Open: []openEpoch{}}
	for _, n := range l.Epochs() {
		parts := l.Parts(n)
		if parts == nil {
			parts = map[int]int64{}
		}
		e.Open = append(e.Open, openEpoch{n, l.Whole(n), parts})
	}
	return e
}

// commitText returns the output of `elasticdl checkpoint inspect`.
func commitText(c *checkpoint.Commit, location string, now time.Time) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(key, format string, args ...any) {
		fmt.Fprintf(w, "%s\t%s\n", key, oneLine(fmt.Sprintf(format, args...)))
	}
	row("Commit:", "%d of %s", c.Number, location)
	row("Written:", "%s, %s ago", c.Time.UTC().Format(time.RFC3339), since(c.Time, now))
	row("Job:", "%s, UID %s", c.JobName, c.Job)
	key := "Restored from:"
	for _, a := range slices.Backward(c.Lineage) {
		row(key, "commit %d of the job with UID %s", a.Number, a.Job)
		key = ""
	}
	row("Model:", "%s", c.ModelDef)
	row("Version:", "%s", logline.Thousands(c.Version))
	row("Records:", "%s", logline.Thousands(c.Records))
	e := epochsOf(&c.Ledger)
	row("Epochs:", "%d complete", e.Complete)
	for _, open := range e.Open {
		row("", "epoch %d: %s", open.Epoch, open.words(c.Cut.RecordsPerTask))
	}
	if c.Cut.RecordsPerTask > 0 {
		row("Cut:", "%s", cutWords(c.Cut))
	}
	layout := c.ParamLayout()
	row("Layout:", "%s, %s, of which %s trainable", count(int64(len(layout)), "variable"),
		count(int64(layout.Len()), "element"), logline.Thousands(int64(layout.Trainable())))
	row("Optimizer:", "%s, %s", cmp.Or(c.Optimizer, "none"), count(int64(c.Slots), "slot"))
	row("Shards:", "%d, %s", len(c.Shards), bytesText(c.Bytes()))
	key = "Evaluations:"
	for _, e := range c.Evaluations {
		if len(e.Metrics) > 0 {
			row(key, "%s", measured(&wire.Evaluation{Version: e.Version, Metrics: e.Metrics}))
			key = ""
		}
	}
	w.Flush()
	variables := [][]string{{"VARIABLE", "SHAPE", "ELEMENTS", "TRAINABLE"}}
	for _, v := range layout {
		variables = append(variables,
			[]string{oneLine(v.Name), strings.ReplaceAll(fmt.Sprint(v.Shape), " ", "×"),
				logline.Thousands(int64(v.Len())), yes(v.Trainable)})
	}
	shards := [][]string{{"SHARD", "ELEMENTS", "SIZE", "CRC-32C"}}
	for _, s := range c.Shards {
		shards = append(shards, []string{s.File,
			fmt.Sprintf("%s to %s", logline.Thousands(int64(s.Start)),
				logline.Thousands(int64(s.End)-1)), bytesText(s.Bytes), s.CRC})
	}
	return b.String() + "\n" + table(variables) + "\n" + table(shards)
}

func (o openEpoch) words(perTask int64) string {
	words := count(int64(o.Tasks), "task") + " done"
	if perTask > 0 {
		words += fmt.Sprintf(" (up to %s each)", count(perTask, "record"))
	}
	if len(o.Parts) > 0 {
		records := int64(0)
		for n := range maps.Values(o.Parts) {
			records += n
		}
		words += fmt.Sprintf(", %s of %s", count(records, "record"), count(int64(len(o.Parts)), "unfinished task"))
	}
	return words
}

// cutWords returns how the records of an epoch are divided into tasks.
func cutWords(c checkpoint.Cut) string {
	words := count(c.RecordsPerTask, "record") + " in a task"
	if c.MaxRecords > 0 {
		words += fmt.Sprintf(", at most %s in an epoch", count(c.MaxRecords, "record"))
	}
	if c.Shuffle {
		words += fmt.Sprintf(", shuffled with seed %d", c.Seed)
	}
	return words
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// since returns the age of a time, which is never negative.
func since(t, now time.Time) string { return short(max(0, now.Sub(t))) }

// bytesText returns a size for people: 612 B, 4.2 kB, 14.7 MB.
func bytesText(n int64) string {
	if n < 1000 {
		return fmt.Sprintf("%d B", n)
	}
	size, unit := float64(n), ""
	for _, unit = range []string{"kB", "MB", "GB", "TB", "PB"} {
		if size /= 1000; size < 999.95 {
			break
		}
	}
	return fmt.Sprintf("%.1f %s", size, unit)
}
