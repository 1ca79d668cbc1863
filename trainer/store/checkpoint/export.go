package checkpoint

import (
	"bufio"
	"fmt"
	"io"
	"strconv"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/safetensors"
)

// ModelFile is the file that an export of a model writes.
const ModelFile = "model.safetensors"

// Model is a trained model to be exported: its values alone, without the optimizer's slots and the
// ledger.
type Model struct {
	JobName  string
	ModelDef string
	Version  int64
	Layout   param.Layout
	// Fill sets dst to the elements of the flat array from the one numbered from on. It is called
	// for one stretch after the other.
	Fill func(from int, dst []float32) error
}

// Export writes a model to a place, as [ModelFile], which appears whole or not at all. The bytes
// that are written so far are asked to progress, if it is not nil.
func (m Model) Export(to Files, progress func(bytes int64)) error {
	f, err := to.Create(ModelFile)
	if err != nil {
		return err
	}
	defer f.Abort() // a no-op after the commit
	buffered := bufio.NewWriterSize(&counter{w: f, progress: progress}, 1<<20)
	metadata := map[string]string{
		"job_name":  m.JobName,
		"model_def": m.ModelDef,
		"version":   strconv.FormatInt(m.Version, 10),
	}
	if err := safetensors.WriteFrom(buffered, m.Layout, m.Fill, metadata); err != nil {
		return err
	}
	if err := buffered.Flush(); err != nil {
		return err
	}
	return f.Commit()
}

// counter counts the bytes of a file.
type counter struct {
	w        io.Writer
	bytes    int64
	progress func(bytes int64)
}

func (t *counter) Write(b []byte) (int, error) {
	n, err := t.w.Write(b)
	t.bytes += int64(n)
	if t.progress != nil {
		t.progress(t.bytes)
	}
	return n, err
}

// Export writes the model of a commit to a place, as a job's --output has it. The commit is one
// that is verified. No more of the model than a chunk is in memory.
func (d Dir) Export(c *Commit, to Files, progress func(bytes int64)) error {
	values := valuesOf{d: d, c: c}
	defer values.close()
	m := Model{JobName: c.JobName, ModelDef: c.ModelDef, Version: c.Version, Layout: c.ParamLayout(), Fill: values.fill}
	if err := m.Export(to, progress); err != nil {
		return fmt.Errorf("export commit %d to %v: %w", c.Number, to, err)
	}
	return nil
}

// valuesOf reads the values of a commit in their order, each shard opened once.
type valuesOf struct {
	d Dir
	c *Commit
	// of the commit's, which is open if file is not nil
	shard  int
	file   *safetensors.File
	closer io.Closer
}

func (v *valuesOf) fill(from int, dst []float32) error {
	for len(dst) > 0 {
		s := v.c.Shards[v.shard]
		if from >= s.End {
			v.close()
			v.shard++
			continue
		}
		n := min(len(dst), s.End-from)
		if err := v.read(s, from-s.Start, dst[:n]); err != nil {
			return fmt.Errorf("read checkpoint: %s: %w", v.d.Path(v.c.Name(), s.File), err)
		}
		from, dst = from+n, dst[n:]
	}
	return nil
}

func (v *valuesOf) read(s Shard, from int, dst []float32) error {
	if v.file == nil {
		f, size, closer, err := v.d.Open(v.c.Name().String() + "/" + s.File)
		if err != nil {
			return err
		}
		v.closer = closer
		if v.file, err = safetensors.Open(f, size); err != nil {
			v.close()
			return err
		}
	}
	return v.file.ReadTensor(valuesName, from, dst)
}

func (v *valuesOf) close() {
	if v.closer != nil {
		v.closer.Close()
	}
	v.file, v.closer = nil, nil
}
