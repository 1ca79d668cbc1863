package data

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
)

// options are the reader's parameters.
type options struct {
	// reports whether a file is CSV; the others are RecordIO
	csv func(name string) bool
	// between the fields of a CSV row
	delimiter byte
	// the first row of a CSV file names the columns and is not a record
	header bool
	// header is not the default
	headerGiven bool
	// names of the columns that records have; empty: those of the first file
	selected []string
}

// Open opens a directory of files, at any depth, or one file. Files whose names end in .csv are
// CSV, others are RecordIO. Files and directories whose names begin with a dot are ignored. A
// symbolic link in a directory must not lead out of it. Parameters, whose values may be quoted:
//
//	reader_type  CSV or RecordIO: the format of all files; default: by the name of each
//	delimiter    one ASCII character or \t between the fields of a CSV row (also: sep); default: a
//	             comma
//	header       true or false: whether the first row of a CSV file names the columns and is not a
//	             record; default: true
//	columns      names with commas between: the columns that records have, in this order; default:
//	             those of the first CSV file
//
// CSV files with a header are read by name: all have the columns of the first one, in any order.
//
// A path with "://" is opened by buckets: files are then objects whose names begin with a prefix.
func Open(path string, params map[string]string, buckets Buckets) (*Files, error) {
	opts, err := parseParams(params)
	if err != nil {
		return nil, fmt.Errorf("read data %s: %w", path, err)
	}
	f := &Files{path: path, options: opts, indexes: map[string]*index{},
		orders: map[string][]int{}, known: map[string][]task.Block{}}
	if strings.Contains(path, "://") {
		if buckets == nil {
			return nil, fmt.Errorf("read data %s: expected a directory or a file of this machine", path)
		}
		if f.place, f.only, err = buckets(path); err != nil {
			return nil, fmt.Errorf("read data: %w", err)
		}
		return f, nil
	}
	info, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("read data %s: %w; want a directory of RecordIO files, as elasticdl "+
			"dataset writes it, or a .csv file", path, outage.Of(cause(err)))
	} else if err != nil {
		return nil, fmt.Errorf("read data: %w", outage.Of(err))
	}
	at := directory(path)
	if !info.IsDir() {
		if at, err = f.one(path); err != nil {
			return nil, fmt.Errorf("read data: %w", outage.Of(err))
		}
	}
	f.place = at
	if err := at.within(func(*os.Root) error { return nil }); err != nil {
		return nil, fmt.Errorf("read data %s: %w", path, err)
	}
	return f, nil
}

// one makes f read the single file at path, and returns its directory. If path is a symbolic link,
// f reads the link's target, and the name of the link decides whether it is CSV.
func (f *Files) one(path string) (directory, error) {
	info, err := os.Lstat(path)
	if err == nil && info.Mode()&os.ModeSymlink != 0 {
		csv := f.csv(path)
		f.csv = func(string) bool { return csv }
		path, err = filepath.EvalSymlinks(path)
	}
	f.only = filepath.Base(path)
	return directory(filepath.Dir(path)), err
}

// parseParams returns the options that the parameters set. Its error names every wrong parameter.
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
	if len(opts.selected) > 0 && !opts.header {
		problems = append(problems,
			errors.New("reader parameter columns: the files have no names of columns, by "+
				"header=false; drop one of the two"))
	}
	return opts, errors.Join(problems...)
}

// set applies one parameter.
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
			return errors.New("want one ASCII character that is not a quote and not a line end, or \\t")
		}
		o.delimiter = value[0]
	case "header":
		var err error
		if o.header, err = strconv.ParseBool(value); err != nil {
			return errors.New("want true or false")
		}
		o.headerGiven = true
	case "columns":
		var err error
		o.selected, err = parseColumns(value)
		return err
	default:
		return errors.New("unknown; there are reader_type, delimiter, header and columns")
	}
	return nil
}

func hasCSVSuffix(name string) bool { return strings.EqualFold(filepath.Ext(name), ".csv") }

// unquote removes the quotes round a value: ElasticDL's parameters are Python expressions.
func unquote(s string) string {
	if len(s) >= 2 && (s[0] == '\'' || s[0] == '"') && s[len(s)-1] == s[0] {
		return s[1 : len(s)-1]
	}
	return s
}
