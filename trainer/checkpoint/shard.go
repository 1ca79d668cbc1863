package checkpoint

import (
	"bufio"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"runtime"
	"strconv"
	"sync"

	"github.com/elasticdl/elasticdl/trainer/safetensors"
)

// Part is what a holder has of a model: the elements [Start, Start+len(Values)) of its flat array.
type Part struct {
	Start  int
	Values []float32
	Slots  [][]float32 // of the trainable ones among them, which come first
}

// Copy makes dst a copy of src, in the memory that dst has if that is of the same size.
func Copy(dst *Part, src Part) {
	dst.Start = src.Start
	dst.Values = copyFloats(dst.Values, src.Values)
	slots := make([][]float32, len(src.Slots))
	copy(slots, dst.Slots)
	for i, slot := range src.Slots {
		slots[i] = copyFloats(slots[i], slot)
	}
	dst.Slots = slots
}

// atOnce is how many elements one processor copies while others copy others.
const atOnce = 1 << 20

func copyFloats(dst, src []float32) []float32 {
	if len(dst) != len(src) {
		dst = make([]float32, len(src))
	}
	var copying sync.WaitGroup
	each := max(atOnce, (len(src)+runtime.GOMAXPROCS(0)-1)/runtime.GOMAXPROCS(0))
	for a := 0; a < len(src); a += each {
		b := min(a+each, len(src))
		copying.Go(func() { copy(dst[a:b], src[a:b]) })
	}
	copying.Wait()
	return dst
}

// valuesName and slotName name the tensors of a shard.
const valuesName = "values"

func slotName(i int) string { return fmt.Sprintf("slot/%d", i) }

// ShardFile names the shard of holder i of n.
func ShardFile(i, n int) string { return fmt.Sprintf("shard-%d-of-%d.safetensors", i, n) }

// WriteShard writes a part of the model as the file of a commit's directory, and returns what the record says of it. When
// it returns without an error, the file is on the disk. It may be called for the same file again.
func WriteShard(d Dir, number int64, file string, p Part) (Shard, error) {
	s := Shard{File: file, Start: p.Start, End: p.Start + len(p.Values)}
	f, err := d.Create(number, file)
	if err != nil {
		return Shard{}, fmt.Errorf("write checkpoint: %s: %w", d.Path(number, file), err)
	}
	defer f.Abort()
	sum := &summed{w: f, crc: crc32.New(castagnoli)}
	buffered := bufio.NewWriterSize(sum, 1<<20)
	tensors := []safetensors.Tensor{{Name: valuesName, Shape: []int{len(p.Values)}, Values: p.Values}}
	for i, slot := range p.Slots {
		if len(slot) > 0 {
			tensors = append(tensors, safetensors.Tensor{Name: slotName(i), Shape: []int{len(slot)}, Values: slot})
		}
	}
	metadata := map[string]string{"commit": strconv.FormatInt(number, 10), "start": strconv.Itoa(p.Start)}
	if err = safetensors.WriteTensors(buffered, tensors, metadata); err == nil {
		err = buffered.Flush()
	}
	if err == nil {
		err = f.Commit()
	}
	if err != nil {
		return Shard{}, fmt.Errorf("write checkpoint: %s: %w", d.Path(number, file), err)
	}
	s.Bytes, s.CRC = sum.n, checksum(sum.crc.Sum32())
	return s, nil
}

// summed counts and sums what is written.
type summed struct {
	w   io.Writer
	crc hash.Hash32
	n   int64
}

func (s *summed) Write(b []byte) (int, error) {
	n, err := s.w.Write(b)
	s.crc.Write(b[:n])
	s.n += int64(n)
	return n, err
}
