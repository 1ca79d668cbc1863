package checkpoint

import "testing"

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		location, dir string
		number        int64
	}{
		{"ckpt", "ckpt", 0},
		{"/data/ckpt/commit-00000042", "/data/ckpt/", 42},
		{"/data/ckpt/commit-00000042/", "/data/ckpt/", 42},
		{"commit-00000042", "./", 42},
		{"s3://bucket/ckpt/commit-123456789", "s3://bucket/ckpt/", 123456789},
		{"s3://bucket/ckpt/commit-00000007?region=eu", "s3://bucket/ckpt/?region=eu", 7},
		{"commit-42", "commit-42", 0},             // another's
		{"commit-00000000", "commit-00000000", 0}, // none has it
		{"ckpt/commit-", "ckpt/commit-", 0},
	} {
		if dir, number := Within(c.location); dir != c.dir || number != c.number {
			t.Errorf("%s: %s and %d, want %s and %d", c.location, dir, number, c.dir, c.number)
		}
	}
}
