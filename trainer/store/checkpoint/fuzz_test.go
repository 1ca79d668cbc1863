package checkpoint

import (
	"strings"
	"testing"
)

func FuzzDecode(f *testing.F) {
	c := Commit{
		Format: Format, Number: 1, ModelGeneration: 1,
		Layout: []Variable{{Name: "w", Shape: []int{40}, Trainable: true},
			{Name: "mean", Shape: []int{8}, Momentum: 0.9}},
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

// A place in a bucket has a bucket, and a prefix that leads nowhere else.
func FuzzParseLocation(f *testing.F) {
	for _, location := range []string{"ckpt", "s3://b/a/p/?region=r", "gs://b", "s3://b/%2e%2e/p",
		"s3://b/a%2Fp", "hdfs://b", "s3://k:s@b:1/p#f"} {
		f.Add(location)
	}
	f.Fuzz(func(t *testing.T, location string) {
		u, err := ParseLocation(location)
		if u == nil {
			if err == nil && strings.Contains(location, "://") {
				t.Errorf("%q is taken for a directory", location)
			}
			return
		}
		if p := u.Path + "/"; !strings.HasPrefix(p, "/") || strings.Contains(p, "//") ||
			strings.Contains(p, "/../") || strings.Contains(p, "/./") {
			t.Errorf("%q: objects are below %q", location, p)
		}
		if u.Host == "" || strings.ContainsAny(u.Host, "/:@") {
			t.Errorf("%q: the bucket is %q", location, u.Host)
		}
	})
}
