package image

import (
	"archive/zip"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/runtime/image"
)

// proxy creates a module proxy of files that serves two versions of each module; each has one
// package that prints its version.
func proxy(t *testing.T, modules ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, path := range modules {
		for _, version := range []string{"v1.0.0", "v1.1.0"} {
			at := filepath.Join(path, "@v", version)
			mod := "module " + path + "\n\ngo 1.25\n"
			write(t, dir, map[string]string{at + ".info": fmt.Sprintf(`{"Version": %q}`, version),
				at + ".mod": mod, at + ".zip": ""})
			archive, err := os.Create(filepath.Join(dir, at+".zip"))
			if err != nil {
				t.Fatal(err)
			}
			files := zip.NewWriter(archive)
			for name, text := range map[string]string{"go.mod": mod,
				"is.go": "package is\n\nfunc Is() string { return \"" + version + "\" }\n"} {
				f, err := files.Create(path + "@" + version + "/" + name)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := f.Write([]byte(text)); err != nil {
					t.Fatal(err)
				}
			}
			if err := files.Close(); err != nil {
				t.Fatal(err)
			}
			if err := archive.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	return dir
}

// offline makes Go use only a proxy of files, with a module cache of its own.
func offline(t *testing.T, modules ...string) {
	t.Helper()
	for name, value := range map[string]string{
		"GOPROXY": "file://" + proxy(t, modules...), "GOSUMDB": "off", "GOMODCACHE": t.TempDir(),
		"GOFLAGS": "-mod=mod -modcacherw",
		"GOWORK":  "off", "GOTOOLCHAIN": "local", "GOENV": "off",
	} {
		t.Setenv(name, value)
	}
}

// checkout creates a git repository with a model zoo, and returns its directory. The zoo is built
// with a checkout of a module named like ElasticDL's, links one module of the cache, does not link
// another, and has many files that are not part of the program.
func checkout(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	write(t, root, map[string]string{
		"zoo/go.mod": "module example.com/zoo\n\ngo 1.25.0\n\nrequire " +
			"(\n\texample.com/linked v1.0.0\n\texample.com/other " +
			"v1.0.0\n\tgithub.com/elasticdl/elasticdl v0.0.0\n)\n\nreplace github.com/elasticdl/elasticdl => ../lib\n",
		"zoo/main.go": "package main\n\nimport " +
			"(\n\t\"example.com/linked\"\n\t\"example.com/zoo/models\"\n\t\"github.com/elasticdl/elasticdl/deep\"\n)\n\nfunc main() { println(is.Is(), models.Text, deep.Deep) }\n",
		"zoo/main_test.go":     "package main\n",
		"zoo/models/models.go": "package models\n\nimport _ \"embed\"\n\n//go:embed words\nvar Text string\n",
		"zoo/models/words":     "w",
		"zoo/models/more.go": "package models\n\nimport \"embed\"\n\n//go:embed " +
			"all:more\nvar More embed.FS\n\nfunc init() { More.Open(Text) }\n",
		"zoo/models/more/.hidden/a": "a",
		"zoo/models/other.txt":      "not embedded",
		"zoo/unused/unused.go":      "package unused\n",
		"zoo/Pulumi.gke.yaml":       "config: {}\n",
		"zoo/build/elasticdl":       "binary",
		"lib/go.mod": "module github.com/elasticdl/elasticdl\n\ngo 1.25.0\n\nrequire " +
			"example.com/other v1.0.0\n",
		"lib/deep/deep.go":         "package deep\n\nvar Deep = \"deep\" + arch\n",
		"lib/deep/deep_amd64.go":   "package deep\n\nconst arch = \"amd64\"\n",
		"lib/deep/deep_arm64.go":   "package deep\n\nconst arch = \"arm64\"\n",
		"lib/deep/deep_windows.go": "package deep\n",
		"lib/shallow.go":           "package lib\n",
	})
	return root
}

// change replaces a text in a file; if the text is "", it appends to the file, which it creates if
// necessary.
func change(file, from, to string) func(t *testing.T, root string) {
	return func(t *testing.T, root string) {
		t.Helper()
		path := filepath.Join(root, file)
		text, err := os.ReadFile(path)
		if from == "" {
			write(t, root, map[string]string{file: string(text) + to})
			return
		}
		if err != nil || !strings.Contains(string(text), from) {
			t.Fatalf("%s has no %q: %v", file, from, err)
		}
		write(t, root, map[string]string{file: strings.ReplaceAll(string(text), from, to)})
	}
}

// commit creates a git repository of a directory.
func commit(t *testing.T, root string) {
	t.Helper()
	for _, args := range []string{"init -q", "add .", "-c user.name=a -c user.email=a@example.com commit -q -m first"} {
		c := exec.Command("git", strings.Fields(args)...)
		c.Dir = root
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", args, err, out)
		}
	}
}

// Law 1: the hash changes if and only if the binary that zoo build makes changes, wherever it is
// built.
func TestHash(t *testing.T) {
	offline(t, "example.com/linked", "example.com/other", "example.com/more")
	const platform = "linux/amd64"
	digests := func(root string) (hash, binary string) {
		t.Helper()
		zoo := filepath.Join(root, "zoo")
		hash, err := Hash(t.Context(), zoo, "", []string{platform})
		if err != nil {
			t.Fatal(err)
		}
		built, err := image.Compile(t.Context(), zoo, t.TempDir(), []string{platform}, func(image.Progress) {})
		if err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(built[0].Path)
		if err != nil {
			t.Fatal(err)
		}
		return hash, fmt.Sprintf("%x", sha256.Sum256(text))
	}
	hash, binary := digests(checkout(t))
	for _, test := range []struct {
		name   string
		change func(t *testing.T, root string)
		same   bool
	}{
		{"elsewhere", func(*testing.T, string) {}, true},
		{"a commit", commit, true},
		{"a comment in go.mod", change("zoo/go.mod", "", "\n// changed\n"), true},
		{"another requirement", change("zoo/go.mod", "", "\nrequire example.com/more v1.0.0\n"), true},
		{"a bump of a requirement that is not linked", change("zoo/go.mod", "other v1.0.0", "other v1.1.0"), true},
		{"a bump within the checkout of what is not linked",
			change("lib/go.mod", "other v1.0.0", "other v1.1.0"), true},
		{"a release of the same language", change("zoo/go.mod", "go 1.25.0", "go 1.25.1"), true},
		{"go.sum", change("zoo/go.sum", "", "example.com/more v1.0.0/go.mod "+
			"h1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n"), true},
		{"a test", change("zoo/models/models_test.go", "", "package models\n"), true},
		{"a file that is not embedded", change("zoo/models/other.txt", "", "more"), true},
		{"a package that is not linked", change("zoo/unused/unused.go", "", "\nvar More = 1\n"), true},
		{"a new package", change("zoo/another/another.go", "", "package another\n"), true},
		{"a package of the checkout that is not linked", change("lib/shallow.go", "", "\n// changed\n"), true},
		{"a file for another system", change("lib/deep/deep_windows.go", "", "\nvar More = 1\n"), true},
		{"a file for another architecture", change("lib/deep/deep_arm64.go", "arm64", "ARM64"), true},
		{"the stack's file", change("zoo/Pulumi.gke.yaml", "{}", "{a: b}"), true},
		{"a binary", change("zoo/build/elasticdl", "", "newer"), true},

		{"the program", change("zoo/main.go", "println(", "println(1, "), false},
		{"an embedded file", change("zoo/models/words", "", "x"), false},
		{"a hidden embedded file", change("zoo/models/more/.hidden/a", "", "x"), false},
		{"another embedded file", change("zoo/models/more/b", "", "b"), false},
		{"the checkout", change("lib/deep/deep.go", "deep\"", "deeper\""), false},
		{"a file of the architecture", change("lib/deep/deep_amd64.go", "\"amd64", "\"AMD64"), false},
		{"a bump of a module that is linked", change("zoo/go.mod", "linked v1.0.0", "linked v1.1.0"), false},
		{"a bump by a module that is linked", change("lib/go.mod", "other v1.0.0", "linked v1.1.0"), false},
		{"an older language", change("zoo/go.mod", "replace", "godebug default=go1.21\n\nreplace"), false},
		{"a setting of the runtime", change("zoo/go.mod", "replace", "godebug panicnil=1\n\nreplace"), false},
		{"a setting of the runtime in the program",
			change("zoo/main.go", "package main", "//go:debug panicnil=1\npackage main"), false},
		{"a checkout elsewhere", func(t *testing.T, root string) {
			if err := os.Rename(filepath.Join(root, "lib"), filepath.Join(root, "lib2")); err != nil {
				t.Fatal(err)
			}
			change("zoo/go.mod", "../lib", "../lib2")(t, root)
		}, false},
	} {
		root := checkout(t)
		test.change(t, root)
		gotHash, gotBinary := digests(root)
		if (gotHash == hash) != test.same || (gotBinary == binary) != test.same {
			t.Errorf("%s: the same hash is %v, the same binary is %v, want %v", test.name,
				gotHash == hash, gotBinary == binary, test.same)
		}
	}
}

// Settings whose effect on the hash can be tested without a compiler.
func TestHashOfSettings(t *testing.T) {
	offline(t, "example.com/linked", "example.com/other")
	root := checkout(t)
	zoo := filepath.Join(root, "zoo")
	of := func(source, base string, platforms ...string) string {
		t.Helper()
		hash, err := Hash(t.Context(), source, base, platforms)
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	amd64 := of(zoo, "", "linux/amd64")
	seen := map[string]string{amd64: "none"}
	differs := func(name, hash string) {
		t.Helper()
		if as, ok := seen[hash]; ok {
			t.Errorf("%s: the hash is that of %s", name, as)
		}
		seen[hash] = name
	}
	debian := of(zoo, "debian:stable", "linux/amd64")
	differs("a base", debian)
	differs("another platform", of(zoo, "", "linux/arm64"))
	differs("two platforms", of(zoo, "", "linux/amd64", "linux/arm64"))
	t.Run("processors", func(t *testing.T) {
		t.Setenv("GOAMD64", "v3")
		differs("newer processors", of(zoo, "", "linux/amd64"))
	})
	t.Run("tags", func(t *testing.T) {
		t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -tags=x")
		differs("tags", of(zoo, "", "linux/amd64"))
	})
	t.Run("flags", func(t *testing.T) {
		t.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -v -p=1 -buildvcs=false")
		if of(zoo, "", "linux/amd64") != amd64 {
			t.Error("flags of which nothing is compiled in change the hash")
		}
	})

	// zoo build reads the file of zoo init, and so does the hash.
	write(t, root, map[string]string{recipe: `{"model_zoo": "zoo", "base_image": "debian:stable"}`})
	if of(root, "", "linux/amd64") != debian || of(root, "alpine", "linux/amd64") != of(zoo, "alpine", "linux/amd64") {
		t.Error("the recipe's base is not what a base that is given is")
	}
	write(t, root, map[string]string{"zoo/default.pgo": "of a profile"})
	differs("a profile", of(zoo, "", "linux/amd64"))

	binary := filepath.Join(zoo, "build", "elasticdl")
	was := of(binary, "", "linux/amd64")
	write(t, root, map[string]string{"zoo/build/elasticdl": "newer"})
	if of(binary, "", "linux/amd64") == was || of(binary, "debian", "linux/amd64") == of(binary, "", "linux/amd64") {
		t.Error("another binary has the same hash, or another base")
	}
}

// The agent is compiled with elasticdl, and its main package is linked by nothing else.
func TestHashOfAgent(t *testing.T) {
	root := t.TempDir()
	write(t, root, map[string]string{
		"go.mod":                      "module github.com/elasticdl/elasticdl\n\ngo 1.26\n",
		"cmd/elasticdl/main.go":       "package main\n\nfunc main() {}\n",
		"cmd/elasticdl-agent/main.go": "package main\n\nfunc main() {}\n",
	})
	var hashes []string
	for _, more := range []string{"", "", "\nvar More = 1\n"} {
		write(t, root, map[string]string{"cmd/elasticdl-agent/main.go": "package main\n\nfunc main() {}\n" + more})
		hash, err := Hash(t.Context(), filepath.Join(root, "cmd/elasticdl"), "", []string{"linux/amd64"})
		if err != nil {
			t.Fatal(err)
		}
		hashes = append(hashes, hash)
	}
	if hashes[0] != hashes[1] || hashes[1] == hashes[2] {
		t.Errorf("hashes %q; want the last one to differ", hashes)
	}
}

// Modules that only other programs of this repository need, such as Pulumi, do not change the hash
// of its own image.
func TestHashOfElasticDL(t *testing.T) {
	of := func() string {
		t.Helper()
		hash, err := Hash(t.Context(), "../../cmd/elasticdl", "", []string{"linux/amd64"})
		if err != nil {
			t.Fatal(err)
		}
		return hash
	}
	want := of()
	text, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	sums, err := os.ReadFile("../../go.sum")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"sdk/go.mod":    "module github.com/pulumi/pulumi-command/sdk\n\ngo 1.26\n",
		"snappy/go.mod": "module github.com/golang/snappy\n",
		"snappy/snappy.go": "package snappy\n\nfunc Decode(dst, src []byte) ([]byte, error) { " +
			"return src, nil }\n\nfunc Encode(dst, src []byte) []byte { return src }\n",
	})
	for _, test := range []struct {
		name, line string
		same       bool
	}{
		{"a release of pulumi-command", "replace github.com/pulumi/pulumi-command/sdk => " +
			filepath.Join(dir, "sdk"), true},
		{"a module less to fetch", "exclude example.com/nothing v1.0.0", true},
		{"another snappy", "replace github.com/golang/snappy => " + filepath.Join(dir, "snappy"), false},
	} {
		write(t, dir, map[string]string{"go.mod": string(text) + "\n" + test.line + "\n", "go.sum": string(sums)})
		t.Setenv("GOFLAGS", "-mod=mod -modfile="+filepath.Join(dir, "go.mod"))
		if got := of(); (got == want) != test.same {
			t.Errorf("%s: the same hash is %v, want %v", test.name, got == want, test.same)
		}
	}
}

func TestHashRefuses(t *testing.T) {
	offline(t)
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"bare/README": "", "module/go.mod": "module m\n", "bad/elasticdl.json": "{",
		"lib/go.mod": "module m\n", "lib/lib.go": "package lib\n",
		"lacks/go.mod":  "module m\n",
		"lacks/main.go": "package main\n\nimport _ \"example.com/nowhere\"\n\nfunc main() {}\n",
	})
	refuses := func(source, want string) {
		t.Helper()
		if _, err := Hash(t.Context(), filepath.Join(dir, source), "",
			[]string{"linux/amd64"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", source, err, want)
		}
	}
	refuses("bare", "there is no go.mod")
	refuses("module", "expected a Go program that can be built: no Go files in ")
	refuses("lib", "m is package lib, not main")
	refuses("lacks", "example.com/nowhere")
	refuses("bad", "read elasticdl.json: ")
	refuses("none", "no such file")
	t.Setenv("PATH", t.TempDir())
	refuses("lib", "Go is not in PATH: https://go.dev/dl has it")
}
