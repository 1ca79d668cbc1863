package kube

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Receive writes all files that were sent, or none.
func TestReceive(t *testing.T) {
	sent := streamOf(t, tree(t, twoFiles))
	to := filepath.Join(t.TempDir(), "claim", "deep", "mnist")
	receive := func(stream []byte, want string) {
		t.Helper()
		var answer strings.Builder
		err := Receive(bytes.NewReader(stream), &answer, to)
		if !strings.HasPrefix(answer.String(), want) ||
			(err != nil) != strings.HasPrefix(want, failed) || !strings.HasSuffix(answer.String(), "\n") {
			t.Errorf("answer %q, %v, want %q", answer.String(), err, want)
		}
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(to), ".*")); len(left) > 0 {
			t.Errorf("%q is left", left)
		}
	}
	// within and between headers and files: only padding and the end mark follow the last byte
	last := bytes.LastIndex(sent, []byte("train")) + len("train")
	for _, cut := range []int{0, 1, 511, 512, 513, 1024, 1536, 2048, len(sent) / 2, last - 1} {
		receive(sent[:cut], failed)
		if got := holds(t, to); got != nil {
			t.Errorf("after %d of %d bytes there is %v", cut, len(sent), got)
		}
	}
	changed := bytes.Clone(sent)
	changed[bytes.Index(changed, []byte("traintrain"))]++
	receive(changed, failed+"receive train/data-00000: its sum is")
	if got := holds(t, to); got != nil {
		t.Errorf("of a changed stream there is %v", got)
	}
	receive(sent, received)
	if got := holds(t, to); !maps.Equal(got, twoFiles) {
		t.Errorf("received %v, want %v", got, twoFiles)
	}
	receive(sent, existing)
	receive(streamOf(t, tree(t, map[string]string{"other": "x"})), failed+to+" already exists and holds other files")
	if err := os.WriteFile(filepath.Join(to, "test/data-00000"), []byte("tset"), 0o644); err != nil {
		t.Fatal(err)
	}
	receive(sent, failed+to+" already exists and holds other files")
}

// When two receive the same files at the same time, both succeed.
func TestReceiveTwice(t *testing.T) {
	sent := streamOf(t, tree(t, twoFiles))
	for want, other := range map[string]map[string]string{existing: twoFiles, failed: {"other": "x"}} {
		to := filepath.Join(t.TempDir(), "mnist")
		faster := streamOf(t, tree(t, other))
		r, w := io.Pipe()
		go func() {
			w.Write(sent[:len(sent)-1]) // so the receiver waits for the last byte
			Receive(bytes.NewReader(faster), io.Discard, to)
			w.Write(sent[len(sent)-1:])
			w.Close()
		}()
		var answer strings.Builder
		Receive(r, &answer, to)
		if got := holds(t, to); !strings.HasPrefix(answer.String(), want) || !maps.Equal(got, other) {
			t.Errorf("answer %q, and there is %v", answer.String(), got)
		}
		if left, _ := os.ReadDir(filepath.Dir(to)); len(left) != 1 {
			t.Errorf("%v are left", left)
		}
	}
}

// archiveOf returns a stream of files whose headers may be anything. All have the content "hello",
// and those without records the right sum.
func archiveOf(t testing.TB, headers ...*tar.Header) []byte {
	t.Helper()
	const hello = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"
	var stream bytes.Buffer
	archive, all := tar.NewWriter(&stream), newTally()
	for _, h := range headers {
		all.add(file{name: h.Name, size: h.Size, sum: hello})
	}
	if err := all.write(archive); err != nil {
		t.Fatal(err)
	}
	for _, h := range headers {
		if h.PAXRecords == nil {
			h.PAXRecords = map[string]string{recordSum: hello}
		}
		if err := archive.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		io.WriteString(archive, "hello"[:min(h.Size, 5)])
	}
	if err := archive.Flush(); err != nil && headers[len(headers)-1].Size == 5 {
		t.Fatal(err)
	}
	return append(stream.Bytes(), make([]byte, 1024)...)
}

// Only whole, regular files of names within the directory are received, and exactly those that were
// announced.
func TestReceiveRefuses(t *testing.T) {
	to := filepath.Join(t.TempDir(), "mnist")
	regular := func(name string) *tar.Header { return &tar.Header{Name: name, Size: 5, Mode: 0o644} }
	refused := func(name string, stream []byte, want string) {
		t.Helper()
		var answer strings.Builder
		if err := Receive(bytes.NewReader(stream), &answer, to); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.HasPrefix(answer.String(), failed) {
			t.Errorf("%s: %v, want %s; answer %q", name, err, want, answer.String())
		}
	}
	for _, name := range []string{"../x", "/etc/x", ".", "", "a/../b", "./a", "a//b", ".."} {
		refused(name, archiveOf(t, regular(name)), "expected a name within the directory")
	}
	for name, h := range map[string]*tar.Header{
		"link":      {Typeflag: tar.TypeSymlink, Name: "x", Linkname: "/etc/passwd"},
		"hard link": {Typeflag: tar.TypeLink, Name: "x", Linkname: "y"},
		"directory": {Typeflag: tar.TypeDir, Name: "x/"},
		"device":    {Typeflag: tar.TypeChar, Name: "x"},
	} {
		refused(name, archiveOf(t, h), "expected a regular file")
	}
	refused("no sum", archiveOf(t, &tar.Header{Name: "x", Size: 5, PAXRecords: map[string]string{}}),
		"expected the SHA-256 of x")
	refused("wrong sum", archiveOf(t, &tar.Header{Name: "x", Size: 5, PAXRecords: map[string]string{recordSum: "00"}}),
		"receive x: its sum is 2cf2")
	refused("twice", archiveOf(t, regular("x"), regular("x")), "file exists")
	refused("a file in the place of a directory", archiveOf(t, regular("x"), regular("x/y")), "not a directory")
	refused("sparse", sparse(t), "expected a regular file")
	refused("of an older version", []byte("{\"files\": []}\n"+strings.Repeat("x", 512)), "expected a tar archive")

	two := archiveOf(t, regular("x"), regular("y"))
	end := make([]byte, 1024)
	head := archiveOf(t)
	head = head[:len(head)-len(end)]
	refused("no global header", two[len(head):], "expected a global header")
	refused("more than announced", slices.Concat(head, two[len(head):]), "expected 0 files of 0 bytes")
	one := (len(two) - len(head) - len(end)) / 2 // bytes of a file with its headers
	refused("fewer than announced", slices.Concat(two[:len(head)+one], end), "ended after 1 of 2: unexpected EOF")
	refused("others than announced", slices.Concat(two[:len(head)+one],
		archiveOf(t, regular("z"))[len(head):]), "not the 2 files that were announced")
	refused("a bad number", bytes.Replace(two, []byte("ELASTICDL.files=2"), []byte("ELASTICDL.files=x"), 1),
		"expected a number as ELASTICDL.files")
	if left, _ := os.ReadDir(filepath.Dir(to)); len(left) > 0 {
		t.Errorf("%v are left", left)
	}
	if err := Receive(bytes.NewReader(two), io.Discard, to); err != nil {
		t.Error(err)
	}
}

// sparse returns a stream of a file of 5 bytes that claims to be a sparse one of a megabyte.
func sparse(t testing.TB) []byte {
	head := archiveOf(t, &tar.Header{Name: "x", Size: 1 << 20})
	head = head[:len(archiveOf(t))-1024]
	var records []byte
	for _, record := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=x",
		"GNU.sparse.realsize=1048576", recordSum + "=00"} {
		n := len(record) + len("00 \n")
		records = fmt.Appendf(records, "%d %s\n", n, record)
	}
	return slices.Concat(head, rawHeader('x', len(records)), padded(records), rawHeader(tar.TypeReg, 512+5),
		padded([]byte("1\n0\n5\n")), padded([]byte("hello")), make([]byte, 1024))
}

// rawHeader returns a header in the form of an archive.
func rawHeader(kind byte, size int) []byte {
	head := make([]byte, 512)
	copy(head, "x")
	copy(head[100:], "0000644\x000000000\x000000000\x00")
	copy(head[124:], fmt.Sprintf("%011o\x00%011o\x00        ", size, 0))
	head[156] = kind
	copy(head[257:], "ustar\x0000")
	n := 0
	for _, b := range head {
		n += int(b)
	}
	copy(head[148:], fmt.Sprintf("%06o\x00 ", n))
	return head
}

// padded returns the content of an entry, up to the next header.
func padded(content []byte) []byte { return append(content, make([]byte, 512-len(content)%512)...) }

func TestListFiles(t *testing.T) {
	empty := tree(t, nil)
	if err := os.Mkdir(empty, 0o755); err != nil {
		t.Fatal(err)
	}
	link := tree(t, twoFiles)
	if err := os.Symlink(empty, filepath.Join(link, "link")); err != nil {
		t.Fatal(err)
	}
	for dir, want := range map[string]string{empty: "has no files", link: "is no file", "/nothing": "no such file"} {
		if _, err := listFiles(t.Context(), dir, func(done, total int64) {}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", dir, err, want)
		}
	}
}

// A header that does not end is not kept in memory.
func TestEndlessHeader(t *testing.T) {
	endless := io.MultiReader(bytes.NewReader(rawHeader('g', 1<<32)), repeating{})
	if _, err := receive(endless, filepath.Join(t.TempDir(), "mnist"), func(done, total int64) {}); err == nil ||
		err.Error() != "read what is sent: archive/tar: header field too long" {
		t.Errorf("%v", err)
	}
}

type repeating struct{}

func (repeating) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

// FuzzReceive checks that whatever is sent, its directory is written whole or not at all, and
// nothing is written outside it.
func FuzzReceive(f *testing.F) {
	one := func(name string, size int64) []byte {
		return archiveOf(f, &tar.Header{Name: name, Size: size, Mode: 0o644})
	}
	for _, stream := range [][]byte{one("a", 5), one("a/b/../c", 5), one("../a", 5), one("/a", 5), one("a", 1<<40),
		one("a", 4), one("a", 0), one(strings.Repeat("long/", 100)+"a", 5), sparse(f), archiveOf(f), {}, []byte("{}\n"),
		archiveOf(f, &tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "../b"},
			&tar.Header{Name: "a/c", Size: 5})} {
		f.Add(stream)
		f.Add(stream[:len(stream)/2])
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		parent := filepath.Join(t.TempDir(), "claim")
		dir := filepath.Join(parent, "data")
		answer, err := receive(bytes.NewReader(sent), dir, func(done, total int64) {})
		_, missing := os.Stat(dir)
		if (err == nil && answer == received) != (missing == nil) {
			t.Errorf("%q, %v: the directory: %v", answer, err, missing)
		}
		for _, at := range []string{filepath.Dir(parent), parent} {
			entries, _ := os.ReadDir(at)
			for _, e := range entries {
				if name := filepath.Join(at, e.Name()); name != parent && name != dir {
					t.Errorf("%v: it left %s", err, name)
				}
			}
		}
	})
}
