package checkpoint

import (
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"

	"github.com/elasticdl/elasticdl/trainer/store/safetensors"
)

// Part is a holder's part of a model: the elements [Start, Start+len(Values)) of its flat array.
type Part struct {
	Start  int
	Values []float32
	// of the trainable ones among them, which come first
	Slots [][]float32
}

// valuesName and slotName name the tensors of a shard.
const valuesName = "values"

func slotName(i int) string { return fmt.Sprintf("slot/%d", i) }

// ShardFile names the shard of holder i of n.
func ShardFile(i, n int) string { return fmt.Sprintf("shard-%d-of-%d.safetensors", i, n) }

// WriteShard writes a part of the model as the file of a commit's directory, and returns what the
// record says of it. When it returns without an error, the file is on the disk. It may be called
// for the same file again.
func WriteShard(d Dir, n Name, file string, p Part) (Shard, error) {
	s := Shard{File: file, Start: p.Start, End: p.Start + len(p.Values)}
	f, err := d.Create(n, file)
	if err != nil {
		return Shard{}, fmt.Errorf("write checkpoint: %s: %w", d.Path(n, file), err)
	}
	defer f.Abort()
	tensors := []safetensors.Tensor{{Name: valuesName, Shape: []int{len(p.Values)}, Values: p.Values}}
	for i, slot := range p.Slots {
		if len(slot) > 0 {
			tensors = append(tensors, safetensors.Tensor{Name: slotName(i), Shape: []int{len(slot)}, Values: slot})
		}
	}
	metadata := map[string]string{"commit": strconv.FormatInt(n.Number, 10), "start": strconv.Itoa(p.Start)}
	if n.Claim != "" {
		metadata["claim"] = n.Claim
	}
	crc := crc32.New(castagnoli)
	summed := make(chan error)
	go func() { summed <- safetensors.WriteTensors(crc, tensors, metadata) }() // during the writing
	written := &counter{w: f}
	err = safetensors.WriteTensors(written, tensors, metadata)
	if err = errors.Join(err, <-summed); err == nil {
		err = f.Commit()
	}
	if err != nil {
		return Shard{}, fmt.Errorf("write checkpoint: %s: %w", d.Path(n, file), err)
	}
	s.Bytes, s.CRC = written.bytes, checksum(crc.Sum32())
	return s, nil
}
