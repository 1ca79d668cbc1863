// Package count has a model that counts records: a trained model says of each record how often
// it was applied. A job loses or doubles no record if [Verify] finds each of them once.
//
// The model is one dense layer whose input is the record's number, one-hot: each record has a row
// of the kernel of its own. With Adagrad, whose accumulator begins near zero, the first update of
// an element moves it by exactly the learning rate, whatever the gradient's size; the k-th one
// moves it by about the learning rate divided by √k (Duchi et al. 2011). So the displacement of a
// row tells how often the record was applied, in batches of any size, on servers and in rings:
//
//	applied  0      1      2      3
//	moved    0      1      1.7    2.3    learning rates
//
// The model waits with each minibatch while [Hold] reports it, so that a test can disturb a running
// job on a machine of any speed.
package count

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/store/safetensors"
	"github.com/elasticdl/elasticdl/trainer/train/nn"
	"github.com/elasticdl/elasticdl/trainer/train/optim"
	"github.com/elasticdl/elasticdl/trainer/train/recordio"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

const (
	rate    = 0.01
	classes = 2
	kernel  = "dense/kernel"
	// home names the state directory of a job's processes, and hold the file in it that Hold
	// writes.
	home, hold = "ELASTICDL_HOME", "hold"
)

// Model returns the model for data of n records: count.records8000.custom_model, if n is 8000.
func Model(n int) *zoo.Model {
	return &zoo.Model{
		Package: "count", Name: "records" + strconv.Itoa(n), Class: "custom_model",
		New: func(b *nn.Builder) nn.Module {
			return nn.Sequential{b.Dense(n, nn.Dense{Units: classes})}
		},
		Loss: func(t *nn.Tape, outputs *nn.Tensor, b *zoo.Batch) *nn.Tensor {
			return t.SoftmaxCrossEntropy(outputs, b.Labels)
		},
		Optimizer: func() optim.Config {
			return optim.Config{
				Name: optim.Adagrad, LearningRate: rate, InitialAccumulator: 1e-30, Epsilon: 1e-12,
			}
		},
		Feed: func(_ zoo.Mode, records [][]byte, b *zoo.Batch) error {
			time.Sleep(held())
			return feed(n, records, b)
		},
		Metrics: func() []zoo.Metric { return []zoo.Metric{zoo.Loss()} },
	}
}

// feed makes a batch of records, each of which is its number as 8 bytes in big-endian order.
func feed(n int, records [][]byte, b *zoo.Batch) error {
	in := b.Reset(len(records), n)
	clear(in)
	for i, r := range records {
		if len(r) != 8 {
			return fmt.Errorf("record %d has %d bytes, expected 8", i, len(r))
		}
		id := binary.BigEndian.Uint64(r)
		if id >= uint64(n) {
			return fmt.Errorf("record %d is number %d, expected less than %d", i, id, n)
		}
		in[i*n+int(id)] = 1
		b.Labels[i] = int32(id % classes)
	}
	return nil
}

// Hold makes each minibatch of the jobs with that state directory take at least pause; 0 ends it.
func Hold(dir string, pause time.Duration) error {
	return errors.Join(os.MkdirAll(dir, 0o755),
		os.WriteFile(filepath.Join(dir, hold), []byte(pause.String()), 0o644))
}

// held returns the pause that [Hold] has set for the state directory of this process.
func held() time.Duration {
	text, err := os.ReadFile(filepath.Join(os.Getenv(home), hold))
	if err != nil {
		return 0
	}
	pause, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil { // the file is being written
		return time.Millisecond
	}
	return pause
}

// Write writes RecordIO files of the records 0, 1, 2 … to a directory, one file for each size.
func Write(dir string, sizes ...int) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	next := 0
	for i, size := range sizes {
		if err := writeShard(filepath.Join(dir, fmt.Sprintf("data-%05d", i)), next, size); err != nil {
			return err
		}
		next += size
	}
	return nil
}

func writeShard(path string, from, size int) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	w, err := recordio.NewWriter(f, recordio.None, 1<<12)
	if err != nil {
		return err
	}
	for id := from; id < from+size; id++ {
		if err := w.Write(binary.BigEndian.AppendUint64(nil, uint64(id))); err != nil {
			return fmt.Errorf("write record %d of %s: %w", id, path, err)
		}
	}
	return errors.Join(w.Close(), f.Close())
}

// Tally says of which records a model has another number of updates than it should.
type Tally struct {
	Records int
	Lost    []int // applied less often
	Doubled []int // applied more often
}

// Exact reports whether the model has every record as often as it should.
func (t Tally) Exact() bool { return len(t.Lost)+len(t.Doubled) == 0 }

// String returns the counts, and the first of the lost and doubled records.
func (t Tally) String() string {
	first := func(all []int) []int { return all[:min(len(all), 8)] }
	return fmt.Sprintf("of %d records %d are lost %v and %d doubled %v", t.Records,
		len(t.Lost), first(t.Lost), len(t.Doubled), first(t.Doubled))
}

// Verify reads the exported model of a job that has trained n records for some epochs, from the
// initial values of seed. It is exact for one epoch, and tells whole lost or doubled epochs of a
// record for up to three.
func Verify(path string, n int, seed uint64, epochs int) (Tally, error) {
	rows, err := readKernel(path)
	if err != nil {
		return Tally{}, err
	}
	layout, initial, err := Model(n).Initial(seed, 0, 1)
	if err != nil {
		return Tally{}, err
	}
	at, ok := offset(layout)
	if !ok || len(rows) != n*classes {
		return Tally{}, fmt.Errorf("verify %s: %s has %d elements, expected %d for %d records",
			path, kernel, len(rows), n*classes, n)
	}
	return tally(rows, initial[at:at+n*classes], epochs), nil
}

// offset returns where the kernel begins in the flat array of a layout.
func offset(l param.Layout) (at int, ok bool) {
	for _, v := range l {
		if v.Name == kernel {
			return at, true
		}
		at += v.Len()
	}
	return 0, false
}

// tally compares the displacement of each row with that of that many updates.
func tally(rows, initial []float32, epochs int) Tally {
	t := Tally{Records: len(rows) / classes}
	least, most := (moved(epochs-1)+moved(epochs))/2, (moved(epochs)+moved(epochs+1))/2
	for id := range t.Records {
		at := id * classes
		switch d := math.Abs(float64(rows[at])-float64(initial[at])) / rate; {
		case d < least:
			t.Lost = append(t.Lost, id)
		case d > most:
			t.Doubled = append(t.Doubled, id)
		}
	}
	return t
}

// moved returns by how many learning rates k updates move an element.
func moved(k int) float64 {
	sum := 0.0
	for i := 1; i <= k; i++ {
		sum += 1 / math.Sqrt(float64(i))
	}
	return sum
}

// readKernel reads the rows of an exported model.
func readKernel(path string) ([]float32, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	file, err := safetensors.Open(f, info.Size())
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	for _, v := range file.Layout() {
		if v.Name == kernel {
			rows := make([]float32, v.Len())
			return rows, file.ReadTensor(kernel, 0, rows)
		}
	}
	return nil, fmt.Errorf("read %s: it has no %s", path, kernel)
}
