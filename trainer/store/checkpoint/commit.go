package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// Format is the version of the record.
const Format = 1

// Commit is the record of one commit.
type Commit struct {
	Format int   `json:"format"`
	Number int64 `json:"number"`
	// tag of the claim under which it was made; "": it is older than claims
	Claim string    `json:"claim,omitempty"`
	Time  time.Time `json:"time"`

	JobName string `json:"job_name"`
	// UID of the job that wrote it
	Job string `json:"job"`
	// commits of other jobs from which this job was restored, the oldest first
	Lineage  []Ancestor `json:"lineage"`
	ModelDef string     `json:"model_def"`

	ModelGeneration int64 `json:"life"`
	// number of updates
	Version   int64      `json:"version"`
	Layout    []Variable `json:"layout"`
	Optimizer string     `json:"optimizer"`
	// number of float32 values that the optimizer keeps for each trainable element
	Slots  int     `json:"slots"`
	Shards []Shard `json:"shards"`
	// number of records in the model, over all epochs
	Records int64         `json:"records"`
	Ledger  ledger.Ledger `json:"ledger"`
	Cut     Cut           `json:"cut"`
	// Data names the files of the training data, for messages; none: there were too many, or an
	// older version wrote the commit.
	Data []DataFile `json:"data,omitempty"`

	// the newest evaluations
	Evaluations []Evaluation `json:"evaluations"`
	// number of all evaluations
	Evaluated int64 `json:"evaluated"`

	// CRC-32C of the record with zeros in place of the checksum; the last field
	Checksum string `json:"checksum"`
}

// Ancestor is a commit of an earlier job.
type Ancestor struct {
	Job    string `json:"job"` // UID
	Number int64  `json:"number"`
}

// Variable is a [param.Variable] in the record.
type Variable struct {
	Name      string  `json:"name"`
	Shape     []int   `json:"shape"`
	Trainable bool    `json:"trainable"`
	Momentum  float64 `json:"momentum,omitempty"`
}

// Shard is one file of a commit.
type Shard struct {
	File  string `json:"file"`
	Start int    `json:"start"` // elements [Start, End) of the flat array
	End   int    `json:"end"`
	Bytes int64  `json:"bytes"`
	CRC   string `json:"crc32c"` // of the file, in hexadecimal
}

// Evaluation is the result of one.
type Evaluation struct {
	Version int64              `json:"version"`
	Metrics map[string]float64 `json:"metrics"`
}

// VariablesOf returns a layout as the record has it.
func VariablesOf(l param.Layout) []Variable {
	all := make([]Variable, len(l))
	for i, v := range l {
		all[i] = Variable{v.Name, slices.Concat([]int{}, v.Shape), v.Trainable, v.Momentum}
	}
	return all
}

// ParamLayout returns the layout of the model.
func (c *Commit) ParamLayout() param.Layout {
	l := make(param.Layout, len(c.Layout))
	for i, v := range c.Layout {
		l[i] = param.Variable{Name: v.Name, Shape: v.Shape, Trainable: v.Trainable, Momentum: v.Momentum}
	}
	return l
}

// Name returns the commit's name in its directory.
func (c *Commit) Name() Name { return Name{c.Number, c.Claim} }

// Bytes returns the size of all shards.
func (c *Commit) Bytes() int64 {
	bytes := int64(0)
	for _, s := range c.Shards {
		bytes += s.Bytes
	}
	return bytes
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// noChecksum stands in the record while its checksum is computed.
const noChecksum = "00000000"

// checksumAt finds the checksum's digits in a record: it is the last field.
func checksumAt(record []byte) (int, bool) {
	key := []byte(`"checksum": "`)
	at := bytes.LastIndex(record, key) + len(key)
	return at, at >= len(key) && len(record) >= at+len(noChecksum)
}

// Encode returns the record as JSON, with its checksum.
func (c Commit) Encode() ([]byte, error) {
	c.Checksum = noChecksum
	if err := c.validate(); err != nil {
		return nil, fmt.Errorf("encode commit %d: %w", c.Number, err)
	}
	record, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode commit %d: %w", c.Number, err)
	}
	return seal(append(record, '\n')), nil
}

// Seal sets the checksum to that of the record, by which the commit is named from then on.
func (c *Commit) Seal() error {
	record, err := c.Encode()
	if err == nil {
		at, _ := checksumAt(record)
		c.Checksum = string(record[at:][:len(noChecksum)])
	}
	return err
}

// seal puts the checksum of a record in its place.
func seal(record []byte) []byte {
	if at, ok := checksumAt(record); ok {
		copy(record[at:], noChecksum)
		copy(record[at:], checksum(crc32.Checksum(record, castagnoli)))
	}
	return record
}

// checksum is a CRC as the record has it.
func checksum(crc uint32) string { return fmt.Sprintf("%08x", crc) }

// Decode reads a record. The error says what is wrong with it, be it one damaged byte.
func Decode(record []byte) (*Commit, error) {
	at, ok := checksumAt(record)
	if !ok {
		return nil, errors.New("it has no checksum: it is cut short, or not a commit")
	}
	said := string(record[at:][:len(noChecksum)])
	plain := slices.Clone(record)
	copy(plain[at:], noChecksum)
	if is := checksum(crc32.Checksum(plain, castagnoli)); is != said {
		return nil, fmt.Errorf("its checksum is %s, expected %s", is, said)
	}
	c := new(Commit)
	if err := json.Unmarshal(record, c); err != nil {
		return nil, err
	}
	if err := c.validate(); err != nil {
		return nil, err
	}
	return c, nil
}

// validate says what makes no commit of the record, all of it.
func (c *Commit) validate() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if c.Format != Format {
		problem("format %d; this program reads %d", c.Format, Format)
	}
	if c.Number <= 0 || c.Version < 0 || c.ModelGeneration <= 0 || c.Slots < 0 || c.Records < 0 {
		problem("number %d, version %d, generation %d, %d slots and %d records are impossible", c.Number,
			c.Version, c.ModelGeneration, c.Slots, c.Records)
	}
	if c.Claim != "" && !tagForm.MatchString(c.Claim) {
		problem("claim %q; expected a number and eight hexadecimal digits, as in 2-5f3a9c1b", c.Claim)
	}
	if owner := c.Name().owner(); owner != "" && owner != hashOf(c.Job) {
		problem("claim %s is not of job %s", c.Claim, c.Job)
	}
	layout := c.ParamLayout()
	elements, ok := size(layout)
	if !ok {
		problem("a layout of more than %d elements", maxElements)
	} else if err := layout.Validate(); err != nil {
		problems = append(problems, err)
	}
	next := 0
	for _, s := range c.Shards {
		if s.File == "" || strings.ContainsAny(s.File, `/\`) || s.Start != next || s.End <= s.Start ||
			s.Bytes <= 0 || len(s.CRC) != len(noChecksum) {
			problem("shard %q of elements [%d, %d) after element %d, %d bytes, checksum %q", s.File,
				s.Start, s.End, next, s.Bytes, s.CRC)
		}
		next = s.End
	}
	if ok && next != elements {
		problem("the shards end at element %d of %d", next, elements)
	}
	return errors.Join(problems...)
}

// maxElements is the size of a model beyond which a record is taken for a mistake: 4 TB.
const maxElements = 1 << 40

// size is the number of elements of a layout that nobody has checked yet.
func size(l param.Layout) (n int, ok bool) {
	total := 0.0
	for _, v := range l {
		of := 1.0
		for _, d := range v.Shape {
			of *= float64(d)
		}
		if d := slices.Min(append([]int{1}, v.Shape...)); d < 1 || of > maxElements {
			return 0, d < 1
		}
		total += of
	}
	return int(total), total <= maxElements
}
