package fetch

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/elasticdl/elasticdl/trainer/elastic/source"
	"github.com/elasticdl/elasticdl/trainer/store/bucket"
)

// entry is a file of an archive. A name that ends with a slash is a directory, a content that
// begins with an arrow a link.
type entry struct {
	name, content string
	mode          fs.FileMode
}

var code = []entry{
	{"./", "", 0o755}, {"main.py", "print(1)", 0o644}, {"lib/run.sh", "exit", 0o755},
	{"lib/empty/", "", 0o755}, {"lib/a.py", "a = 1", 0o600},
}

func tarred(t testing.TB, entries ...entry) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: int64(e.mode), Size: int64(len(e.content)), Typeflag: tar.TypeReg}
		if to, link := strings.CutPrefix(e.content, "-> "); link {
			h.Typeflag, h.Linkname, h.Size, e.content = tar.TypeSymlink, to, 0, ""
		} else if strings.HasSuffix(e.name, "/") {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(w, e.content)
	}
	w.Close()
	return b.Bytes()
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

func zipped(t testing.TB, entries ...entry) []byte {
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name, Method: zip.Deflate}
		h.SetMode(e.mode)
		if to, link := strings.CutPrefix(e.content, "-> "); link {
			h.SetMode(fs.ModeSymlink | 0o777)
			e.content = to
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(e.name, "/") {
			io.WriteString(f, e.content)
		}
	}
	w.Close()
	return b.Bytes()
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// only checks the names of all entries of a directory.
func only(t *testing.T, dir string, want ...string) {
	t.Helper()
	var got []string
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

func get(t *testing.T, dir string, o Options, command ...string) (string, error) {
	t.Helper()
	p, err := source.Parse(command, "")
	if err != nil {
		t.Fatal(err)
	}
	return Fetch(t.Context(), p, dir, o)
}

// web serves files by their names, and counts the requests.
func web(t *testing.T, files map[string][]byte) (address string, requests func() int) {
	var mu sync.Mutex
	n := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		n++
		mu.Unlock()
		b, ok := files[strings.TrimPrefix(r.URL.Path, "/")]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write(b)
	}))
	t.Cleanup(server.Close)
	return server.URL, func() int { mu.Lock(); defer mu.Unlock(); return n }
}

func TestFile(t *testing.T) {
	main := []byte("#!/usr/bin/env python3\n")
	address, requests := web(t, map[string][]byte{"dir/main.py": main})
	dir := filepath.Join(t.TempDir(), "not", "there")
	path, err := get(t, dir, Options{}, address+"/dir/main.py?key=1", "--epochs=2")
	if err != nil || path != filepath.Join(dir, sum(main), "main.py") {
		t.Fatal(path, err)
	}
	if b, err := os.ReadFile(path); err != nil || !bytes.Equal(b, main) {
		t.Errorf("%q, %v", b, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode()&0o111 != 0o111 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	// fetched again, because it may have changed
	again, err := get(t, dir, Options{}, address+"/dir/main.py")
	if err != nil || again != path || requests() != 2 {
		t.Errorf("%s, %v after %d requests", again, err, requests())
	}
	// not fetched again, because its checksum is known
	again, err = get(t, dir, Options{}, address+"/dir/main.py#sha256="+sum(main))
	if err != nil || again != path || requests() != 2 {
		t.Errorf("%s, %v after %d requests", again, err, requests())
	}
	only(t, dir, sum(main))
}

// Calls that fetch into one directory at the same time all get the complete program.
func TestAtTheSameTime(t *testing.T) {
	archive := zipped(t, code...)
	address, _ := web(t, map[string][]byte{"code.zip": archive})
	dir := t.TempDir()
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			p, err := source.Parse([]string{address + "/code.zip", "lib/a.py"}, "")
			if err != nil {
				t.Error(err)
			}
			path, err := Fetch(t.Context(), p, dir, Options{})
			if b, readErr := os.ReadFile(path); err != nil || readErr != nil || string(b) != "a = 1" {
				t.Errorf("%s: %q, %v, %v", path, b, err, readErr)
			}
		})
	}
	all.Wait()
	only(t, dir, sum(archive))
}

func TestArchives(t *testing.T) {
	files := map[string][]byte{
		"c.tar": tarred(t, code...), "c.tar.gz": gzipped(tarred(t, code...)),
		"c.tgz": gzipped(tarred(t, code...)), "c.zip": zipped(t, code...),
	}
	address, _ := web(t, files)
	for name, b := range files {
		dir := t.TempDir()
		path, err := get(t, dir, Options{}, address+"/"+name, "./main.py", "x")
		if err != nil || path != filepath.Join(dir, sum(b), "main.py") {
			t.Errorf("%s: %s, %v", name, path, err)
			continue
		}
		top := filepath.Dir(path)
		for file, want := range map[string]fs.FileMode{"main.py": 0o100, "lib/run.sh": 0o100, "lib/a.py": 0} {
			info, err := os.Stat(filepath.Join(top, file))
			if err != nil || info.Mode()&0o100 != want {
				t.Errorf("%s: %s: %v, %v", name, file, info, err)
			}
		}
		only(t, filepath.Join(top, "lib"), "a.py", "empty", "run.sh")
		only(t, dir, sum(b))
		if _, err := get(t, dir, Options{}, address+"/"+name, "lib/nothing.py"); err == nil ||
			!strings.Contains(err.Error(), "no lib/nothing.py in the archive") {
			t.Errorf("%s: error %v", name, err)
		}
		if _, err := get(t, dir, Options{}, address+"/"+name, "lib"); err == nil ||
			!strings.Contains(err.Error(), "lib is not a file") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestBadArchives(t *testing.T) {
	good := gzipped(tarred(t, code...))
	broken := bytes.Clone(good)
	broken[len(broken)-5] ^= 1 // its checksum
	files := map[string][]byte{"cut.tgz": good[:len(good)/2], "sum.tgz": broken,
		"html.zip": []byte("<html>"), "html.tgz": []byte("<html>"), "empty.tar": tarred(t), "empty.zip": zipped(t)}
	wants := map[string]string{"cut.tgz": "EOF", "sum.tgz": "checksum", "html.zip": "not a valid zip",
		"html.tgz": "not a .tar.gz", "empty.tar": "nothing is in", "empty.zip": "nothing is in"}
	for name, c := range map[string]struct {
		e    []entry
		want string
	}{
		"up":        {[]entry{{"../evil", "x", 0o644}}, "leads out of the archive"},
		"inside":    {[]entry{{"lib/../../evil", "x", 0o644}}, "leads out of the archive"},
		"absolute":  {[]entry{{"/tmp/evil", "x", 0o644}}, "leads out of the archive"},
		"backslash": {[]entry{{`..\evil`, "x", 0o644}}, "leads out of the archive"},
		"link":      {[]entry{{"lib2", "-> /tmp", 0o644}, {"lib2/evil", "x", 0o644}}, "without links"},
		"twice":     {[]entry{{"main.py", "x", 0o644}}, "main.py: the archive contains it twice"},
		"file":      {[]entry{{"main.py/x", "x", 0o644}}, "main.py"},
	} {
		entries := append(code[:len(code):len(code)], c.e...)
		files[name+".tar"], files[name+".zip"] = tarred(t, entries...), zipped(t, entries...)
		wants[name+".tar"], wants[name+".zip"] = c.want, c.want
	}
	address, _ := web(t, files)
	for name, want := range wants {
		parent := t.TempDir()
		_, err := get(t, filepath.Join(parent, "dir"), Options{}, address+"/"+name, "main.py")
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), address+"/"+name) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
		only(t, filepath.Join(parent, "dir"))
		only(t, parent, "dir")
	}
}

// Both limits hold for the actual content of an archive, not for the sizes that it declares.
func TestLimits(t *testing.T) {
	root, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	u := unpacking{root: root, left: 10}
	err1 := u.add("a", 0o644, strings.NewReader("0123456789"), true)
	err2 := u.add("b", 0o644, strings.NewReader("0"), true)
	if err1 != nil || err2 == nil || !strings.Contains(err2.Error(), "belongs on a volume") {
		t.Error(err1, err2)
	}
	u = unpacking{root: root, left: 10, entries: maxEntries}
	if err := u.add("c", 0o644, strings.NewReader("0"), true); err == nil || !strings.Contains(err.Error(), "entries") {
		t.Error(err)
	}
}

func TestWebErrors(t *testing.T) {
	address, _ := web(t, map[string][]byte{"main.py": []byte("x")})
	forbidden := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
	}))
	defer forbidden.Close()
	away := httptest.NewServer(http.RedirectHandler("http://192.0.2.1/main.py?key=secret", http.StatusFound))
	defer away.Close()
	large := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "1000000000")
	}))
	defer large.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	for location, want := range map[string]string{
		address + "/nothing.py?key=secret": "404",
		forbidden.URL + "/m.py?key=secret": "signed one that has not expired",
		away.URL + "/m.py?key=secret": "redirected to " +
			"http://192.0.2.1/main.py; expected https://",
		large.URL + "/m.py":                                            "1000000000 bytes, want at most",
		closed.URL + "/m.py?key=secret":                                "refused",
		address + "/main.py#sha256=" + strings.Repeat("0", 64):         "sha256 " + sum([]byte("x")) + ", expected 000",
		"s3://b/main.py":                                               "programs in buckets are not fetched here",
		address + "/main.py?key=secret#sha256=" + sum([]byte("other")): "correct the address or the checksum",
	} {
		dir := t.TempDir()
		_, err := get(t, dir, Options{}, location)
		shown, _, _ := strings.Cut(location, "?")
		shown, _, _ = strings.Cut(shown, "#")
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), shown) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %v, want %q", location, err, want)
		}
		only(t, dir)
	}
}

func TestLocal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "main.py")
	if err := os.WriteFile(file, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, location := range []string{"python3", file, file + "#sha256=" + sum([]byte("x"))} {
		path, err := get(t, "/nowhere", Options{}, location)
		want, _, _ := strings.Cut(location, "#")
		if err != nil || path != want {
			t.Errorf("%s: %s, %v", location, path, err)
		}
	}
	if _, err := get(t, "/nowhere", Options{}, file+"#sha256="+sum([]byte("y"))); err == nil ||
		!strings.Contains(err.Error(), "program "+file+": sha256") {
		t.Error(err)
	}
}

func TestBucket(t *testing.T) {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	// so that the developer's file is not read
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	memory := s3mem.New()
	if err := memory.CreateBucket("b"); err != nil {
		t.Fatal(err)
	}
	archive := gzipped(tarred(t, code...))
	for key, b := range map[string][]byte{"main.py": []byte("top"), "dir/sub/k.tar.gz": archive,
		"dir/a b.py": []byte("space")} {
		if _, err := memory.PutObject("b", key, nil, bytes.NewReader(b), int64(len(b)), nil); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewUnstartedServer(gofakes3.New(memory).Server())
	// errors of clients that stop reading early
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	query := "?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL)
	dir, o := t.TempDir(), Options{Open: bucket.Open}
	for _, c := range []struct {
		object, script, sum, want string
	}{
		{"main.py", "", sum([]byte("top")), "top"},
		{"dir/a%20b.py", "", sum([]byte("space")), "space"},
		{"dir/sub/k.tar.gz", "main.py", sum(archive), "print(1)"},
	} {
		path, err := get(t, dir, o, "s3://b/"+c.object+query+"#sha256="+c.sum, c.script)
		if b, readErr := os.ReadFile(path); err != nil || readErr != nil || string(b) != c.want ||
			filepath.Dir(path) != filepath.Join(dir, c.sum) {
			t.Errorf("%s: %s: %q, %v, %v", c.object, path, b, err, readErr)
		}
	}
	for location, want := range map[string]string{
		"s3://b/nothing.py" + query:                                     "fetch s3://b/nothing.py: no such object",
		"s3://other/main.py" + query:                                    "fetch s3://other/main.py: ",
		"s3://b/main.py" + query + "#sha256=" + strings.Repeat("0", 64): "expected 0000",
	} {
		if _, err := get(t, dir, o, location); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", location, err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	p, _ := source.Parse([]string{"s3://b/main.py" + query}, "")
	if _, err := Fetch(ctx, p, dir, o); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// FuzzUnpack checks that whatever is in an archive, no file is written outside the directory, and
// no link into it.
func FuzzUnpack(f *testing.F) {
	evil := []entry{{"x", "-> ..", 0o777}, {"x/y", "z", 0o644}, {"../z", "z", 0o644}}
	for _, e := range [][]entry{code, evil} {
		f.Add(tarred(f, e...), 0)
		f.Add(gzipped(tarred(f, e...)), 1)
		f.Add(zipped(f, e...), 2)
	}
	f.Fuzz(func(t *testing.T, b []byte, kind int) {
		parent := t.TempDir()
		dir, file := filepath.Join(parent, "dir"), filepath.Join(parent, "file")
		if err := errors.Join(os.Mkdir(dir, 0o777), os.WriteFile(file, b, 0o644)); err != nil {
			t.Fatal(err)
		}
		kinds := []source.Archive{source.Tar, source.GzipTar, source.Zip}
		unpack(file, kinds[((kind%3)+3)%3], dir)
		only(t, parent, "dir", "file")
		filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.IsDir() && !d.Type().IsRegular() {
				t.Errorf("%s: %v, %v", path, d, err)
			}
			return nil
		})
	})
}

// Unpack unpacks a local archive that has the checksum; otherwise it leaves no files.
func TestUnpack(t *testing.T) {
	whole := tarred(t, code...)
	file, to := filepath.Join(t.TempDir(), "code.tar"), filepath.Join(t.TempDir(), "workdir")
	for _, test := range []struct {
		archive []byte
		sum     string
		want    string // "": the archive is unpacked
	}{
		{whole, sum(whole), ""},
		{whole, sum(nil), "correct the address or the checksum"},
		{append(bytes.Clone(whole), 0), sum(whole), "correct the address or the checksum"},
		{whole[:len(whole)/2], sum(whole), "correct the address or the checksum"},
		{tarred(t, entry{"a", "-> /etc", 0}), sum(tarred(t, entry{"a", "-> /etc", 0})),
			"expected an archive without links"},
		{tarred(t, entry{"../a", "", 0o644}), sum(tarred(t, entry{"../a", "", 0o644})), "leads out of the archive"},
	} {
		if err := os.WriteFile(file, test.archive, 0o644); err != nil {
			t.Fatal(err)
		}
		err := Unpack(file, test.sum, to)
		if test.want != "" {
			if err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), file) {
				t.Errorf("%v, want %q", err, test.want)
			}
			only(t, filepath.Dir(to))
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		only(t, to, "lib", "main.py")
		only(t, filepath.Join(to, "lib"), "a.py", "empty", "run.sh")
		if info, err := os.Stat(filepath.Join(to, "lib/run.sh")); err != nil || info.Mode()&0o100 == 0 {
			t.Errorf("%v, %v: may not be executed", info, err)
		}
		os.RemoveAll(to)
	}
	if err := Unpack(file+"x", sum(whole), to); err == nil || !strings.Contains(err.Error(), "no longer exists") {
		t.Error(err)
	}
}

// With its checksum a program comes by http from a private network, also after a redirect; from a
// public address it does not, whatever name leads there.
func TestPlainWithChecksum(t *testing.T) {
	body := []byte("echo hello")
	address, _ := web(t, map[string][]byte{"main.sh": body})
	onward := httptest.NewServer(http.RedirectHandler(address+"/main.sh", http.StatusFound))
	defer onward.Close()
	away := httptest.NewServer(http.RedirectHandler("http://192.0.2.1/main.sh", http.StatusFound))
	defer away.Close()
	for _, from := range []string{address, onward.URL} {
		if file, err := get(t, t.TempDir(), Options{}, from+"/main.sh#sha256="+sum(body)); err != nil ||
			filepath.Base(file) != "main.sh" {
			t.Errorf("%s: %s, %v", from, file, err)
		}
	}
	if _, err := get(t, t.TempDir(), Options{}, away.URL+"/main.sh#sha256="+sum(body)); err == nil ||
		!strings.Contains(err.Error(), "192.0.2.1:80 is not on a private network; expected https://") {
		t.Errorf("from a public address: %v", err)
	}
	if _, err := get(t, t.TempDir(), Options{}, address+"/main.sh#sha256="+
		strings.Repeat("0", 64)); err == nil || !strings.Contains(err.Error(), "correct the address or the checksum") {
		t.Errorf("with another checksum: %v", err)
	}
}
