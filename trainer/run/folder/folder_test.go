package folder

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// tree makes a directory. A name that ends with a slash is a directory, a text that begins with an
// arrow a link, one with "#!" may be executed.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o600)
		if strings.HasPrefix(text, "#!") {
			mode = 0o700
		}
		var err error
		if to, link := strings.CutPrefix(text, "-> "); link {
			err = os.Symlink(to, path)
		} else if strings.HasSuffix(name, "/") {
			err = os.MkdirAll(path, 0o700)
		} else {
			err = os.WriteFile(path, []byte(text), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// names returns what is in a folder: "main.py", "data/".
func names(f *Folder) string {
	var all []string
	for _, e := range f.Entries {
		all = append(all, e.Name)
	}
	return strings.Join(all, " ")
}

// Read leaves out files by default and by .dockerignore, and follows links within the directory.
func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"all": {map[string]string{"main.py": "", "run.sh": "#!", "net/a.py": "", "logs/": ""},
			"logs/ main.py net/ net/a.py run.sh"},
		"by default": {map[string]string{
			"main.py": "", ".git/config": "", ".gitignore": "", "net/__pycache__/a.cpython-311.pyc": "",
			"net/a.pyc": "", ".venv/lib/x.py": "", ".env": "secret",
			"mine/pyvenv.cfg": "", "mine/bin/python": "-> /usr/bin/python3", "sub/.git": "gitdir: ../x",
			".DS_Store": "",
		}, ".gitignore main.py net/ sub/"},
		"by .dockerignore": {map[string]string{".dockerignore": "# mine\ndata\n**/*.ckpt\n/notes.md\n",
			"main.py": "", "data/x": "", "a/b.ckpt": "", "a/notes.md": "", "notes.md": ""},
			".dockerignore a/ a/notes.md main.py"},
		"taken in again": {map[string]string{".dockerignore": "data\n!data/labels.txt\n!.env\n",
			"main.py": "", "data/x": "", "data/labels.txt": "", ".env": "", ".git/config": ""},
			".dockerignore .env data/labels.txt main.py"},
		"links": {map[string]string{"main.py": "-> net/a.py", "net/a.py": "print(1)", "other": "-> net",
			".dockerignore": "out", "out": "-> /etc"},
			".dockerignore main.py net/ net/a.py other/ other/a.py"},
	} {
		dir := tree(t, test.files)
		f, err := Read(dir)
		if err != nil || names(f) != test.want {
			t.Errorf("%s: %v, %v, want %s", name, f, err, test.want)
			continue
		}
		if link := filepath.Join(t.TempDir(), "link"); os.Symlink(dir, link) == nil {
			if f, err := Read(link); err != nil || names(f) != test.want {
				t.Errorf("%s, by a link: %v, %v", name, f, err)
			}
		}
	}
}

// Read refuses links that lead out of the directory (law 2), and folders that cannot be packed.
func TestReadRefuses(t *testing.T) {
	big := tree(t, map[string]string{"main.py": "", "data/train.bin": ""})
	if err := os.Truncate(filepath.Join(big, "data/train.bin"), MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{
		"/nothing": "expected a directory: no such file",
		filepath.Join(tree(t, map[string]string{"f": ""}), "f"): "expected a directory, found a file",
		tree(t, nil): "no files in it",
		tree(t, map[string]string{"__pycache__/x": "", "a/": ""}): "no files in it",
		tree(t, map[string]string{"a": "-> /etc/passwd"}): "a: the symbolic link " +
			"leads out of the directory, to /etc/passwd",
		tree(t, map[string]string{"x/a": "-> ../../"}): "x/a: the symbolic link " +
			"leads out of the directory",
		tree(t, map[string]string{"a": "-> none"}):                        "a: the symbolic link leads nowhere",
		tree(t, map[string]string{"a/b": "-> ../a"}):                      "a/b: the symbolic link leads back",
		tree(t, map[string]string{"a/b": "-> .."}):                        "a/b: the symbolic link leads back",
		tree(t, map[string]string{`a\b`: ""}):                             "expected a name without a backslash",
		tree(t, map[string]string{"main.py": "", ".dockerignore": "[a-"}): ".dockerignore: syntax error",
		big: "501 MB in it, expected at most 500: put data on a volume, or list files to leave " +
			"out in .dockerignore; the largest file is data/train.bin, 501 MB",
	} {
		if f, err := Read(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, %v, want %q", f, err, want)
		}
	}
}

func archive(t *testing.T, dir string) []byte {
	t.Helper()
	f, err := Read(dir)
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := f.Archive(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// An archive depends on the files and whether they are executable, not on their times and other
// permissions (law 1).
func TestArchive(t *testing.T) {
	files := map[string]string{"main.py": "print(1)", "run.sh": "#!/bin/sh", "net/a.py": "",
		"logs/": "", "long/" + strings.Repeat("x", 150): "y"}
	dir := tree(t, files)
	want := archive(t, dir)
	later := time.Now().Add(time.Hour)
	if err := errors.Join(os.Chtimes(filepath.Join(dir, "main.py"), later, later),
		os.Chmod(filepath.Join(dir, "main.py"), 0o664), os.Chmod(filepath.Join(dir, "net"), 0o777)); err != nil {
		t.Fatal(err)
	}
	if got := archive(t, dir); !bytes.Equal(got, want) {
		t.Error("another archive of the same files")
	}
	if got := archive(t, tree(t, files)); !bytes.Equal(got, want) {
		t.Error("another archive of the same files elsewhere")
	}
	if err := os.Chmod(filepath.Join(dir, "main.py"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := archive(t, dir); bytes.Equal(got, want) {
		t.Error("the same archive of a file that may be executed now")
	}
	found := make(map[string]string)
	for r := tar.NewReader(bytes.NewReader(want)); ; {
		h, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(r)
		found[h.Name] = string(text)
		wantMode := int64(0o644)
		if strings.HasSuffix(h.Name, "/") || strings.HasPrefix(string(text), "#!") {
			wantMode = 0o755
		}
		if h.Mode != wantMode || h.Uname != "" || h.Uid != 0 || !h.ModTime.Equal(time.Unix(0, 0)) {
			t.Errorf("%s: %+v", h.Name, h)
		}
	}
	for name, text := range files {
		if found[name] != text {
			t.Errorf("%s has %q, want %q", name, found[name], text)
		}
	}
	if len(found) != len(files)+2 { // net/, long/
		t.Errorf("%q", found)
	}
}

// Archive returns an error if a file changes while it is read.
func TestArchiveOfAFileThatChanges(t *testing.T) {
	for _, text := range []string{"longer than it was", ""} {
		dir := tree(t, map[string]string{"main.py": "print(1)"})
		f, err := Read(dir)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "main.py"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := f.Archive(io.Discard); err == nil ||
			!strings.Contains(err.Error(), "pack main.py: it changed while it was read") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
