package image

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// checkout is a model zoo whose module is built with a checkout of another, as zoo init --local_pkg_dir writes it, and much that
// is not part of the program.
func checkout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, map[string]string{
		"zoo/go.mod":                "module example.com/zoo\n\ngo 1.26\n\nrequire example.com/lib v0.0.0 // indirect\n\nreplace (\n\texample.com/lib => ../lib\n\texample.com/far => example.com/near v1.0.0\n)\n",
		"zoo/go.sum":                "sums\n",
		"zoo/main.go":               "package main\n\nimport (\n\t_ \"fmt\"\n\t_ \"example.com/lib/deep\"\n\t_ \"example.com/zoo/models\"\n)\n\nfunc main() {}\n",
		"zoo/main_test.go":          "package main\n",
		"zoo/main_arm64.s":          "// arm64\n",
		"zoo/models/models.go":      "package models\n\nimport _ \"embed\"\n\n//go:embed words all:more\nvar text string\n",
		"zoo/models/words":          "w",
		"zoo/models/more/.hidden/a": "a",
		"zoo/models/other.txt":      "not embedded",
		"zoo/unused/unused.go":      "package unused\n",
		"zoo/Pulumi.gke.yaml":       "config: {}\n",
		"zoo/build/elasticdl":       "binary",
		"zoo/.git/HEAD":             "ref",
		"lib/go.mod":                "module example.com/lib\n",
		"lib/deep/deep.go":          "package deep\n\nimport _ \"example.com/zoo/models\"\n",
		"lib/deep/deep_amd64.go":    "package deep\n",
		"lib/deep/deep_windows.go":  "package deep\n",
		"lib/shallow.go":            "package lib\n",
	})
	return root
}

func TestSources(t *testing.T) {
	root := checkout(t)
	common := []string{"lib/deep/deep.go", "lib/go.mod", "zoo/go.mod", "zoo/go.sum", "zoo/main.go", "zoo/models/models.go", "zoo/models/more/.hidden/a", "zoo/models/words"}
	for _, test := range []struct {
		platforms []string
		more      []string
	}{
		{[]string{"linux/amd64"}, []string{"lib/deep/deep_amd64.go"}},
		{[]string{"linux/arm64"}, []string{"zoo/main_arm64.s"}},
		{[]string{"linux/amd64", "linux/arm64"}, []string{"lib/deep/deep_amd64.go", "zoo/main_arm64.s"}},
	} {
		files, err := sources(filepath.Join(root, "zoo"), test.platforms)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, file := range slices.Sorted(maps.Keys(files)) {
			rel, _ := filepath.Rel(root, file)
			got = append(got, rel)
		}
		if want := slices.Sorted(slices.Values(slices.Concat(common, test.more))); !slices.Equal(got, want) {
			t.Errorf("%v: got %q\nwant %q", test.platforms, got, want)
		}
	}
}

// Law 1: the hash is that of what goes in, wherever it is, and of nothing else.
func TestHash(t *testing.T) {
	hash := func(dir string) string {
		t.Helper()
		sum, err := Hash(dir, "", []string{"linux/amd64"})
		if err != nil {
			t.Fatal(err)
		}
		return sum
	}
	want := hash(filepath.Join(checkout(t), "zoo"))
	for file, same := range map[string]bool{
		"zoo/main.go": false, "zoo/go.mod": false, "zoo/go.sum": false, "zoo/models/words": false, "zoo/models/more/.hidden/a": false,
		"lib/deep/deep.go": false, "lib/go.mod": false,
		"zoo/main_test.go": true, "zoo/models/other.txt": true, "zoo/unused/unused.go": true, "zoo/Pulumi.gke.yaml": true,
		"zoo/build/elasticdl": true, "zoo/.git/HEAD": true, "lib/shallow.go": true, "lib/deep/deep_windows.go": true, "none": true,
	} {
		root := checkout(t)
		f, err := os.OpenFile(filepath.Join(root, file), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("\n// changed\n"); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got := hash(filepath.Join(root, "zoo")); (got == want) != same {
			t.Errorf("%s changed: the same hash is %v, want %v", file, got == want, same)
		}
	}
	zoo := filepath.Join(checkout(t), "zoo")
	for _, other := range []struct {
		base      string
		platforms []string
	}{{"debian:stable", []string{"linux/amd64"}}, {"", []string{"linux/amd64", "linux/riscv64"}}} {
		if got, err := Hash(zoo, other.base, other.platforms); err != nil || got == want {
			t.Errorf("%+v: the same hash, %v", other, err)
		}
	}
}

// zoo build follows what zoo init has left: so does the hash.
func TestRecipe(t *testing.T) {
	root := checkout(t)
	write(t, root, map[string]string{recipe: `{"model_zoo": "zoo", "base_image": "debian:stable"}`})
	files, err := sources(root, []string{"linux/amd64"})
	if err != nil || !files[filepath.Join(root, "zoo/models/words")] || !files[filepath.Join(root, recipe)] {
		t.Errorf("%v, %v", files, err)
	}
}

func TestHashRefuses(t *testing.T) {
	empty := t.TempDir()
	write(t, empty, map[string]string{"bare/README": "", "module/go.mod": "module m\n", "bad/elasticdl.json": "{"})
	for dir, want := range map[string]string{
		"bare": "there is no go.mod", "module": "expected a Go program, as elasticdl zoo init", "bad": "read elasticdl.json: ", "none": "there is no go.mod",
	} {
		if _, err := Hash(filepath.Join(empty, dir), "", []string{"linux/amd64"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", dir, err, want)
		}
	}
}
