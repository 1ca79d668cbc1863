package data

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
)

// CSV files with the columns of the first one in another order give records with the fields in
// the order of the first.
func TestColumnsByName(t *testing.T) {
	for name, c := range map[string]struct {
		files  map[string]string
		params map[string]string
		want   []string
	}{
		"another order": {
			files: map[string]string{"a.csv": "x,y,label\n1,2,0\n", "b.csv": "y,x,label\n20,10,0\n"},
			want:  []string{"1,2,0", "10,20,0"},
		},
		"byte order mark, quotes, spaces, CRLF": {
			files: map[string]string{"a.csv": "\ufeffx,y\r\n1,2\r\n", "b.csv": "\"y\", x\n\"2,\"\"0\n\",10\n"},
			want:  []string{"1,2", "10,\"2,\"\"0\n\""},
		},
		"a header only, and an empty file first": {
			files: map[string]string{"a.csv": "", "b.csv": "x,y\n", "c.csv": "y,x\n2,1\n", "d/e.csv": "x,y\n3,4\n"},
			want:  []string{"1,2", "3,4"},
		},
		"tabs": {
			files:  map[string]string{"a.csv": "x\ty\n1\t\n", "b.csv": "y\tx\n\t1\n"},
			params: map[string]string{"sep": `\t`},
			want:   []string{"1\t", "1\t"},
		},
		"chosen": {
			files:  map[string]string{"a.csv": "x,y,label\n1,2,0\n", "b.csv": "label,y,x\n0,20,10\n"},
			params: map[string]string{"columns": "['y', \"x\"]"},
			want:   []string{"2,1", "20,10"},
		},
		"names that are numbers": {
			files: map[string]string{"a.csv": ",0,1,2\n0,5,6,7\n", "b.csv": ",0,2,1\n0,5,7,6\n"},
			want:  []string{"0,5,6,7", "0,5,6,7"},
		},
		"no header": {
			files:  map[string]string{"a.csv": "1,1\n", "b.csv": "3,4\n"},
			params: map[string]string{"header": "false"},
			want:   []string{"1,1", "3,4"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				writeFile(t, dir, file, text)
			}
			master := open(t, dir, c.params)
			got, err := all(master)
			if err != nil || !slices.Equal(got, c.want) {
				t.Errorf("%q, %v, want %q", got, err, c.want)
			}
			// A worker has learned the positions of the records, and indexes nothing.
			worker := open(t, dir, c.params)
			shards, err := master.Shards()
			if err != nil {
				t.Fatal(err)
			}
			var learned []string
			for _, s := range slices.Backward(shards) {
				if err := worker.Learn(s.Name, master.Blocks(s.Name, 0, s.Count)); err != nil {
					t.Fatal(err)
				}
				for i := range s.Count {
					record, err := worker.ReadAt(s.Name, i)
					if err != nil {
						t.Fatal(err)
					}
					learned = append(learned, string(record))
				}
			}
			slices.Reverse(learned)
			if !slices.Equal(learned, c.want) || worker.Looked() > 0 {
				t.Errorf("a worker: %q after %d bytes of indexing, want %q", learned, worker.Looked(), c.want)
			}
		})
	}
}

// Validation data is read with the columns of the training data.
func TestColumnsLikeOthers(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "train/a.csv", "x,y\n1,2\n")
	writeFile(t, dir, "test/a.csv", "y,x\n2,1\n")
	writeFile(t, dir, "wrong/a.csv", "y,z\n2,1\n")
	write(t, dir, "records/data", 1)
	train := open(t, filepath.Join(dir, "train"), nil)
	test := open(t, filepath.Join(dir, "test"), nil)
	test.Like(train)
	if got, err := all(test); err != nil || !slices.Equal(got, []string{"1,2"}) {
		t.Errorf("%q, %v", got, err)
	}
	wrong := open(t, filepath.Join(dir, "wrong"), nil)
	wrong.Like(train)
	if _, err := wrong.Shards(); err == nil ||
		!strings.Contains(err.Error(), filepath.Join("wrong", "a.csv")) ||
		!strings.Contains(err.Error(), filepath.Join("train", "a.csv")) {
		t.Errorf("other columns: %v", err)
	}
	alone := open(t, filepath.Join(dir, "test"), nil)
	alone.Like(open(t, filepath.Join(dir, "records"), nil))
	if got, err := all(alone); err != nil || !slices.Equal(got, []string{"2,1"}) {
		t.Errorf("like data without columns: %q, %v", got, err)
	}
}

func TestColumnsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		files  map[string]string
		params map[string]string
		wants  []string
	}{
		"missing": {files: map[string]string{"a.csv": "x,y,label\n1,2,0\n", "b.csv": "x,label\n1,0\n"},
			wants: []string{"b.csv: ", `has no column "y"`, "a.csv", "x, y, label"}},
		"unknown": {files: map[string]string{"a.csv": "x,y\n1,2\n", "b.csv": "x,y,z\n1,2,3\n"},
			wants: []string{"b.csv: ", `the unknown column "z"`}},
		"renamed": {files: map[string]string{"a.csv": "x,y\n1,2\n", "b.csv": "x,Y\n1,2\n"},
			wants: []string{"b.csv: ", `no column "y"`, `unknown column "Y"`}},
		"doubled": {files: map[string]string{"a.csv": "x,y,x\n1,2,3\n"},
			wants: []string{"a.csv: ", `column "x" twice (columns 1 and 3)`}},
		"doubled in the second": {
			files: map[string]string{"a.csv": "x,y\n1,2\n", "b.csv": "x,x\n1,2\n"},
			wants: []string{"b.csv: ", `column "x" twice`},
		},
		"without names": {files: map[string]string{"a.csv": "x,,\n1,,\n", "b.csv": ",x\n,1\n"},
			wants: []string{"b.csv: ", "columns"}},
		"wrong in a file of no record": {
			files: map[string]string{"a.csv": "x,y\n1,2\n", "b.csv": "x,z\n"},
			wants: []string{"b.csv: ", `no column "y"`},
		},
		"a header missing": {files: map[string]string{
			"a.csv": "5.1,3.5,1.4,0.2,setosa\n4.9,3.0,1.4,0.2,setosa\n"},
			wants: []string{"a.csv: ", "looks like data", "header=false"}},
		"a header missing in one": {files: map[string]string{"a.csv": "x,y\n1,2\n",
			"b.csv": "3,4\n5,6\n"}, wants: []string{"b.csv: ", `no column "x"`}},
		"not chosen ones": {files: map[string]string{"a.csv": "x,y\n1,2\n"},
			params: map[string]string{"columns": "x,z"}, wants: []string{"a.csv: ", `no column "z"`, "columns"}},
		"another number of fields": {
			files:  map[string]string{"a.csv": "1,2\n", "b.csv": "3,4,5\n"},
			params: map[string]string{"header": "false"}, wants: []string{"b.csv: ", "3 fields", "has 2"},
		},
		"header only": {files: map[string]string{"a.csv": "x,y\n"},
			wants: []string{"no record in 1 files", "a.csv names the columns", "header=false"}},
		"CR": {files: map[string]string{"a.csv": "x,y\r1,2\r"},
			wants: []string{"a.csv: ", "carriage return", `tr '\r' '\n'`}},
		"CR without header": {
			files:  map[string]string{"a.csv": "1,2\r3,4\r"},
			params: map[string]string{"header": "false"}, wants: []string{"a.csv: ", "carriage return"},
		},
		"CR in numbers": {files: map[string]string{"a.csv": "5,3,1\r4,2,0\r"},
			wants: []string{"a.csv: ", "carriage return"}},
		"CR in the second": {
			files: map[string]string{"a.csv": "x,y\n1,2\n", "b.csv": "x,y\r1,2\r"},
			wants: []string{"b.csv: ", "carriage return"},
		},
		"CR in the second without header": {
			files:  map[string]string{"a.csv": "1,2\n", "b.csv": "3,4\r5,6\r"},
			params: map[string]string{"header": "false"}, wants: []string{"b.csv: ", "carriage return"},
		},
		"UTF-16": {files: map[string]string{"a.csv": "\xff\xfex\x00,\x00y\x00\n\x00"},
			wants: []string{"a.csv: ", "UTF-16", "iconv"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range c.files {
				writeFile(t, dir, file, text)
			}
			_, err := open(t, dir, c.params).Shards()
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.wants {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q, want %q in it", err, want)
				}
			}
		})
	}
}

// A worker that reads a file which has lost a column since it was indexed does not read other
// fields in its place.
func TestColumnsChanged(t *testing.T) {
	dir := t.TempDir()
	writeFile(t, dir, "a.csv", "x,y\n1,2\n")
	writeFile(t, dir, "b.csv", "y,z\n2,1\n")
	worker := open(t, dir, nil)
	if err := worker.Learn("b.csv", []task.Block{{First: 0, Records: 1, Offset: 4, Size: 3}}); err != nil {
		t.Fatal(err)
	}
	if record, err := worker.ReadAt("b.csv", 0); err == nil || !strings.Contains(err.Error(), "b.csv") {
		t.Errorf("%q, %v", record, err)
	}
}
