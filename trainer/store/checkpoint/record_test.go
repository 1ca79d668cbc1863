package checkpoint

import (
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// valid returns a record of two shards of a model of four elements.
func valid() Commit {
	return Commit{
		Format: Format, Number: 3, ModelGeneration: 1, Version: 9, Optimizer: "adam", Slots: 2, Records: 7,
		Layout: VariablesOf(param.Layout{{Name: "w", Shape: []int{2, 2}, Trainable: true}}),
		Shards: []Shard{{File: "a", Start: 0, End: 1, Bytes: 5, CRC: "00000001"},
			{File: "b", Start: 1, End: 4, Bytes: 6, CRC: "00000002"}},
	}
}

// A record is refused, when it is written as when it is read, if its shards do not make up the
// model, element by element, or a number in it is impossible.
func TestRecordsAreWhole(t *testing.T) {
	text, err := valid().Encode()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Decode(text)
	if err != nil || c.Bytes() != 11 || c.ParamLayout().Len() != 4 || len(c.Checksum) != 8 {
		t.Fatalf("%+v, %v", c, err)
	}
	for name, change := range map[string]func(c *Commit){
		"a gap":               func(c *Commit) { c.Shards[1].Start = 2 },
		"an overlap":          func(c *Commit) { c.Shards[0].End = 2 },
		"a later beginning":   func(c *Commit) { c.Shards[0].Start = 1; c.Shards = c.Shards[1:] },
		"another order":       func(c *Commit) { slices.Reverse(c.Shards) },
		"a shard too few":     func(c *Commit) { c.Shards = c.Shards[:1] },
		"an element too many": func(c *Commit) { c.Shards[1].End = 5 },
		"an empty shard": func(c *Commit) {
			c.Shards = slices.Insert(c.Shards, 1, Shard{File: "c", Start: 1, End: 1, Bytes: 1, CRC: "00000003"})
		},
		"no bytes":              func(c *Commit) { c.Shards[1].Bytes = 0 },
		"no name":               func(c *Commit) { c.Shards[0].File = "" },
		"a name elsewhere":      func(c *Commit) { c.Shards[0].File = "../a" },
		"a name elsewhere, too": func(c *Commit) { c.Shards[0].File = `..\a` },
		"half a checksum":       func(c *Commit) { c.Shards[0].CRC = "0001" },
		"no number":             func(c *Commit) { c.Number = 0 },
		"no generation":         func(c *Commit) { c.ModelGeneration = 0 },
		"no updates":            func(c *Commit) { c.Version = -1 },
		"no slots":              func(c *Commit) { c.Slots = -1 },
		"no records":            func(c *Commit) { c.Records = -1 },
		"no elements":           func(c *Commit) { c.Layout[0].Shape = []int{2, 0} },
		"too many elements":     func(c *Commit) { c.Layout[0].Shape = []int{1 << 30, 1 << 30} },
		"another format":        func(c *Commit) { c.Format = Format + 1 },
	} {
		c := valid()
		change(&c)
		if _, err := c.Encode(); err == nil {
			t.Errorf("a record with %s is written", name)
		}
	}
	for at := range text {
		damaged := slices.Clone(text)
		damaged[at] ^= 4
		if _, err := Decode(damaged); err == nil {
			t.Errorf("a record is read of which byte %d, %q, is damaged", at, text[at])
		}
	}
	for _, cut := range []int{0, 1, len(text) / 2, len(text) - 20} {
		if _, err := Decode(text[:cut]); err == nil || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("%d bytes of a record are read: %v", cut, err)
		}
	}
}

// A copy is of what is copied, whatever was copied before: another stretch of as many elements,
// more slots, fewer, shorter, longer ones.
func TestCopiesOneAfterTheOther(t *testing.T) {
	var c Copy
	for i, p := range []Part{
		part(0, 10, 2, 1), part(30, 10, 2, 500), part(30, 10, 1, 7), part(30, 10, 2, 8),
		part(0, 12, 2, 9), part(0, 4, 0, 10),
		{Start: 3, Values: []float32{1, 2, 3}, Slots: [][]float32{{4, 5, 6}}},
		{Start: 3, Values: []float32{1, 2, 3}, Slots: [][]float32{{7}}},
		{Start: 3, Values: []float32{1, 2, 3}, Slots: [][]float32{{8, 9}}},
		{Start: 3, Values: []float32{1, 2, 3}, Slots: [][]float32{{}}},
	} {
		if c.Take(p); !equal(c.Part, p) {
			t.Errorf("copy %d is %+v, want %+v", i, c.Part, p)
		}
	}
}
