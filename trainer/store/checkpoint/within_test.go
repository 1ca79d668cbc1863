package checkpoint

import "testing"

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		location, dir string
		commit        Name
	}{
		{"ckpt", "ckpt", Name{}},
		{"/data/ckpt/commit-00000042", "/data/ckpt/", Name{42, ""}},
		{"/data/ckpt/commit-00000042/", "/data/ckpt/", Name{42, ""}},
		{"commit-00000042", "./", Name{42, ""}},
		{"s3://bucket/ckpt/commit-123456789", "s3://bucket/ckpt/", Name{123456789, ""}},
		{"s3://bucket/ckpt/commit-00000007?region=eu", "s3://bucket/ckpt/?region=eu", Name{7, ""}},
		{"ckpt/commit-00000042-2-5f3a9c1b", "ckpt/", Name{42, "2-5f3a9c1b"}},
		{"ckpt/commit-00000042-02-5f3a9c1b", "ckpt/commit-00000042-02-5f3a9c1b", Name{}},
		{"commit-42", "commit-42", Name{}},             // another's
		{"commit-00000000", "commit-00000000", Name{}}, // none has it
		{"ckpt/commit-", "ckpt/commit-", Name{}},
	} {
		if dir, commit := Within(c.location); dir != c.dir || commit != c.commit {
			t.Errorf("%s: %s and %v, want %s and %v", c.location, dir, commit, c.dir, c.commit)
		}
	}
}
