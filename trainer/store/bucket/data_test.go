package bucket

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/store/outage"
)

// at returns the name of a place in the store's bucket.
func (s *store) at(prefix string) string {
	return "s3://b/" + prefix + "?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(s.address)
}

// put writes an object.
func (s *store) put(t *testing.T, name string, content []byte) {
	t.Helper()
	w, err := s.open(t, "").Create(name)
	if err == nil {
		_, err = w.Write(content)
	}
	if err == nil {
		err = w.Commit()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// walked returns the files of a place of data, with their sizes.
func walked(t *testing.T, d *Data) (names []string) {
	t.Helper()
	if err := d.Walk(func(name string, size int64) error {
		names = append(names, fmt.Sprintf("%s %d", name, size))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

// Objects are the files that a directory of them would have, in the same order.
func TestDataWalk(t *testing.T) {
	s := newStore(t)
	all := []string{"a/x", "a-b/x", "a/b/c", "a0", "b.csv", "part-10", "part-9", "z/0"}
	hidden := []string{".hidden", "a/.tmp/x", ".dir/x", "a/.x"}
	dir := t.TempDir()
	for i, name := range slices.Concat(all, hidden) {
		s.put(t, "data/train/"+name, bytes.Repeat([]byte("x"), i))
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, bytes.Repeat([]byte("x"), i), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s.put(t, "data/train/a/", nil)         // which a console makes
	s.put(t, "data/training", []byte("x")) // of another name
	var want []string
	if err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if info, wrong := e.Info(); err == nil && wrong == nil && !e.IsDir() &&
			!strings.HasPrefix(name, ".") && !strings.Contains(name, "/.") {
			want = append(want, fmt.Sprintf("%s %d", name, info.Size()))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, prefix := range []string{"data/train", "data/train/"} {
		d, only, err := OpenData(t.Context(), s.at(prefix))
		if err != nil || only != "" {
			t.Fatalf("%s: %q, %v", prefix, only, err)
		}
		if got := walked(t, d); !slices.Equal(got, want) || len(got) != len(all) {
			t.Errorf("%s: %q, want %q", prefix, got, want)
		}
		if name := d.Name("a/x"); name != "s3://b/data/train/a/x" {
			t.Errorf("a file is %s", name)
		}
	}
}

// The name of an object is that object alone.
func TestDataOfOneObject(t *testing.T) {
	s := newStore(t)
	s.put(t, "rows/train.csv", []byte("a,b\n1,2\n"))
	s.put(t, "top.csv", []byte("a\n"))
	for key, name := range map[string]string{"rows/train.csv": "s3://b/rows/train.csv", "top.csv": "s3://b/top.csv"} {
		d, only, err := OpenData(t.Context(), s.at(key))
		if err != nil {
			t.Fatal(err)
		}
		r, size, closes, err := d.Open(only)
		if err != nil || d.Name(only) != name {
			t.Fatalf("%s: %s, %v", key, d.Name(only), err)
		}
		content := make([]byte, size)
		if n, err := r.ReadAt(content, 0); n != int(size) || err != nil || content[0] != 'a' {
			t.Errorf("%s: %q, %v", key, content[:n], err)
		}
		closes.Close()
	}
}

// An error names the place, and says what is not there.
func TestDataThatIsNotThere(t *testing.T) {
	s := newStore(t)
	s.put(t, "rows/train.csv", []byte("a,b\n1,2\n"))
	for prefix, want := range map[string]string{
		"no/rows": "no object's name begins with it and a slash",
		"row":     "no object's name begins with it and a slash", // only a part of a name
	} {
		_, _, err := OpenData(t.Context(), s.at(prefix))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "s3://b/"+prefix) ||
			!errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", prefix, err)
		}
	}
	if _, _, err := OpenData(t.Context(), strings.Replace(s.at("rows"), "//b/", "//absent/", 1)); err == nil ||
		!strings.Contains(err.Error(), "there is no such bucket") {
		t.Errorf("another bucket: %v", err)
	}
	if _, _, err := OpenData(t.Context(), "/data/rows"); err == nil || !strings.Contains(err.Error(),
		"expected s3://") {
		t.Errorf("a directory: %v", err)
	}
	d, _, err := OpenData(t.Context(), s.at("rows"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := d.Open("other.csv"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another file: %v", err)
	}
}

// aLarge writes an object of several pieces, and returns it with its content.
func aLarge(t *testing.T, s *store) (d *Data, content []byte) {
	t.Helper()
	content = make([]byte, 2*pieceSize+1000)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	s.put(t, "data/large", content)
	d, _, err := OpenData(t.Context(), s.at("data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d, content
}

// A piece is fetched once, whatever is read of it and by how many readers; headers that are far
// apart take their own bytes only.
func TestDataIsFetchedOnce(t *testing.T) {
	s := newStore(t)
	d, content := aLarge(t, s)
	open := func() io.ReaderAt {
		r, size, _, err := d.Open("large")
		if err != nil || size != int64(len(content)) {
			t.Fatal(size, err)
		}
		return r
	}
	read := func(r io.ReaderAt, n int, at int64) {
		t.Helper()
		b := make([]byte, n)
		got, err := r.ReadAt(b, at)
		want := content[min(at, int64(len(content))):min(at+int64(n), int64(len(content)))]
		if !bytes.Equal(b[:got], want) || (err == io.EOF) != (len(want) < n) || err != nil && err != io.EOF {
			t.Errorf("%d bytes at %d: got %d, %v", n, at, got, err)
		}
	}
	open() // asks for the size
	s.asked("")
	read(open(), 10, 5)
	if got := s.asked("GET"); len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf("bytes=0-%d", pieceSize-1)) {
		t.Errorf("the first read asked for %q", got)
	}
	for range 3 {
		read(open(), 100_000, 17)
	}
	read(open(), pieceSize, 0)
	if got := s.asked(""); len(got) != 0 {
		t.Errorf("the same piece again asked for %q", got)
	}
	// across pieces, and beyond the end
	read(open(), 2000, pieceSize-1000)
	read(open(), 3000, int64(len(content))-1500)
	read(open(), 10, int64(len(content)))
	if got := s.asked("GET"); len(got) != 2 {
		t.Errorf("the other pieces asked for %q", got)
	}

	d, _, err := OpenData(t.Context(), s.at("data"))
	if err != nil {
		t.Fatal(err)
	}
	r := open()
	read(r, 20, 0)
	s.asked("")
	read(r, 20, 2*pieceSize)
	if got := s.asked("GET"); len(got) != 1 || !strings.Contains(got[0], fmt.Sprintf("bytes=%d-%d", 2*pieceSize,
		2*pieceSize+19)) {
		t.Errorf("a header far away asked for %q", got)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// A store that ends its responses early, or fails for some requests, gives the right bytes or an
// error that may end.
func TestDataOfAPoorStore(t *testing.T) {
	s := newStore(t)
	d, content := aLarge(t, s)
	r, _, _, err := d.Open("large")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	s.mu.Lock()
	s.faults = func(q *http.Request) http.Handler {
		if q.Method != http.MethodGet || q.Header.Get("Range") == "" {
			return nil
		}
		if n++; n%2 == 0 {
			return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
				s.Handler.ServeHTTP(&cut{ResponseWriter: w, left: 1 << 20}, q)
			})
		}
		return nil
	}
	s.mu.Unlock()
	b := make([]byte, len(content))
	if got, err := r.ReadAt(b, 0); got != len(content) || err != nil || !bytes.Equal(b, content) {
		t.Errorf("%d bytes, %v", got, err)
	}
	s.mu.Lock()
	s.faults = func(*http.Request) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter,
			_ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
		})
	}
	s.mu.Unlock()
	other, _, err := OpenData(t.Context(), s.at("data"))
	if err == nil {
		t.Fatalf("a store that is down is opened: %v", other)
	}
	if !outage.Is(err) {
		t.Errorf("%v does not end", err)
	}
	// what is kept needs no store
	if got, err := r.ReadAt(b, 0); got != len(content) || err != nil {
		t.Errorf("%d bytes, %v", got, err)
	}
}

// The pieces that were used last are kept, each is the one that was written, and readers may be
// many.
func TestPieces(t *testing.T) {
	p := newPieces(3 * pieceSize)
	defer p.close()
	piece := func(i int) []byte { return bytes.Repeat([]byte{byte(i)}, 100+i) }
	key := func(i int) pieceKey { return pieceKey{"o", int64(i)} }
	has := func(i int) bool {
		b := make([]byte, 100)
		return p.read(key(i), b, int64(i)) && bytes.Equal(b, piece(i)[i:])
	}
	for i := range 3 {
		p.keep(key(i), piece(i))
	}
	if !has(0) || !has(1) || !has(2) || has(3) {
		t.Error("pieces are not kept")
	}
	has(0)
	p.keep(key(3), piece(3)) // takes the place of 1
	if has(1) || !has(0) || !has(2) || !has(3) {
		t.Error("the piece that was used longest ago stays")
	}
	if p.read(key(3), make([]byte, 200), 0) {
		t.Error("more is read than the piece has")
	}
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			for i := range 200 {
				n := (g*7 + i) % 20
				if b := make([]byte, 50); p.read(key(n), b, 0) && !bytes.Equal(b, piece(n)[:50]) {
					t.Errorf("piece %d has other bytes", n)
				}
				p.keep(key(n), piece(n))
			}
		})
	}
	all.Wait()
	p.close()
	if has(0) || has(3) {
		t.Error("a piece is there after the end")
	}
	p.keep(key(1), piece(1))
	if has(1) {
		t.Error("a piece is kept after the end")
	}
}

// Without room for a temporary file, everything is read, and nothing kept.
func TestPiecesWithoutRoom(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "absent"))
	p := newPieces(3 * pieceSize)
	p.keep(pieceKey{"o", 0}, []byte("x"))
	if p.read(pieceKey{"o", 0}, make([]byte, 1), 0) || p.able() {
		t.Error("a piece is kept")
	}
	if err := p.close(); err != nil {
		t.Error(err)
	}
}

// Data in Google Cloud Storage is read the same way.
func TestDataAtGoogle(t *testing.T) {
	content := bytes.Repeat([]byte("0123456789"), 1000)
	g := &gcs{objects: map[string][]byte{"rows/a/b": content, "rows/c": []byte("c"), "rowsmore": []byte("x")}}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(server.URL, "http://"))
	d, only, err := OpenData(t.Context(), "gs://b/rows")
	if err != nil || only != "" {
		t.Fatal(only, err)
	}
	defer d.Close()
	if got := walked(t, d); !slices.Equal(got, []string{"a/b 10000", "c 1"}) {
		t.Errorf("there are %q", got)
	}
	r, size, _, err := d.Open("a/b")
	if err != nil || size != int64(len(content)) {
		t.Fatal(size, err)
	}
	b := make([]byte, 10)
	if n, err := r.ReadAt(b, 4321); n != 10 || err != nil || string(b) != "1234567890" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if _, _, err := OpenData(t.Context(), "gs://b/none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("another prefix: %v", err)
	}
	if _, only, err := OpenData(t.Context(), "gs://b/rows/c"); err != nil || only != "c" {
		t.Errorf("one object: %q, %v", only, err)
	}
}

// An upload that ends half way is continued, and touches nothing that is not the same.
func TestUpload(t *testing.T) {
	s := newStore(t)
	dir := t.TempDir()
	for name, content := range map[string]string{"train/0": "zero", "train/1": "one", "test/0": "", ".hidden": "x"} {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s.put(t, "mnist/train/0", []byte("zero"))
	var last, most int64
	progress := func(done, total int64) {
		if done < last || done > total {
			t.Errorf("%d of %d after %d", done, total, last)
		}
		last, most = done, total
	}
	upload := func() (bool, error) {
		last = 0
		return Upload(t.Context(), dir, s.at("mnist"), progress)
	}
	if existed, err := upload(); existed || err != nil || last != 7 || most != 7 {
		t.Errorf("%t, %v, %d of %d", existed, err, last, most)
	}
	if existed, err := upload(); !existed || err != nil {
		t.Errorf("again: %t, %v", existed, err)
	}
	d, _, err := OpenData(t.Context(), s.at("mnist"))
	if err != nil {
		t.Fatal(err)
	}
	if got := walked(t, d); !slices.Equal(got, []string{"test/0 0", "train/0 4", "train/1 3"}) {
		t.Errorf("there are %q", got)
	}
	s.put(t, "mnist/other", []byte("x"))
	s.put(t, "mnist/train/1", []byte("One"))
	s.asked("")
	if _, err := upload(); err == nil || !strings.Contains(err.Error(),
		"s3://b/mnist/other is not one of these files") ||
		!strings.Contains(err.Error(), "s3://b/mnist/train/1 has other contents") {
		t.Errorf("with other objects: %v", err)
	}
	if changed := s.asked("PUT"); len(changed) > 0 {
		t.Errorf("it changed %q", changed)
	}
	if _, err := Upload(t.Context(), dir, "/data", progress); err == nil {
		t.Error("a directory is a bucket")
	}
}

// Without room, a read takes its own bytes and no piece.
func TestDataWithoutRoom(t *testing.T) {
	s := newStore(t)
	d, content := aLarge(t, s)
	d.kept.full = true
	r, _, _, err := d.Open("large")
	if err != nil {
		t.Fatal(err)
	}
	s.asked("")
	b := make([]byte, 1000)
	if n, err := r.ReadAt(b, 100); n != 1000 || err != nil || !bytes.Equal(b, content[100:1100]) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if got := s.asked("GET"); len(got) != 1 || !strings.Contains(got[0], "bytes=100-1099") {
		t.Errorf("asked for %q", got)
	}
}

// Close ends a read from a store that does not answer.
func TestDataCloses(t *testing.T) {
	s := newStore(t)
	d, _ := aLarge(t, s)
	r, _, _, err := d.Open("large")
	if err != nil {
		t.Fatal(err)
	}
	asked, release := make(chan struct{}), make(chan struct{})
	defer close(release)
	s.mu.Lock()
	s.faults = func(*http.Request) http.Handler {
		return http.HandlerFunc(func(_ http.ResponseWriter, q *http.Request) {
			close(asked)
			select {
			case <-q.Context().Done():
			case <-release:
			}
		})
	}
	s.mu.Unlock()
	ended := make(chan error)
	go func() {
		_, err := r.ReadAt(make([]byte, 10), 0)
		ended <- err
	}()
	<-asked
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("a read of a closed place succeeds")
	}
}
