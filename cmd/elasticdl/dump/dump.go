package dump

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/secret"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// Part is a part of a dump, with one file or several.
type Part struct {
	Name  string // for people, such as "events"
	Limit time.Duration
	// Read returns the files of the part. Files that it returns with an error are used, too.
	Read func(ctx context.Context) ([]File, error)
}

// File is a file of a dump.
type File struct {
	Name  string // path in the archive
	Value any    // written as JSON; nil: the file is Text
	Text  []byte
	// Left is the number of bytes before Text that were left out
	Left int64
	// Why it could not be read, or not whole
	Why error
}

// Manifest is the contents of a dump.
type Manifest struct {
	APIVersion string    `json:"apiVersion"`
	Job        string    `json:"job"`
	Place      string    `json:"place"`   // "this machine", or the namespace
	Version    string    `json:"version"` // of the command
	Created    time.Time `json:"created"`
	Files      []Entry   `json:"files"`
	Missing    []Missing `json:"missing"`
	// number of values that were removed, by what they were
	Redacted map[string]int `json:"redacted"`
}

// Entry is a file of a dump.
type Entry struct {
	Name   string `json:"name"`
	Bytes  int64  `json:"bytes"`
	SHA256 string `json:"sha256"`
	// bytes before it that were left out, because the log is long
	LeftOut int64 `json:"leftOutBytes"`
}

// Missing is a file or a part that a dump does not have.
type Missing struct {
	Name string `json:"name"` // of a file or of a part
	Why  string `json:"why"`
}

// Dump has the files that were read of a job.
type Dump struct {
	Manifest
	texts [][]byte // of the files of the manifest
}

// Read reads all parts of a dump, and removes their secrets, and those that known has by their
// names. progress is called before each step. The error is the end of ctx.
func Read(ctx context.Context, about Manifest, parts []Part, known map[string]string,
	progress func(step string)) (*Dump, error) {
	d := &Dump{Manifest: about}
	d.Missing, d.Files, d.Redacted = []Missing{}, []Entry{}, map[string]int{}
	var files []File
	for _, p := range parts {
		progress(p.Name)
		found, err := read(ctx, p)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil {
			d.Missing = append(d.Missing, Missing{p.Name, err.Error()})
		}
		files = append(files, found...)
	}
	progress("removing secrets")
	if err := d.redact(ctx, files, known); err != nil {
		return nil, err
	}
	return d, nil
}

// errLimit is the end of a part that takes too long.
var errLimit = errors.New("it took too long")

func read(ctx context.Context, p Part) ([]File, error) {
	limited, cancel := context.WithTimeoutCause(ctx, p.Limit, fmt.Errorf("%w: more than %v", errLimit, p.Limit))
	defer cancel()
	files, err := p.Read(limited)
	if err != nil && limited.Err() != nil {
		err = context.Cause(limited)
	}
	return files, err
}

// redact adds files without their secrets. All of them are read before: one may have a secret that
// only the structure of another tells.
func (d *Dump) redact(ctx context.Context, files []File, known map[string]string) error {
	var r secret.Redactor
	for name, value := range known {
		r.Known(name, value)
	}
	trees := make([]any, len(files))
	for i := range files {
		f := &files[i]
		if f.Value == nil {
			continue
		}
		tree, err := treeOf(f.Value)
		trees[i], f.Why = tree, cmp.Or(f.Why, err)
		r.Learn(tree)
	}
	for i, f := range files {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if f.Why != nil {
			d.Missing = append(d.Missing, Missing{f.Name, f.Why.Error()})
			if trees[i] == nil && len(f.Text) == 0 {
				continue
			}
		}
		text := f.Text
		if trees[i] != nil || strings.HasSuffix(f.Name, ".json") { // null is a value, too
			text = encode(r.Tree(trees[i]))
		} else {
			text = []byte(r.Text(string(text)))
		}
		d.add(Entry{Name: f.Name, LeftOut: f.Left}, text)
	}
	for i := range d.Missing {
		d.Missing[i].Why = r.Text(d.Missing[i].Why)
	}
	maps.Copy(d.Redacted, r.Removed())
	d.sort()
	return nil
}

func (d *Dump) add(e Entry, text []byte) {
	sum := sha256.Sum256(text)
	e.Bytes, e.SHA256 = int64(len(text)), hex.EncodeToString(sum[:])
	d.Files, d.texts = append(d.Files, e), append(d.texts, text)
}

// sort sorts the files by name.
func (d *Dump) sort() {
	order := make([]int, len(d.Files))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(d.Files[a].Name, d.Files[b].Name) })
	files, texts := make([]Entry, 0, len(order)), make([][]byte, 0, len(order))
	for _, i := range order {
		files, texts = append(files, d.Files[i]), append(texts, d.texts[i])
	}
	d.Files, d.texts = files, texts
}

// treeOf returns a value as [json.Unmarshal] makes it.
func treeOf(v any) (tree any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return role.Tree(text)
}

// encode returns a value as indented JSON.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	_ = e.Encode(v) // it was decoded before
	return b.Bytes()
}

// safe reports whether a name is that of a file in the archive, and not outside.
func safe(name string) bool {
	return name != "" && path.Clean(name) == name && !path.IsAbs(name) && !strings.HasPrefix(name, "../") &&
		!strings.ContainsAny(name, "\\\x00\n")
}
