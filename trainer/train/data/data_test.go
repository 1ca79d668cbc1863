package data

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/train/recordio"
	"pgregory.net/rapid"
)

// write makes a RecordIO file of n records "<name> <i>".
func write(t testing.TB, dir, name string, n int) {
	t.Helper()
	var b bytes.Buffer
	w, err := recordio.NewWriter(&b, recordio.Snappy, 64)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := w.Write(fmt.Appendf(nil, "%s %d", name, i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	writeFile(t, dir, name, b.String())
}

func writeFile(t testing.TB, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func open(t testing.TB, path string, params map[string]string) *Files {
	t.Helper()
	r, err := Open(path, params, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}

// all reads every record, shard by shard.
func all(r Reader) (records []string, err error) {
	shards, err := r.Shards()
	if err != nil {
		return nil, err
	}
	for _, s := range shards {
		for i := range s.Count {
			b, err := r.ReadAt(s.Name, s.Start+i)
			if err != nil {
				return nil, err
			}
			records = append(records, string(b))
		}
	}
	return records, nil
}

func TestDirectory(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "data-00001", 30)
	write(t, dir, "data-00000", 40)
	write(t, dir, "more/data-00000", 7)
	write(t, dir, "empty", 0)
	writeFile(t, dir, ".hidden", "not a record")
	writeFile(t, dir, ".git/config", "not a record")
	writeFile(t, dir, "rows.csv", "a,b\n1,2\n")
	if err := os.Symlink("data-00001", filepath.Join(dir, "linked")); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir, nil)
	shards, err := r.Shards()
	if err != nil {
		t.Fatal(err)
	}
	want := []task.Shard{{Name: "data-00000", Count: 40}, {Name: "data-00001", Count: 30}, {Name: "linked", Count: 30},
		{Name: "more/data-00000", Count: 7}, {Name: "rows.csv", Count: 1}}
	for i := range shards {
		if shards[i].Bytes == 0 || shards[i].Sum == 0 {
			t.Errorf("the content of %s is not known", shards[i].Name)
		}
		shards[i].Bytes, shards[i].Sum = 0, 0
	}
	if !slices.Equal(shards, want) {
		t.Errorf("shards %v, want %v", shards, want)
	}
	records, err := all(r)
	if err != nil || len(records) != 108 || records[39] != "data-00000 39" ||
		records[40] != "data-00001 0" || records[107] != "1,2" {
		t.Errorf("%d records, %v", len(records), err)
	}
}

// A shard is read without listing the directory first, as workers do.
func TestReadAtAlone(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "more/data", 50)
	r := open(t, dir, nil)
	for _, i := range []int64{49, 0, 25} {
		if b, err := r.ReadAt("more/data", i); err != nil || string(b) != fmt.Sprint("more/data ", i) {
			t.Errorf("record %d: %q, %v", i, b, err)
		}
	}
}

func TestOneFile(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "data", 3)
	write(t, dir, "other", 3)
	r := open(t, filepath.Join(dir, "data"), nil)
	if records, err := all(r); err != nil || !slices.Equal(records, []string{"data 0", "data 1", "data 2"}) {
		t.Errorf("%q, %v", records, err)
	}
	if _, err := r.ReadAt("other", 0); err == nil {
		t.Error("another file: no error")
	}
}

// No name of a shard leads out of the directory: workers get the names from the network.
func TestNamesStayInTheDirectory(t *testing.T) {
	parent := t.TempDir()
	write(t, parent, "secret", 3)
	dir := filepath.Join(parent, "data")
	write(t, dir, "data", 3)
	if err := os.Symlink("../secret", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir, nil)
	for _, name := range []string{"../secret", filepath.Join(parent, "secret"), "link",
		"data/../../secret", "", ".", "nothing"} {
		if b, err := r.ReadAt(name, 0); err == nil {
			t.Errorf("%q: read %q", name, b)
		}
	}
	// A single file may be a link to anywhere, and the name of the link decides about the format.
	linked := filepath.Join(t.TempDir(), "linked.csv")
	target := filepath.Join(t.TempDir(), "v3")
	if err := errors.Join(os.WriteFile(target, []byte("a,b\n1,2\n"), 0o644), os.Symlink(target, linked)); err != nil {
		t.Fatal(err)
	}
	if shards, err := open(t, linked, nil).Shards(); err != nil || len(shards) != 1 || shards[0].Count != 1 {
		t.Errorf("a link to one file: %v, %v", shards, err)
	}
	if _, err := r.Shards(); err == nil ||
		!strings.HasSuffix(err.Error(),
			": link is a link that leads out of the directory: expected files, or links to files in it") {
		t.Errorf("shards with a link that leads out: %v", err)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "good/data", 3)
	writeFile(t, dir, "bad/data-00007", "this is no RecordIO file at all")
	writeFile(t, dir, "rows/rows.csv", "a,b\n1,2\n3\n")
	write(t, dir, "empty/data", 0)
	writeFile(t, dir, "hidden/.data", "")
	for path, wants := range map[string][]string{
		"missing": {"missing", "no such file", "RecordIO"},
		"hidden":  {"hidden", "no record in 0 files", "RecordIO"},
		"empty":   {"empty", "no record in 1 files"},
		"bad":     {filepath.Join("bad", "data-00007"), "no RecordIO file", "elasticdl dataset"},
		"rows":    {filepath.Join("rows", "rows.csv"), "line 3", "1 fields, the first row has 2"},
	} {
		r, err := Open(filepath.Join(dir, path), nil, nil)
		if err == nil {
			_, err = r.Shards()
			r.Close()
		}
		if err == nil {
			t.Errorf("%s: no error", path)
			continue
		}
		for _, want := range wants {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q, want %q in it", path, err, want)
			}
		}
	}
	r := open(t, filepath.Join(dir, "good"), nil)
	for _, i := range []int64{-1, 3} {
		if _, err := r.ReadAt("data", i); err == nil || !strings.Contains(err.Error(), "of 3") {
			t.Errorf("record %d: %v", i, err)
		}
	}
}

// The error for a payload that was damaged after the file was indexed names file and offset.
func TestCorruptPayload(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "data", 50)
	path := filepath.Join(dir, "data")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)-1] ^= 1
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	_, err = open(t, dir, nil).ReadAt("data", 49)
	if err == nil || !strings.Contains(err.Error(), path) ||
		!strings.Contains(err.Error(), "chunk at offset") || !strings.Contains(err.Error(), "checksum") {
		t.Errorf("error %v", err)
	}
}

// A single file of another format is found before it is read, one in a directory when it is
// indexed; a damaged file is no foreign one.
func TestForeign(t *testing.T) {
	dir := t.TempDir()
	readme := writeFile(t, dir, "README.md", "# All about this directory, and more\n")
	const want = "it is no RecordIO file; want one, as elasticdl dataset writes it, or a .csv file; " +
		"what is no data is left out if its name begins with a dot"
	if err := open(t, readme, nil).Peek(); err == nil || !strings.HasSuffix(err.Error(), "README.md: "+want) {
		t.Errorf("the file itself: %v", err)
	}
	if _, err := open(t, dir, nil).Shards(); err == nil || !strings.HasSuffix(err.Error(), "README.md: "+want) {
		t.Errorf("its directory: %v", err)
	}
	write(t, dir, "data", 5)
	for _, c := range []struct {
		path   string
		params map[string]string
	}{{filepath.Join(dir, "data"), nil}, {dir, nil}, {readme, map[string]string{"reader_type": "CSV"}},
		{writeFile(t, dir, "empty", ""), nil}} {
		if err := open(t, c.path, c.params).Peek(); err != nil {
			t.Errorf("%s %v: %v", c.path, c.params, err)
		}
	}
	for _, text := range []string{"notes", "x", "\x04\x03\x02\x02"} {
		short := writeFile(t, t.TempDir(), "notes", text)
		if _, err := open(t, filepath.Dir(short), nil).Shards(); err == nil ||
			!strings.HasSuffix(err.Error(), short+": "+want) {
			t.Errorf("a file of %d bytes: %v", len(text), err)
		}
	}
	if err := open(t, writeFile(t, dir, "short", "\x04\x03\x02\x01"), nil).Peek(); err == nil ||
		strings.Contains(err.Error(), "no RecordIO") {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestParams(t *testing.T) {
	dir := t.TempDir()
	path := writeFile(t, dir, "rows.txt", "1;2\n\n3;4\n")
	for _, c := range []struct {
		params map[string]string
		want   []string
	}{
		{map[string]string{"reader_type": "CSV", "delimiter": ";"}, []string{"3;4"}},
		{map[string]string{"reader_type": `"csv"`, "sep": "';'", "header": "False"}, []string{"1;2", "3;4"}},
	} {
		if got, err := all(open(t, path, c.params)); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %q, %v, want %q", c.params, got, err, c.want)
		}
	}
	if o, err := parseParams(map[string]string{"sep": `"\t"`}); err != nil || o.delimiter != '\t' {
		t.Errorf("tab: %q, %v", o.delimiter, err)
	}
	_, err := Open(path, map[string]string{"reader_type": "Parquet", "delimiter": "ab",
		"header": "maybe", "columns": "x,x", "names": "x"}, nil)
	for _, name := range []string{"reader_type", "delimiter", "header", "columns", "names"} {
		if err == nil || !strings.Contains(err.Error(), name+"=") {
			t.Errorf("error %v does not name %s", err, name)
		}
	}
	for _, d := range []string{"", `"`, "\n", "é"} {
		if _, err := parseParams(map[string]string{"delimiter": d}); err == nil {
			t.Errorf("delimiter %q: no error", d)
		}
	}
}

// Concurrent random reads return the same records as sequential ones, also if the cache is too
// small.
func TestConcurrentReads(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a", 300)
	write(t, dir, "b", 300)
	r := open(t, dir, nil)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 300 {
				name, i := string("ab"[i%2]), int64((i*7+g*31)%300)
				if b, err := r.ReadAt(name, i); err != nil || string(b) != fmt.Sprint(name, " ", i) {
					t.Errorf("%s %d: %q, %v", name, i, b, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestCacheIsBounded(t *testing.T) {
	var c cache
	for i := range 40 {
		c.put(blockKey{"a", task.Block{First: int64(i)}}, [][]byte{make([]byte, 1<<20)})
		if _, ok := c.get(blockKey{"a", task.Block{}}); !ok {
			t.Fatalf("block 0, always in use, was dropped after %d", i)
		}
	}
	if c.size > keepBytes || len(c.blocks) != 15 {
		t.Errorf("%d bytes in %d blocks", c.size, len(c.blocks))
	}
	for i := range 5 {
		c.put(blockKey{"large", task.Block{First: int64(i)}}, [][]byte{make([]byte, 32<<20)})
	}
	if len(c.blocks) != keepBlocks {
		t.Errorf("%d large blocks", len(c.blocks))
	}
}

// rows reads CSV through the index and Fields.
func rows(file []byte, delimiter byte) ([][]string, error) {
	r := bytes.NewReader(file)
	format := csvFormat{delimiter, false}
	x, err := format.index(r, r.Size())
	if err != nil {
		return nil, err
	}
	var out [][]string
	for _, b := range x.blocks {
		records, err := format.read(r, b)
		if err != nil {
			return nil, fmt.Errorf("block %v of an indexed file: %w", b, err)
		}
		for i, record := range records {
			if got, ok := find(x.blocks, b.First+int64(i)); !ok || got != b {
				return nil, fmt.Errorf("row %d is in block %v, found in %v", i, b, got)
			}
			fields, err := Fields(nil, record, delimiter)
			if err != nil {
				return nil, fmt.Errorf("row %d of an indexed file: %w", i, err)
			}
			row := make([]string, len(fields))
			for i, f := range fields {
				row[i] = string(f)
			}
			out = append(out, row)
		}
	}
	if int64(len(out)) != x.records {
		return nil, fmt.Errorf("%d rows, the index has %d", len(out), x.records)
	}
	return out, nil
}

// sameAsStandard compares the rows and the error with those of encoding/csv.
func sameAsStandard(t interface{ Fatalf(string, ...any) }, file []byte, delimiter byte) {
	c := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(file, []byte(byteOrderMark))))
	c.Comma = rune(delimiter)
	want, wantErr := c.ReadAll()
	got, err := rows(file, delimiter)
	if (err == nil) != (wantErr == nil) {
		t.Fatalf("%q: error %v, want %v", file, err, wantErr)
	}
	if err == nil && !slices.EqualFunc(got, want, slices.Equal) {
		t.Fatalf("%q: %q, want %q", file, got, want)
	}
}

func TestCSVLikeTheStandardLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{"a", "é", ",", "\n", "\r\n", "\r", `"`, `""`,
			"\"x,\n\"", ",\"", "\n\n"})).Draw(t, "parts")
		sameAsStandard(t, []byte(strings.Join(parts, "")), ',')
	})
}

func FuzzCSV(f *testing.F) {
	for _, s := range []string{"a,b\n1,2\n", "\"a,\n\"\"b\",c\r\n\r\n1,\"2\"", "\ufeffx\n", "a\r\r\n",
		"a\r", "\"", "a\"b", "\"a\"b", ",\n,\n", "\"a\r\nb\"\n"} {
		f.Add([]byte(s), byte(','))
	}
	f.Add([]byte("a;b,\n1;2\n"), byte(';'))
	f.Fuzz(func(t *testing.T, file []byte, delimiter byte) {
		if delimiter == 0 || delimiter >= 0x80 || strings.IndexByte("\"\r\n", delimiter) >= 0 {
			return
		}
		sameAsStandard(t, file, delimiter)
	})
}

// Many blocks, long lines, and rows larger than a block.
func TestLargeCSV(t *testing.T) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	for i := range 5000 {
		long := strings.Repeat("x\n", i%7)
		if i%999 == 0 {
			long = strings.Repeat("y", 1<<19)
		}
		if err := w.Write([]string{fmt.Sprint(i), long}); err != nil {
			t.Fatal(err)
		}
	}
	w.Flush()
	sameAsStandard(t, b.Bytes(), ',')
	x, err := csvFormat{',', true}.index(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil || x.records != 4999 || len(x.blocks) < 8 || len(x.blocks) > 30 {
		t.Errorf("%d records in %d blocks, %v", x.records, len(x.blocks), err)
	}
}

func TestCSVErrors(t *testing.T) {
	for file, want := range map[string]string{
		"a,b\n1,2\n\n1,2,3\n":       "line 4: 3 fields, the first row has 2",
		"a,b\n\"x\ny\",2\n1,x\"y\n": "line 4: quote within a field",
		"a,b\n\"x\"y,2\n":           "line 2: text behind the closing quote",
		"a,b\n\"x,2\n3,4\n":         "line 2: quoted field without closing quote",
	} {
		_, err := csvFormat{',', true}.index(strings.NewReader(file), int64(len(file)))
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: error %v, want %s", file, err, want)
		}
	}
	long := strings.NewReader(strings.Repeat("x", maxLine+1<<17))
	if _, err := (csvFormat{',', true}).index(long, long.Size()); err == nil ||
		!strings.Contains(err.Error(), "more than") {
		t.Errorf("long line: %v", err)
	}
}

// Reading a file that was changed after it was indexed fails; it does not return other rows.
func TestCSVChanged(t *testing.T) {
	old := strings.NewReader("a\nb\nc\n")
	format := csvFormat{',', false}
	x, err := format.index(old, old.Size())
	if err != nil {
		t.Fatal(err)
	}
	for _, now := range []string{"a\n\n\nc\n", "a\nb", "\"\nb\nc\n"} {
		if rows, err := format.read(strings.NewReader(now), x.blocks[0]); err == nil {
			t.Errorf("%q: %q", now, rows)
		}
	}
}

func BenchmarkIndexCSV(b *testing.B) {
	var file bytes.Buffer
	for i := range 20_000 {
		fmt.Fprintf(&file, "%d,%d,%f,some text,%d\n", i, i*7, float64(i)/3, i%10)
	}
	r := bytes.NewReader(file.Bytes())
	b.SetBytes(r.Size())
	for b.Loop() {
		if _, err := (csvFormat{',', true}).index(r, r.Size()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkReadAt(b *testing.B) {
	dir := b.TempDir()
	write(b, dir, "data", 4096)
	r := open(b, dir, nil)
	i := int64(0)
	for b.Loop() {
		if _, err := r.ReadAt("data", i*37%4096); err != nil {
			b.Fatal(err)
		}
		i++
	}
}
