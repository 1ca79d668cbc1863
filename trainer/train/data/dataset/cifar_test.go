package dataset

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/train/data"
	"github.com/elasticdl/elasticdl/trainer/train/data/example"
)

// tinyCIFAR returns files of 2 images each, 12 in all. The first pixel of image i is 3*i, 3*i+1,
// 3*i+2, the last is 200, 201, 202.
func tinyCIFAR() map[string][]byte {
	files := map[string][]byte{}
	for f, name := range cifar.files() {
		for i := 2 * f; i < 2*f+2; i++ {
			record := make([]byte, cifarRecord)
			record[0] = byte(i % 10)
			for colour := range cifarColours {
				record[1+colour*cifarPlane] = byte(3*i + colour)
				record[(colour+1)*cifarPlane] = byte(200 + colour)
			}
			files[name] = append(files[name], record...)
		}
	}
	return files
}

func TestCIFAR(t *testing.T) {
	files := tinyCIFAR()
	files["data_batch_2.bin"] = gzipped(files["data_batch_2.bin"])
	out := filepath.Join(t.TempDir(), "cifar10")
	o := Options{Name: "cifar10", Out: out, Source: sourceDir(t, files), RecordsPerShard: 3}
	if res, err := Make(t.Context(), o, nil); err != nil || res != (Result{Train: 10, Test: 2}) {
		t.Fatal(res, err)
	}
	if res, err := Make(t.Context(), o, nil); err != nil || !res.Existed {
		t.Errorf("again: %v, %v", res, err)
	}
	at := 0
	for _, part := range []string{"train", "test"} {
		r, err := data.Open(filepath.Join(out, part), nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		shards, err := r.Shards()
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range shards {
			for i := range s.Count {
				record, err := r.ReadAt(s.Name, i)
				if err != nil {
					t.Fatal(err)
				}
				features, err := example.Parse(nil, record)
				if err != nil {
					t.Fatal(err)
				}
				label, _ := features.Int("label")
				image, _ := features.Bytes("image")
				want := []byte{byte(3 * at), byte(3*at + 1), byte(3*at + 2), 0, 0}
				if label != int64(at%10) || len(image) != 3072 || !slices.Equal(image[:5], want) ||
					!slices.Equal(image[3068:], []byte{0, 200, 201, 202}) {
					t.Errorf("%s, %s: picture %d has label %d, %d bytes, %d ...", part, s.Name, at,
						label, len(image), image[:5])
				}
				at++
			}
		}
	}
	if at != 12 {
		t.Errorf("%d pictures, want 12", at)
	}
}

func TestBadCIFAR(t *testing.T) {
	const file = "data_batch_3.bin"
	for name, c := range map[string]struct {
		change func(files map[string][]byte)
		want   []string
	}{
		"label": {func(f map[string][]byte) {
			f[file][cifarRecord] = 10
		}, []string{file, "record 1 has label 10, want less than 10"}},
		"cut off": {func(f map[string][]byte) {
			f[file] = f[file][1:]
		}, []string{file, "6145 bytes, want a multiple of 3073"}},
		"empty":   {func(f map[string][]byte) { f[file] = nil }, []string{file, "0 bytes, want a multiple of 3073"}},
		"missing": {func(f map[string][]byte) { delete(f, file) }, []string{file, "CIFAR-10's binary version"}},
		"digits":  {func(f map[string][]byte) { clear(f); maps.Copy(f, tiny()) }, []string{"no data_batch_1.bin"}},
	} {
		files := tinyCIFAR()
		c.change(files)
		parent := t.TempDir()
		_, err := Make(t.Context(), Options{Name: "cifar10", Out: filepath.Join(parent, "out"),
			Source: sourceDir(t, files)}, nil)
		for _, want := range c.want {
			if !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%s: error %v, want %q in it", name, err, want)
			}
		}
		checkOnly(t, parent)
	}
	// no checksum is known, so nothing is downloaded
	for _, source := range []string{"", "http://localhost/cifar"} {
		_, err := Make(t.Context(), Options{Name: "cifar10", Out: filepath.Join(t.TempDir(), "out"),
			Source: source}, nil)
		if err == nil || !strings.Contains(err.Error(), "cifar-10-binary.tar.gz") ||
			!strings.Contains(err.Error(), "--source") {
			t.Errorf("source %q: error %v", source, err)
		}
	}
}

// Any file gives as many images as its size says, or an error.
func FuzzCIFAR(f *testing.F) {
	for _, file := range tinyCIFAR() {
		f.Add(file, int64(len(file)))
		f.Add(gzipped(file), int64(len(file)))
		f.Add(file[:cifarRecord+1], int64(2*cifarRecord))
	}
	f.Add([]byte{10}, int64(cifarRecord))
	f.Add([]byte(nil), int64(-cifarRecord))
	f.Fuzz(func(t *testing.T, file []byte, size int64) {
		path := filepath.Join(t.TempDir(), "batch.bin")
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := openCIFAR([]input{{name: "batch.bin", path: path, size: size}})
		if err != nil {
			return
		}
		defer c.close()
		image := make([]byte, cifarColours*cifarPlane)
		for i := range c.total() {
			label, err := c.next(image)
			if err != nil {
				return
			}
			if label >= labels || file[0] != 0x1f && (i+1)*cifarRecord > len(file) {
				t.Fatalf("picture %d of a file of %d bytes is a %d", i, len(file), label)
			}
		}
	})
}
