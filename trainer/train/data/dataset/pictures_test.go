package dataset

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/md5"
	"encoding/hex"
	"errors"
	"fmt"
	"image"
	_ "image/jpeg"
	"image/png"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// tree lists the files of a directory.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var files []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			name, _ := filepath.Rel(dir, path)
			files = append(files, filepath.ToSlash(name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func readPicture(t *testing.T, path string) image.Image {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	picture, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(path, err)
	}
	return picture
}

func TestMNISTPictures(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out")
	o := Options{Name: "mnist-png", Out: out, Source: sourceDir(t, tiny())}
	if res, err := Make(t.Context(), o, nil); err != nil || res != (Result{Train: 10, Test: 3}) {
		t.Fatal(res, err)
	}
	want := []string{manifestName, "testing/0/00000.png", "testing/1/00001.png", "testing/2/00002.png"}
	for i := range 10 {
		want = append(want, fmt.Sprintf("training/%d/%05d.png", i, i))
	}
	if got := tree(t, out); !slices.Equal(got, want) {
		t.Errorf("files %q", got)
	}
	// also classes without an image
	checkOnly(t, filepath.Join(out, "testing"), "0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
	b, err := os.ReadFile(filepath.Join(out, "training/7/00007.png"))
	if err != nil {
		t.Fatal(err)
	}
	picture, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	grey, ok := picture.(*image.Gray)
	if !ok || grey.Bounds() != image.Rect(0, 0, side, side) || grey.Pix[0] != pixel(7, 0) ||
		grey.Pix[783] != pixel(7, 783) {
		t.Errorf("picture %T %v", picture, picture.Bounds())
	}
	if res, err := Make(t.Context(), o, nil); err != nil || !res.Existed {
		t.Errorf("again: %v, %v", res, err)
	}
	if err := os.Remove(filepath.Join(out, "testing/2/00002.png")); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(t.Context(), o, nil); err == nil ||
		!strings.Contains(err.Error(), "testing has 2 images, had 3") {
		t.Errorf("a missing image: %v", err)
	}
}

// The same seed gives the same images. They are small, and their mean colours alone tell the
// classes apart.
func TestSynthetic(t *testing.T) {
	dir := t.TempDir()
	o := Options{Name: "images-synthetic", Out: filepath.Join(dir, "a"), Synthetic: Synthetic{Seed: 7}}
	if res, err := Make(t.Context(), o, nil); err != nil || res != (Result{Train: 200, Test: 40}) {
		t.Fatal(res, err)
	}
	o.Out = filepath.Join(dir, "b")
	if _, err := Make(t.Context(), o, nil); err != nil {
		t.Fatal(err)
	}
	files := tree(t, o.Out)
	if len(files) != 241 {
		t.Fatalf("%d files", len(files))
	}
	size := 0
	seen := map[string]string{}
	for _, name := range files {
		a, err1 := os.ReadFile(filepath.Join(dir, "a", name))
		b, err2 := os.ReadFile(filepath.Join(dir, "b", name))
		if err := errors.Join(err1, err2); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s: not the same again (%v)", name, err)
		}
		if seen[string(a)] != "" {
			t.Errorf("%s and %s are the same", name, seen[string(a)])
		}
		seen[string(a)] = name
		size += len(a)
	}
	if size > 2<<20 {
		t.Errorf("%d bytes", size)
	}
	means := map[string][3]float64{}
	mean := func(name string) (class string, m [3]float64) {
		picture := readPicture(t, filepath.Join(o.Out, name))
		if picture.Bounds() != image.Rect(0, 0, 64, 64) {
			t.Fatalf("%s: %v", name, picture.Bounds())
		}
		for i := range 64 * 64 {
			r, g, b, _ := picture.At(i%64, i/64).RGBA()
			m[0], m[1], m[2] = m[0]+float64(r), m[1]+float64(g), m[2]+float64(b)
		}
		return strings.Split(name, "/")[1], m
	}
	for _, name := range files {
		if strings.HasPrefix(name, "train/") {
			class, m := mean(name)
			for i := range m {
				m[i] = means[class][i] + m[i]/50
			}
			means[class] = m
		}
	}
	for _, name := range files {
		if !strings.HasPrefix(name, "val/") {
			continue
		}
		class, m := mean(name)
		best, least := "", 0.0
		for c, of := range means {
			d := 0.0
			for i := range m {
				d += (m[i] - of[i]) * (m[i] - of[i])
			}
			if best == "" || d < least {
				best, least = c, d
			}
		}
		if best != class {
			t.Errorf("%s looks like %s", name, best)
		}
	}
}

func TestSyntheticOptions(t *testing.T) {
	dir := t.TempDir()
	o := Options{Name: "images-synthetic", Out: filepath.Join(dir, "out"),
		Synthetic: Synthetic{Classes: 3, PerClass: 2, Size: 8}}
	if res, err := Make(t.Context(), o, nil); err != nil || res != (Result{Train: 6, Test: 3}) {
		t.Fatal(res, err)
	}
	if res, err := Make(t.Context(), o, nil); err != nil || !res.Existed {
		t.Errorf("again: %v, %v", res, err)
	}
	other := o
	other.Synthetic.Seed = 1
	for want, o := range map[string]Options{
		"made from other files or with other options": other,
		"--classes=1: expected 2 to 1000":             {Name: o.Name, Out: o.Out, Synthetic: Synthetic{Classes: 1}},
		"--size=5000: expected 8 to 1024":             {Name: o.Name, Out: o.Out, Synthetic: Synthetic{Size: 5000}},
		"leave --source out":                          {Name: o.Name, Out: filepath.Join(dir, "b"), Source: dir},
	} {
		if _, err := Make(t.Context(), o, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
	checkOnly(t, dir, "out")
}

// entry is a file of an archive.
type entry struct{ name, content string }

func tinyEntries() []entry {
	e := []entry{{"words.txt", "n01\tcat\n"}, {"wnids.txt", "n01\nn02\n"}, {"test/images/test_0.JPEG", "unknown"}}
	for i := range 6 {
		e = append(e, entry{fmt.Sprintf("train/n0%d/images/n0%[1]d_%d.JPEG", i%2+1, i), fmt.Sprint("train ", i)})
	}
	var notes strings.Builder
	for i := range 4 {
		e = append(e, entry{fmt.Sprintf("val/images/val_%d.JPEG", i), fmt.Sprint("val ", i)})
		notes.WriteString(fmt.Sprintf("val_%d.JPEG\tn0%d\t0\t0\t62\t62\n", i, 2-i%2))
	}
	e = append(e, entry{"train/n01/n01_boxes.txt", "box"}, entry{"val/val_annotations.txt", notes.String()})
	for i := range e {
		e[i].name = tinyRoot + e[i].name
	}
	return append(e, entry{"__MACOSX/._train", ""})
}

func zipped(t *testing.T, entries []entry) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, e := range entries {
		h := &zip.FileHeader{Name: e.name}
		if len(e.content) > 100 {
			h.Method = zip.Deflate
		}
		if target, link := strings.CutPrefix(e.content, "-> "); link {
			h.SetMode(fs.ModeSymlink | 0o777)
			e.content = target
		}
		f, err := w.CreateHeader(h)
		if err != nil {
			t.Fatal(err)
		}
		f.Write([]byte(e.content))
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func md5Of(b []byte) map[string]string {
	sum := md5.Sum(b)
	return map[string]string{tinyArchive: md5Sum + hex.EncodeToString(sum[:])}
}

func checkTiny(t *testing.T, out string) {
	t.Helper()
	want := []string{manifestName, "README.txt",
		"train/n01/images/n01_0.JPEG", "train/n01/images/n01_2.JPEG", "train/n01/images/n01_4.JPEG",
		"train/n02/images/n02_1.JPEG", "train/n02/images/n02_3.JPEG", "train/n02/images/n02_5.JPEG",
		"val/n01/images/val_1.JPEG", "val/n01/images/val_3.JPEG", "val/n02/images/val_0.JPEG",
		"val/n02/images/val_2.JPEG", "words.txt"}
	if got := tree(t, out); !slices.Equal(got, want) {
		t.Errorf("files %q, want %q", got, want)
	}
	for name, want := range map[string]string{"train/n02/images/n02_3.JPEG": "train 3",
		"val/n02/images/val_2.JPEG": "val 2"} {
		if b, err := os.ReadFile(filepath.Join(out, name)); err != nil || string(b) != want {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// The archive is read from a mirror whose connections break, from a directory, or from its own
// path.
func TestTinyImageNet(t *testing.T) {
	archive := zipped(t, tinyEntries())
	synctest.Test(t, func(t *testing.T) {
		f := &flaky{bytes: 300, errors: 1, handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/"+tinyArchive {
				http.NotFound(w, r)
				return
			}
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(archive))
		})}
		out := filepath.Join(t.TempDir(), "out")
		o := Options{Name: "tiny-imagenet", Out: out, Mirrors: []string{"http://mirror"},
			Sums: md5Of(archive), Client: &http.Client{Transport: f}}
		if res, err := Make(t.Context(), o, nil); err != nil || res != (Result{Train: 6, Test: 4}) {
			t.Fatal(res, err)
		}
		checkTiny(t, out)
		checkOnly(t, filepath.Dir(out), "out")
		if f.requests < 5 {
			t.Errorf("%d requests", f.requests)
		}
		f.errors = 1000
		if res, err := Make(t.Context(), o, nil); err != nil || !res.Existed {
			t.Errorf("again: %v, %v", res, err)
		}
	})
	dir := t.TempDir()
	file := filepath.Join(dir, tinyArchive)
	if err := os.WriteFile(file, archive, 0o644); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	for _, source := range []string{dir, file, server.URL, server.URL + "/" + tinyArchive} {
		out := filepath.Join(t.TempDir(), "out")
		if _, err := Make(t.Context(), Options{Name: "tiny-imagenet", Out: out, Source: source}, nil); err != nil {
			t.Fatal(err)
		}
		checkTiny(t, out)
	}
}

// A malformed archive is refused, and no file is left behind.
func TestBadArchive(t *testing.T) {
	with := func(more ...entry) []byte { return zipped(t, append(tinyEntries(), more...)) }
	without := func(part string) []byte {
		return zipped(t, slices.DeleteFunc(tinyEntries(), func(e entry) bool { return strings.Contains(e.name, part) }))
	}
	notes := func(text string) []byte {
		return zipped(t, append(slices.DeleteFunc(tinyEntries(), func(e entry) bool {
			return e.name == tinyNotes
		}), entry{tinyNotes, text}))
	}
	good := zipped(t, tinyEntries())
	for name, c := range map[string]struct {
		archive []byte
		want    string
	}{
		"up": {with(entry{"../evil.JPEG", "x"}),
			`"../evil.JPEG": the path is not clean or leads out of the archive`},
		"up inside": {with(entry{tinyRoot + "train/n01/images/../../../../../evil.JPEG", "x"}),
			"leads out of the archive"},
		"absolute":        {with(entry{"/evil.JPEG", "x"}), "leads out of the archive"},
		"backslash":       {with(entry{`..\evil.JPEG`, "x"}), "leads out of the archive"},
		"link":            {with(entry{tinyRoot + "train/n03", "-> /tmp"}), "want a file or a directory"},
		"twice":           {with(entry{tinyRoot + "train/n01/images/n01_0.JPEG", "x"}), ": duplicate"},
		"too large":       {with(entry{tinyRoot + "words.txt", strings.Repeat("x", maxEntry+1)}), "want at most"},
		"no train":        {without("/train/"), "no tiny-imagenet-200/train/WNID/images"},
		"no notes":        {without("annotations"), "no tiny-imagenet-200/val/val_annotations.txt"},
		"image missing":   {without("val_2"), "val_2.JPEG is not in the archive"},
		"not in notes":    {with(entry{tinyRoot + "val/images/val_9.JPEG", "x"}), "no line for val/images/val_9.JPEG"},
		"foreign class":   {notes("val_0.JPEG\tn09\t0\n"), "of class n09, of which there are no images"},
		"class up":        {notes("val_0.JPEG\t../../..\t0\n"), "line 1"},
		"no tab":          {notes("val_0.JPEG n01\n"), "line 1"},
		"note twice":      {notes("val_0.JPEG\tn01\t0\nval_0.JPEG\tn02\t0\n"), "line 2: duplicate val_0.JPEG"},
		"class missing":   {with(entry{tinyRoot + "train/n03/images/n03_0.JPEG", "x"}), "no image of class n03"},
		"cut off":         {good[:len(good)-30], "not a valid zip file"},
		"not an archive":  {[]byte("<html>"), "not a valid zip file"},
		"damaged content": {damage(good, "val 3"), "checksum"},
	} {
		parent := t.TempDir()
		file := filepath.Join(t.TempDir(), "archive.zip")
		if err := os.WriteFile(file, c.archive, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := Make(t.Context(),
			Options{Name: "tiny-imagenet", Out: filepath.Join(parent, "deep", "out"), Source: file}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
		checkOnly(t, filepath.Join(parent, "deep"))
		checkOnly(t, parent, "deep")
	}
}

// damage changes a byte of a text in an archive. The text must be short, since longer ones are
// compressed.
func damage(archive []byte, text string) []byte {
	b := bytes.Clone(archive)
	b[bytes.Index(b, []byte(text))] ^= 1
	return b
}

func TestTinyChecksum(t *testing.T) {
	archive := zipped(t, tinyEntries())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Write(archive[:len(archive)-1])
	}))
	defer server.Close()
	parent := t.TempDir()
	o := Options{Name: "tiny-imagenet", Out: filepath.Join(parent, "out"),
		Mirrors: []string{server.URL}, Sums: md5Of(archive)}
	if _, err := Make(t.Context(), o, nil); err == nil ||
		!strings.Contains(err.Error(), "want "+o.Sums[tinyArchive]) || !strings.Contains(err.Error(), "--source") {
		t.Errorf("error %v", err)
	}
	checkOnly(t, parent)
	if sum := sets["tiny-imagenet"].sums[tinyArchive]; len(sum) != len(o.Sums[tinyArchive]) {
		t.Errorf("published %s", sum)
	}
}

func TestCancelPictures(t *testing.T) {
	parent := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	o := Options{Name: "images-synthetic", Out: filepath.Join(parent, "out"),
		Synthetic: Synthetic{Size: 8, PerClass: 300}}
	if _, err := Make(ctx, o, func(p Progress) { cancel() }); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	checkOnly(t, parent)
}

func FuzzNotes(f *testing.F) {
	f.Add([]byte("val_0.JPEG\tn01\t0\t32\t44\t62\nval_1.JPEG\tn02\n"))
	f.Add([]byte("../x\tn01\n\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		classes, err := parseNotes(b)
		if err != nil {
			return
		}
		for name, class := range classes {
			if path := filepath.Join("root", class, "images", name); !strings.HasPrefix(path,
				filepath.Join("root", class)+string(filepath.Separator)) ||
				filepath.Base(path) != name {
				t.Errorf("%q of class %q leads to %s", name, class, path)
			}
		}
	})
}
