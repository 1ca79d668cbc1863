// Package safetensors reads and writes trained parameters in the safetensors
// format (https://huggingface.co/docs/safetensors), which PyTorch, JAX and
// TensorFlow load without code from this repository.
//
//	uint64     length of the header, little endian
//	header     JSON: {"name": {"dtype":"F32","shape":[…],"data_offsets":[from,to]}, …,
//	           "__metadata__": {…}}
//	payload    the tensors, little endian, back to back, in the order of their offsets
//
// Only float32 is written and read, the one type that this trainer trains.
package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

// maxHeader is the format's limit on the size of a header. It bounds what a reader allocates before
// it has checked anything.
const maxHeader = 100 << 20

// stateKey is the metadata entry that lists the variables that are not trainable, for which the
// format has no field.
const stateKey = "state_variables"

type entry struct {
	DType   string   `json:"dtype"`
	Shape   []int    `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// Tensor is a named array.
type Tensor struct {
	Name   string
	Shape  []int
	Values []float32 // in row-major order
}

// Write writes the variables of layout, whose flat array is values, and metadata.
func Write(w io.Writer, layout param.Layout, values []float32, metadata map[string]string) error {
	if len(values) != layout.Len() {
		return fmt.Errorf("write safetensors: %d values, the layout has %d", len(values), layout.Len())
	}
	return WriteFrom(w, layout, func(from int, dst []float32) error { copy(dst, values[from:]); return nil }, metadata)
}

// WriteFrom writes the variables of layout, and metadata. It calls fill for each chunk of their
// flat array in order, which sets dst to the elements from index from on.
func WriteFrom(w io.Writer, layout param.Layout, fill func(from int, dst []float32) error,
	metadata map[string]string) error {
	var tensors []entryOf
	var state []string
	for _, v := range layout {
		tensors = append(tensors, entryOf{v.Name, v.Shape, v.Len()})
		if !v.Trainable {
			state = append(state, v.Name)
		}
	}
	if len(state) > 0 {
		names, err := json.Marshal(state)
		if err != nil {
			return fmt.Errorf("write safetensors: %w", err)
		}
		metadata = maps.Clone(metadata)
		if metadata == nil {
			metadata = make(map[string]string)
		}
		metadata[stateKey] = string(names)
	}
	if err := writeHeader(w, tensors, metadata); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	n := layout.Len()
	values := make([]float32, min(chunk, n))
	for from := 0; from < n; from += chunk {
		part := values[:min(chunk, n-from)]
		if err := fill(from, part); err != nil {
			return fmt.Errorf("write safetensors: %w", err)
		}
		if _, err := w.Write(param.Encoded(part)); err != nil {
			return fmt.Errorf("write safetensors: %s: %w", layout.At(from), err)
		}
	}
	return nil
}

// WriteTensors writes tensors, in their order, and metadata.
func WriteTensors(w io.Writer, tensors []Tensor, metadata map[string]string) error {
	var entries []entryOf
	for _, t := range tensors {
		entries = append(entries, entryOf{t.Name, t.Shape, len(t.Values)})
	}
	if err := writeHeader(w, entries, metadata); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	for _, t := range tensors {
		for part := range slices.Chunk(t.Values, atOnce) {
			if _, err := w.Write(param.Encoded(part)); err != nil {
				return fmt.Errorf("write safetensors: tensor %q: %w", t.Name, err)
			}
		}
	}
	return nil
}

// chunk is the number of elements that WriteFrom asks fill for at a time.
const chunk = 64 << 10

// atOnce is the number of elements that WriteTensors writes at a time.
const atOnce = 1 << 20

// entryOf describes a tensor for the header, without its values.
type entryOf struct {
	name     string
	shape    []int
	elements int
}

func writeHeader(w io.Writer, tensors []entryOf, metadata map[string]string) error {
	entries := make(map[string]any, len(tensors)+1)
	meta := map[string]string{"format": "pt"}
	maps.Copy(meta, metadata)
	at := int64(0)
	for _, t := range tensors {
		end := at + 4*int64(t.elements)
		entries[t.name] = entry{"F32", slices.Concat([]int{}, t.shape), [2]int64{at, end}}
		at = end
	}
	entries["__metadata__"] = meta
	header, err := json.Marshal(entries)
	if err != nil {
		return err
	}
	// The payload starts at a multiple of eight bytes.
	header = append(header, bytes.Repeat([]byte{' '}, -len(header)&7)...)
	if err := binary.Write(w, binary.LittleEndian, uint64(len(header))); err != nil {
		return err
	}
	_, err = w.Write(header)
	return err
}

// Read reads a file of size bytes. It returns the variables in the order of the
// file, their flat array, and the metadata.
func Read(r io.ReaderAt, size int64) (param.Layout, []float32, map[string]string, error) {
	layout, values, metadata, err := read(r, size)
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read safetensors: %w", err)
	}
	return layout, values, metadata, nil
}

func read(r io.ReaderAt, size int64) (param.Layout, []float32, map[string]string, error) {
	f, err := Open(r, size)
	if err != nil {
		return nil, nil, nil, err
	}
	values := make([]float32, f.layout.Len())
	if err := f.read(values, f.offset(0)); err != nil {
		return nil, nil, nil, err
	}
	return f.layout, values, f.Metadata, nil
}

// File is a safetensors file whose header was read. It is safe for concurrent use.
type File struct {
	Metadata map[string]string
	layout   param.Layout
	payload  int64 // offset of the payload in the file
	r        io.ReaderAt
}

// Open reads the header of a file of size bytes.
func Open(r io.ReaderAt, size int64) (*File, error) {
	var prefix [8]byte
	if _, err := r.ReadAt(prefix[:], 0); err != nil {
		return nil, fmt.Errorf("length of the header: %w", err)
	}
	n := binary.LittleEndian.Uint64(prefix[:])
	if n > maxHeader || int64(n) > size-8 {
		return nil, fmt.Errorf("a header of %d bytes in a file of %d", n, size)
	}
	head := make([]byte, n)
	if _, err := r.ReadAt(head, 8); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	layout, metadata, err := parseHeader(head, size-8-int64(n))
	if err != nil {
		return nil, err
	}
	return &File{metadata, layout, 8 + int64(n), r}, nil
}

// Layout returns the tensors in the order of the file.
func (f *File) Layout() param.Layout { return f.layout }

// Offset returns the offset in the file of the n elements of a tensor from index from on. It
// returns an error if the tensor does not have them.
func (f *File) Offset(name string, from, n int) (int64, error) {
	at := 0
	for _, v := range f.layout {
		if v.Name == name {
			if from < 0 || n < 0 || from+n > v.Len() {
				return 0, fmt.Errorf("read elements [%d, %d) of tensor %q, which has %d", from, from+n, name, v.Len())
			}
			return f.offset(at + from), nil
		}
		at += v.Len()
	}
	return 0, fmt.Errorf("there is no tensor %q", name)
}

// offset returns the offset in the file of an element of the flat array.
func (f *File) offset(element int) int64 { return f.payload + 4*int64(element) }

// ReadTensor fills dst with the elements of a tensor from index from on.
func (f *File) ReadTensor(name string, from int, dst []float32) error {
	at, err := f.Offset(name, from, len(dst))
	if err != nil {
		return err
	}
	return f.read(dst, at)
}

// read fills dst from offset at of the file.
func (f *File) read(dst []float32, at int64) error {
	b := param.Bytes(dst)
	if n, err := f.r.ReadAt(b, at); n < len(b) {
		return fmt.Errorf("payload: %w", err)
	}
	param.Decode(dst)
	return nil
}

// parseHeader parses a header, and checks that the tensors cover the payload without gap or
// overlap.
func parseHeader(head []byte, payload int64) (param.Layout, map[string]string, error) {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(head, &raw); err != nil {
		return nil, nil, fmt.Errorf("header: %w", err)
	}
	metadata, state, err := parseMetadata(raw["__metadata__"])
	if err != nil {
		return nil, nil, err
	}
	delete(raw, "__metadata__")
	type named struct {
		name string
		entry
	}
	var tensors []named
	for name, data := range raw {
		t := named{name: name}
		if err := json.Unmarshal(data, &t.entry); err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		if t.DType != "F32" {
			return nil, nil, fmt.Errorf("tensor %q is %q, only F32 is read", name, t.DType)
		}
		tensors = append(tensors, t)
	}
	slices.SortFunc(tensors, func(a, b named) int {
		return cmp.Or(cmp.Compare(a.Offsets[0], b.Offsets[0]), cmp.Compare(a.name, b.name))
	})
	var layout param.Layout
	at := int64(0)
	for _, t := range tensors {
		v := param.Variable{Name: t.name, Shape: t.Shape, Trainable: !slices.Contains(state, t.name)}
		n, err := elements(t.Shape, payload)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", t.name, err)
		}
		if t.Offsets != [2]int64{at, at + 4*n} {
			return nil, nil, fmt.Errorf("tensor %q of %d elements lies at %v, expected [%d %d]", t.name,
				n, t.Offsets, at, at+4*n)
		}
		at += 4 * n
		layout = append(layout, v)
	}
	if at != payload {
		return nil, nil, fmt.Errorf("the tensors take %d bytes, the file holds %d", at, payload)
	}
	return layout, metadata, nil
}

func parseMetadata(data json.RawMessage) (metadata map[string]string, state []string, err error) {
	if data == nil {
		return nil, nil, nil
	}
	if err := json.Unmarshal(data, &metadata); err != nil {
		return nil, nil, fmt.Errorf("metadata: %w", err)
	}
	if names, ok := metadata[stateKey]; ok {
		if err := json.Unmarshal([]byte(names), &state); err != nil {
			return nil, nil, fmt.Errorf("metadata %s: %w", stateKey, err)
		}
		delete(metadata, stateKey)
	}
	return metadata, state, nil
}

// elements returns the number of elements of a shape, or an error if they take more than payload
// bytes.
func elements(shape []int, payload int64) (int64, error) {
	n := int64(1)
	for _, d := range shape {
		if d <= 0 || int64(d) > payload/4 || n > payload/4/int64(d) {
			return 0, fmt.Errorf("shape %v in a payload of %d bytes", shape, payload)
		}
		n *= int64(d)
	}
	return n, nil
}
