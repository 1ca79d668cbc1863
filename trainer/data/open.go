package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/task"
)

// options are the reader's parameters.
type options struct {
	csv       func(name string) bool // whether a file is CSV; any other is RecordIO
	delimiter byte
	header    bool
}

// Open opens a directory of files, at any depth, or one file. Files whose
// names end in .csv are CSV, others RecordIO; files and directories with a
// name that begins with a dot are not there. Parameters:
//
//	reader_type  CSV or RecordIO: what all files are, whatever their names
//	delimiter    between the fields of a CSV row, one ASCII character or \t (also: sep); a comma
//	header       true or false: whether a CSV file's first row names the columns and is no record; true
//
// Values may be quoted. A link in a directory must not lead out of it.
func Open(path string, params map[string]string) (*Files, error) {
	opts, err := parseParams(params)
	if err != nil {
		return nil, fmt.Errorf("read data %s: %w", path, err)
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read data %s: %w; want a directory of RecordIO files, as elasticdl dataset writes it, or a .csv file", path, Storage(cause(err)))
	} else if err != nil {
		return nil, fmt.Errorf("read data: %w", Storage(err))
	}
	f := &Files{path: path, dir: path, options: opts, indexes: map[string]*index{}, known: map[string][]task.Block{}}
	if !info.IsDir() {
		if err := f.one(path); err != nil {
			return nil, fmt.Errorf("read data: %w", Storage(err))
		}
	}
	if err := f.within(func(*os.Root) error { return nil }); err != nil {
		return nil, fmt.Errorf("read data %s: %w", path, err)
	}
	return f, nil
}

// one makes the files a single one, which may be a link: it is what the link leads to, and CSV if the name says so that was given.
func (f *Files) one(path string) error {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&os.ModeSymlink != 0 {
		csv := f.csv(path)
		f.csv = func(string) bool { return csv }
		path, err = filepath.EvalSymlinks(path)
	}
	f.dir, f.only = filepath.Dir(path), filepath.Base(path)
	return err
}

func parseParams(params map[string]string) (options, error) {
	opts := options{csv: hasCSVSuffix, delimiter: ',', header: true}
	var problems []error
	names := make([]string, 0, len(params))
	for name := range params {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := opts.set(name, unquote(strings.TrimSpace(params[name]))); err != nil {
			problems = append(problems, fmt.Errorf("reader parameter %s=%q: %w", name, params[name], err))
		}
	}
	return opts, errors.Join(problems...)
}

func (o *options) set(name, value string) error {
	switch name {
	case "reader_type":
		csv := strings.EqualFold(value, "CSV")
		if !csv && !strings.EqualFold(value, "RecordIO") {
			return errors.New("want CSV or RecordIO")
		}
		o.csv = func(string) bool { return csv }
	case "delimiter", "sep":
		if value == `\t` {
			value = "\t"
		}
		if len(value) != 1 || value[0] >= 0x80 || strings.Contains("\"\r\n\x00", value) {
			return errors.New("want one ASCII character, no quote and no line end")
		}
		o.delimiter = value[0]
	case "header":
		var err error
		if o.header, err = strconv.ParseBool(value); err != nil {
			return errors.New("want true or false")
		}
	default:
		return errors.New("unknown; there are reader_type, delimiter and header")
	}
	return nil
}

func hasCSVSuffix(name string) bool { return strings.EqualFold(filepath.Ext(name), ".csv") }

// unquote takes off the quotes that ElasticDL's parameters have, which were Python.
func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
