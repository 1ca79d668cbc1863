package dataset

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/download"
	"github.com/elasticdl/elasticdl/trainer/train/data"
	"github.com/elasticdl/elasticdl/trainer/train/data/example"
)

// tiny returns the files of a data set of 10 training and 3 test images, without gzip.
func tiny() map[string][]byte {
	files := map[string][]byte{}
	for _, part := range []struct {
		images, labels string
		n              int
	}{{trainImages, trainLabels, 10}, {testImages, testLabels, 3}} {
		images := idx(part.n, side, side)
		labels := idx(part.n)
		for i := range part.n {
			for j := range side * side {
				images = append(images, pixel(i, j))
			}
			labels = append(labels, byte(i%10))
		}
		files[part.images], files[part.labels] = images, labels
	}
	return files
}

func pixel(i, j int) byte { return byte(i*31 + j) }

// idx returns the header of an IDX file.
func idx(dims ...int) []byte {
	b := []byte{0, 0, idxUbyte, byte(len(dims))}
	for _, d := range dims {
		b = binary.BigEndian.AppendUint32(b, uint32(d))
	}
	return b
}

func gzipped(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	w.Write(b)
	w.Close()
	return out.Bytes()
}

func sums(files map[string][]byte) map[string]string {
	s := map[string]string{}
	for name, b := range files {
		sum := sha256.Sum256(b)
		s[name] = hex.EncodeToString(sum[:])
	}
	return s
}

// sourceDir returns a directory with the files; those of images are compressed by gzip.
func sourceDir(t *testing.T, files map[string][]byte) string {
	t.Helper()
	dir := t.TempDir()
	for name, b := range files {
		if strings.Contains(name, "images") {
			name, b = name+".gz", gzipped(b)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// checkMade checks that out holds the records of tiny, and that there is nothing else next to it or
// in it.
func checkMade(t *testing.T, out string, perShard int) {
	t.Helper()
	for part, n := range map[string]int{"train": 10, "test": 3} {
		r, err := data.Open(filepath.Join(out, part), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		shards, err := r.Shards()
		if err != nil {
			t.Fatal(err)
		}
		i := 0
		for k, s := range shards {
			if s.Name != fmt.Sprintf("data-%05d", k) || s.Count != int64(min(perShard, n-k*perShard)) {
				t.Errorf("%s: shard %d is %v", part, k, s)
			}
			for j := range s.Count {
				record, err := r.ReadAt(s.Name, j)
				if err != nil {
					t.Fatal(err)
				}
				checkRecord(t, record, i)
				i++
			}
		}
		if i != n {
			t.Errorf("%s: %d records, want %d", part, i, n)
		}
	}
	checkOnly(t, filepath.Dir(out), filepath.Base(out))
}

func checkRecord(t *testing.T, record []byte, i int) {
	t.Helper()
	fs, err := example.Parse(nil, record)
	if err != nil {
		t.Fatal(err)
	}
	image, err1 := fs.Bytes("image")
	label, err2 := fs.Int("label")
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	if label != int64(i%10) || len(image) != side*side || image[0] != pixel(i, 0) || image[783] != pixel(i, 783) {
		t.Errorf("record %d: label %d, %d pixels", i, label, len(image))
	}
}

// checkOnly checks the names in a directory.
func checkOnly(t *testing.T, dir string, want ...string) {
	t.Helper()
	var got []string
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Name())
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s holds %q, want %q", dir, got, want)
	}
}

func TestFromDirectory(t *testing.T) {
	source := sourceDir(t, tiny())
	out := filepath.Join(t.TempDir(), "data", "mnist")
	var steps []string
	o := Options{Name: "mnist", Out: out, Source: source, RecordsPerShard: 4}
	res, err := Make(t.Context(), o, func(p Progress) { steps = append(steps, fmt.Sprint(p)) })
	if err != nil || res != (Result{Train: 10, Test: 3}) {
		t.Fatal(res, err)
	}
	checkMade(t, out, 4)
	if want := []string{"{write train false 10 10}", "{write test false 3 3}"}; !slices.Equal(steps, want) {
		t.Errorf("progress %q, want %q", steps, want)
	}

	before, err := os.Stat(out)
	if err != nil {
		t.Fatal(err)
	}
	res, err = Make(t.Context(), o, nil)
	if err != nil || res != (Result{Train: 10, Test: 3, Existed: true}) {
		t.Fatal(res, err)
	}
	if after, err := os.Stat(out); err != nil || !os.SameFile(before, after) {
		t.Errorf("made again: %v", err)
	}
}

// An output directory with other content is refused and left unchanged.
func TestExisting(t *testing.T) {
	source := sourceDir(t, tiny())
	parent := t.TempDir()
	o := Options{Name: "mnist", Out: filepath.Join(parent, "mnist"), Source: source}
	if err := os.Mkdir(o.Out, 0o755); err != nil { // an empty directory is accepted
		t.Fatal(err)
	}
	if _, err := Make(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	other := tiny()
	other[testLabels][8]++
	foreign := filepath.Join(parent, "foreign")
	if err := os.MkdirAll(filepath.Join(foreign, "thesis"), 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(parent, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{
		"file":        {Name: "mnist", Out: file, Source: source},
		"other name":  {Name: "fashion-mnist", Out: o.Out, Source: source},
		"other files": {Name: "mnist", Out: o.Out, Source: sourceDir(t, other)},
		"other cut":   {Name: "mnist", Out: o.Out, Source: source, RecordsPerShard: 5},
		"foreign":     {Name: "mnist", Out: foreign, Source: source},
	} {
		if _, err := Make(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), o.Out) {
			t.Errorf("%s: error %v", name, err)
		}
	}
	checkOnly(t, foreign, "thesis")
	checkOnly(t, parent, "file", "foreign", "mnist")
	if err := os.Truncate(filepath.Join(o.Out, "train", "data-00000"), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(t.Context(), o, nil); err == nil {
		t.Error("missing records: no error")
	}
}

// The error for a malformed source file names it, and no file is left behind.
func TestBadSource(t *testing.T) {
	for name, c := range map[string]struct {
		file   string
		change func(b []byte) []byte
		want   string
	}{
		"magic": {trainImages, func(b []byte) []byte {
			b[2] = 9
			return b
		}, "IDX magic 0x00000903, want 0x00000803"},
		"labels as images": {trainImages, func([]byte) []byte { return tiny()[trainLabels] }, "IDX magic"},
		"dimension":        {testImages, func(b []byte) []byte { b[15] = 27; return b }, "dimension 2 is 27, want 28"},
		"cut off":          {testImages, func(b []byte) []byte { return b[:len(b)-1] }, "item 2 of 3: unexpected EOF"},
		"header cut off":   {testLabels, func(b []byte) []byte { return b[:6] }, "unexpected EOF"},
		"empty":            {testLabels, func(b []byte) []byte { return nil }, "unexpected EOF"},
		"too long":         {trainImages, func(b []byte) []byte { return append(b, 0) }, "more bytes"},
		"too many": {trainLabels, func(b []byte) []byte {
			b[7]++
			return append(b, 0)
		}, "10 images, but 11 labels"},
		"absurd": {trainImages, func(b []byte) []byte { b[4] = 0xff; return b }, "items, want 1 to"},
		"label": {trainLabels, func(b []byte) []byte {
			b[9] = 10
			return b
		}, "item 1 has label 10, want less than 10"},
		"missing": {trainLabels, nil, "no train-labels-idx1-ubyte.gz"},
	} {
		files := tiny()
		if c.change == nil {
			delete(files, c.file)
		} else {
			files[c.file] = c.change(files[c.file])
		}
		parent := t.TempDir()
		_, err := Make(t.Context(), Options{Name: "mnist", Out: filepath.Join(parent, "out"),
			Source: sourceDir(t, files)}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.file) {
			t.Errorf("%s: error %v, want %q and %s", name, err, c.want, c.file)
		}
		checkOnly(t, parent)
	}
}

func TestBrokenGzip(t *testing.T) {
	dir := sourceDir(t, tiny())
	file := filepath.Join(dir, trainImages+".gz")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-5] ^= 1 // its checksum
	if err := os.WriteFile(file, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(t.Context(), Options{Name: "mnist", Out: filepath.Join(t.TempDir(), "out"),
		Source: dir}, nil); !errors.Is(err, gzip.ErrChecksum) || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want string
	}{
		{Options{Name: "mnists", Out: "x"},
			"there are cifar10, fashion-mnist, images-synthetic, mnist, mnist-png, tiny-imagenet"},
		{Options{Name: "mnist"}, "no output directory"},
		{Options{Name: "mnist", Out: "x", RecordsPerShard: -1}, "--records_per_shard=-1"},
		{Options{Name: "mnist", Out: filepath.Join(t.TempDir(), "x"), Source: "/nowhere/at/all"}, "/nowhere/at/all"},
	} {
		if _, err := Make(t.Context(), c.o, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error %v, want %q", c.o, err, c.want)
		}
	}
}

func TestCancel(t *testing.T) {
	source := sourceDir(t, tiny())
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Make(ctx, Options{Name: "mnist", Out: filepath.Join(parent, "out"), Source: source,
		RecordsPerShard: 3}, func(p Progress) {
		cancel()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	checkOnly(t, parent)
}

// mirror serves the files compressed by gzip, and supports range requests.
func mirror(files map[string][]byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, ok := files[strings.TrimSuffix(path.Base(r.URL.Path), ".gz")]
		if !ok || path.Ext(r.URL.Path) != ".gz" {
			http.NotFound(w, r)
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(gzipped(b)))
	})
}

// A file that the first mirror lacks or serves with a wrong checksum is downloaded from the second.
func TestDownload(t *testing.T) {
	files := tiny()
	wrong := maps.Clone(files)
	delete(wrong, trainImages)
	wrong[trainLabels] = slices.Concat(idx(1), []byte{3})
	first, second := httptest.NewServer(mirror(wrong)), httptest.NewServer(mirror(files))
	defer first.Close()
	defer second.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	out := filepath.Join(t.TempDir(), "out")
	o := Options{Name: "mnist", Out: out, Mirrors: []string{closed.URL, first.URL, second.URL + "/"}, Sums: sums(files)}
	seen := map[string]bool{}
	if _, err := Make(t.Context(), o, func(p Progress) { seen[p.Step] = p.Done == p.Total }); err != nil {
		t.Fatal(err)
	}
	checkMade(t, out, 4096)
	for _, name := range digits.files() {
		if !seen["download "+name+".gz"] {
			t.Errorf("%s: the progress did not reach the total", name)
		}
	}
	// the data set is complete, so nothing is downloaded again
	second.Close()
	if res, err := Make(t.Context(), o, nil); err != nil || !res.Existed {
		t.Errorf("again: %+v, %v", res, err)
	}
}

// No checksum is required of files from a URL that the user gives.
func TestSourceURL(t *testing.T) {
	server := httptest.NewServer(mirror(tiny()))
	defer server.Close()
	out := filepath.Join(t.TempDir(), "out")
	if _, err := Make(t.Context(), Options{Name: "mnist", Out: out, Source: server.URL}, nil); err != nil {
		t.Fatal(err)
	}
	checkMade(t, out, 4096)
}

func TestDownloadErrors(t *testing.T) {
	files := tiny()
	server := httptest.NewServer(mirror(files))
	defer server.Close()
	closed := httptest.NewServer(nil)
	closed.Close()
	bad := sums(files)
	bad[testLabels] = "0123"
	for name, c := range map[string]struct {
		o    Options
		want []string
	}{
		"offline": {Options{Mirrors: []string{closed.URL, closed.URL + "/b"}, Sums: bad},
			[]string{trainImages, closed.URL + "/b", "refused", "--source"}},
		"sum":       {Options{Mirrors: []string{server.URL}, Sums: bad}, []string{testLabels, "sha256", "want 0123"}},
		"no file":   {Options{Source: server.URL + "/x.gz?"}, []string{"download", "--source"}},
		"no http":   {Options{Source: "ftp://127.0.0.1/mnist"}, []string{"ftp"}},
		"bad URL":   {Options{Source: "http://[::1/mnist"}, []string{"http://[::1/mnist"}},
		"no mirror": {Options{Source: server.URL, Client: &http.Client{Transport: failing{}}}, []string{"no route"}},
	} {
		parent := t.TempDir()
		c.o.Name, c.o.Out = "mnist", filepath.Join(parent, "out")
		_, err := Make(t.Context(), c.o, nil)
		for _, want := range c.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %v, want %q in it", name, err, want)
			}
		}
		checkOnly(t, parent)
	}
}

// failing is a transport whose connections all fail.
type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("no route")}
}

// flaky is a transport that passes requests to a handler without real connections,
// for tests in a synctest bubble. It answers the first requests with errors of the
// server, and breaks off the body of every answer after some bytes.
type flaky struct {
	handler  http.Handler
	bytes    int
	errors   int
	hang     bool // the body hangs instead of breaking off
	requests int
}

func (f *flaky) RoundTrip(r *http.Request) (*http.Response, error) {
	f.requests++
	if f.errors--; f.errors >= 0 {
		return &http.Response{StatusCode: 503, Status: "503 busy", Body: http.NoBody, Request: r}, nil
	}
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, r)
	resp := w.Result()
	var end io.Reader = broken{}
	if f.hang {
		end = hanging{r.Context()}
	}
	if resp.ContentLength > int64(f.bytes) {
		resp.Body = io.NopCloser(io.MultiReader(io.LimitReader(resp.Body, int64(f.bytes)), end))
	}
	return resp, nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

type hanging struct{ ctx context.Context }

func (h hanging) Read([]byte) (int, error) { <-h.ctx.Done(); return 0, h.ctx.Err() }

// A download whose connection breaks or hangs is resumed where it ended.
func TestResume(t *testing.T) {
	for _, hang := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := &flaky{handler: mirror(tiny()), bytes: 100, errors: 2, hang: hang}
			out := filepath.Join(t.TempDir(), "out")
			start := time.Now()
			if _, err := Make(t.Context(), Options{Name: "mnist", Out: out, Source: "http://mirror",
				Client: &http.Client{Transport: f}}, nil); err != nil {
				t.Fatal(err)
			}
			checkMade(t, out, 4096)
			if f.requests < 10 {
				t.Errorf("%d requests", f.requests)
			}
			if took := time.Since(start); hang != (took > download.Stalled) {
				t.Errorf("took %v", took)
			}
		})
	}
}

// A download from a server that ignores range requests begins again.
func TestStartsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole := mirror(tiny())
		f := &flaky{bytes: 100, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Header.Del("Range")
			whole.ServeHTTP(w, r)
		})}
		out := filepath.Join(t.TempDir(), "out")
		steps := func(p Progress) {
			if f.requests%2 == 1 {
				f.bytes = 1 << 20 // the next body is complete
			} else {
				f.bytes = 100
			}
		}
		if _, err := Make(t.Context(), Options{Name: "mnist", Out: out, Source: "http://mirror",
			Client: &http.Client{Transport: f}}, steps); err != nil {
			t.Fatal(err)
		}
		checkMade(t, out, 4096)
		if f.requests < 5 {
			t.Errorf("%d requests", f.requests)
		}
	})
}

func TestGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{errors: 1000}
		_, err := Make(t.Context(), Options{Name: "mnist", Out: filepath.Join(t.TempDir(), "out"),
			Mirrors: []string{"http://a", "http://b"}, Client: &http.Client{Transport: f}}, nil)
		if err == nil || !strings.Contains(err.Error(), "503") || f.requests != 2*download.Attempts {
			t.Errorf("after %d requests: %v", f.requests, err)
		}
	})
}

func TestCancelDownload(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		f := &flaky{handler: mirror(tiny()), bytes: 10, hang: true}
		parent := t.TempDir()
		_, err := Make(ctx, Options{Name: "mnist", Out: filepath.Join(parent, "out"),
			Source: "http://mirror", Client: &http.Client{Transport: f}}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || strings.Contains(err.Error(), "--source") {
			t.Errorf("error %v", err)
		}
		checkOnly(t, parent)
	})
}

// The digits in the repository are those that their README describes.
func TestShippedDigits(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	res, err := Make(t.Context(), Options{Name: "mnist", Out: out, Source: "../../../../examples/mnist/data"}, nil)
	if err != nil || res != (Result{Train: 10_000, Test: 2_000}) {
		t.Fatal(res, err)
	}
	r, err := data.Open(filepath.Join(out, "train"), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i, want := range []int64{5, 0, 4, 1, 9, 2, 1, 3, 1, 4} {
		record, err := r.ReadAt("data-00000", int64(i))
		if err != nil {
			t.Fatal(err)
		}
		fs, err := example.Parse(nil, record)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := fs.Int("label"); err != nil || got != want {
			t.Errorf("digit %d is a %d, %v; want %d", i, got, err, want)
		}
	}
}

func FuzzIDX(f *testing.F) {
	for _, b := range tiny() {
		f.Add(b[:min(len(b), 16+2*side*side)])
		f.Add(gzipped(b))
	}
	f.Add(append(idx(2, side, side), make([]byte, 2*side*side)...))
	f.Fuzz(func(t *testing.T, file []byte) {
		x, err := newIDX(bytes.NewReader(file), side, side)
		if err != nil {
			return
		}
		item := make([]byte, side*side)
		for x.read < x.items {
			if err := x.next(item); err != nil {
				return
			}
		}
		if x.end() == nil && x.items*side*side+16 != len(file) && file[0] == 0 {
			t.Fatalf("%d items in %d bytes", x.items, len(file))
		}
	})
}
