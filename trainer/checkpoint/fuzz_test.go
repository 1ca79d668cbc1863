package checkpoint

import "testing"

func FuzzDecode(f *testing.F) {
	c := Commit{
		Format: Format, Number: 1, Life: 1, Layout: []Variable{{Name: "w", Shape: []int{40}, Trainable: true}, {Name: "mean", Shape: []int{8}, Momentum: 0.9}},
		Shards: []Shard{{File: ShardFile(0, 1), End: 48, Bytes: 1, CRC: noChecksum}},
	}
	record, err := c.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(record)
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Decode(seal(b))
		if err != nil {
			return
		}
		again, err := c.Encode()
		if err != nil {
			t.Fatalf("%s is read, and cannot be written: %v", b, err)
		}
		if _, err := Decode(again); err != nil {
			t.Fatal(err)
		}
	})
}
