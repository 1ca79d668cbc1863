package data

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strconv"
	"strings"
)

// errCR describes a file whose lines end as on the Macintosh before 2001.
var errCR = errors.New(
	`line 1: a carriage return (CR) within a line: expected lines that end with LF or CRLF; convert the file: tr '\r' '\n' < OLD > NEW`)

// errUTF16 describes a file that a spreadsheet has saved as "Unicode text".
var errUTF16 = errors.New("the text is UTF-16: expected UTF-8; convert the file: iconv -f UTF-16 -t UTF-8 OLD > NEW")

// first returns the unchanged first row of a file, "" if there is none.
func (c csvFormat) first(r io.ReaderAt, size int64) ([]byte, error) {
	s, err := c.scan(r, size, 4<<10)
	if err != nil {
		return nil, err
	}
	row, err := s.next()
	if err == io.EOF {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	text := make([]byte, row.end-row.start)
	if n, err := r.ReadAt(text, row.start); n < len(text) {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	return text, nil
}

// columnNames returns the columns that the first row of a file names. Spaces around a name do not
// count.
func (f *Files) columnNames(row []byte) ([]string, error) {
	fields, err := Fields(nil, row, f.delimiter)
	if err != nil {
		return nil, &RowError{1, err}
	}
	names := make([]string, len(fields))
	for i, field := range fields {
		names[i] = string(bytes.TrimSpace(field))
		if at := slices.Index(names[:i], names[i]); at >= 0 && names[i] != "" {
			return nil, fmt.Errorf("the header names column %q twice (columns %d and %d): rename one",
				names[i], at+1, i+1)
		}
	}
	return names, nil
}

// isData reports whether a first row is rather data than names: most of its fields are numbers,
// and these do not rise as those of years, indices or wavelengths do.
func isData(names []string) bool {
	numbers, rise, last := 0, true, 0.0
	for _, name := range names {
		n, err := strconv.ParseFloat(name, 64)
		if err != nil {
			continue
		}
		rise = rise && (numbers == 0 || n > last)
		numbers, last = numbers+1, n
	}
	return 2*numbers > len(names) && (!rise || numbers == 1 && len(names) == 1)
}

// listed returns names for a message, not too many.
func listed(names []string) string {
	const most = 8
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d more", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// columns are the columns that records have, in this order.
type columns struct {
	// what has them, for errors: a file, or the parameter
	from string
	// nil: the files have no header
	names []string
	// how many they are
	count int
	// files may have others, which records do not have
	part bool
}

// Like makes f read records with the columns of the files of other, in their order.
func (f *Files) Like(other *Files) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.like = other
}

// wanted returns the columns of the records: those of the parameter, of the files that f is like,
// or of its first CSV file. It returns nil if there are none.
func (f *Files) wanted() (*columns, error) {
	f.mu.Lock()
	want, like := f.want, f.like
	f.mu.Unlock()
	if want != nil {
		return want, nil
	}
	var err error
	switch {
	case len(f.selected) > 0:
		want = &columns{from: "--data_reader_params=columns", names: f.selected, count: len(f.selected), part: true}
	case like != nil:
		want, err = like.wanted()
	}
	if want == nil && err == nil {
		want, err = f.firstColumns()
	}
	if err != nil || want == nil {
		return nil, err
	}
	f.mu.Lock()
	f.want = want
	f.mu.Unlock()
	return want, nil
}

// errFound ends a walk.
var errFound = errors.New("found")

// firstColumns returns the columns of the first CSV file that has any row.
func (f *Files) firstColumns() (want *columns, err error) {
	look := func(name string) error {
		row, err := f.firstRow(name)
		if err != nil || row == nil {
			return err
		}
		if bareCR(row) {
			return fmt.Errorf("read %s: %w", f.name(name), errCR)
		}
		if !f.header {
			fields, err := Fields(nil, row, f.delimiter)
			want = &columns{from: f.name(name), count: len(fields)}
			return cmp.Or(err, errFound)
		}
		names, err := f.columnNames(row)
		// that of any other file is compared with it
		if err == nil && !f.headerGiven && isData(names) {
			err = fmt.Errorf("the first row looks like data (%s): expected the names of the "+
				"columns; if the file has no header: --data_reader_params=header=false; "+
				"if these are the names: --data_reader_params=header=true", listed(names))
		}
		if err != nil {
			return fmt.Errorf("read %s: %w", f.name(name), err)
		}
		want = &columns{from: f.name(name), names: names, count: len(names)}
		return errFound
	}
	err = f.walk(func(name string, _ int64) error {
		if !f.csv(name) {
			return nil
		}
		return look(name)
	})
	if errors.Is(err, errFound) {
		err = nil
	}
	return want, err
}

// firstRow returns the first row of a file, nil if it has none.
func (f *Files) firstRow(name string) (row []byte, err error) {
	err = f.open(name, func(r io.ReaderAt, size int64) error {
		row, err = csvFormat{f.delimiter, f.header}.first(r, size)
		return err
	})
	return row, err
}

// order returns which fields of a file's rows become those of the records: field order[i] of a
// row is field i of the record. It returns nil if they are the same. Its error says what the
// columns of the file lack, or have too much.
func (f *Files) order(name string, first []byte) ([]int, error) {
	if bareCR(first) {
		return nil, errCR
	}
	if !f.header {
		fields, err := Fields(nil, first, f.delimiter)
		if err != nil {
			return nil, nil // said when the row is read
		}
		want, err := f.wanted()
		if err != nil || want == nil || want.count == len(fields) {
			return nil, err
		}
		return nil, fmt.Errorf("%d fields in a row, %s has %d: expected files with the same columns",
			len(fields), want.from, want.count)
	}
	names, err := f.columnNames(first)
	if err != nil {
		return nil, err
	}
	want, err := f.wanted()
	if err != nil || want == nil || slices.Equal(names, want.names) {
		return nil, err
	}
	return want.order(names)
}

// order returns the positions of the columns among names.
func (w *columns) order(names []string) ([]int, error) {
	var missing, unknown []string
	order := make([]int, 0, len(w.names))
	for _, name := range w.names {
		at := slices.Index(names, name)
		if at < 0 {
			missing = append(missing, strconv.Quote(name))
		}
		order = append(order, at)
	}
	for _, name := range names {
		if !w.part && !slices.Contains(w.names, name) {
			unknown = append(unknown, strconv.Quote(name))
		}
	}
	if len(missing) == 0 && len(unknown) == 0 && (w.part || len(names) == w.count) {
		return order, nil
	}
	var problems []string
	if len(missing) > 0 {
		problems = append(problems, "has no column "+listed(missing))
	}
	if len(unknown) > 0 {
		problems = append(problems, "has the unknown column "+listed(unknown))
	}
	if len(problems) == 0 {
		problems = append(problems, fmt.Sprintf("has %d columns without a name, of %d columns",
			count(names, ""), len(names)))
	}
	return nil,
		fmt.Errorf("the header %s: expected the columns of %s: %s; they may be in another order",
			strings.Join(problems, " and "), w.from, listed(w.names))
}

func count(names []string, name string) (n int) {
	for _, other := range names {
		if other == name {
			n++
		}
	}
	return n
}

// bareCR reports whether a row has a carriage return outside of quotes.
func bareCR(row []byte) bool {
	quoted := false
	for _, c := range row {
		if c == '"' {
			quoted = !quoted
		}
		if c == '\r' && !quoted {
			return true
		}
	}
	return false
}

// arrange returns rows with their fields in another order.
func arrange(rows [][]byte, order []int, delimiter byte) [][]byte {
	arranged := make([][]byte, len(rows))
	var fields [][]byte
	for i, row := range rows {
		fields = rawFields(fields[:0], row, delimiter)
		record := make([]byte, 0, len(row))
		for k, from := range order {
			if k > 0 {
				record = append(record, delimiter)
			}
			record = append(record, fields[from]...)
		}
		arranged[i] = record
	}
	return arranged
}

// rawFields appends the fields of a row, with their quotes, to dst.
func rawFields(dst [][]byte, row []byte, delimiter byte) [][]byte {
	start, quoted := 0, false
	for i, c := range row {
		switch {
		case c == '"': // a doubled one changes nothing
			quoted = !quoted
		case c == delimiter && !quoted:
			dst = append(dst, row[start:i])
			start = i + 1
		}
	}
	return append(dst, row[start:])
}

// parseColumns parses names with commas or spaces between, as a list of Python or not.
func parseColumns(value string) ([]string, error) {
	value = strings.TrimSpace(value)
	if strings.HasPrefix(value, "[") && strings.HasSuffix(value, "]") ||
		strings.HasPrefix(value, "(") && strings.HasSuffix(value, ")") {
		value = value[1 : len(value)-1]
	}
	var names []string
	for part := range strings.SplitSeq(value, ",") {
		// the parser of the flag may have taken the outer quotes
		name := strings.TrimSpace(strings.Trim(strings.TrimSpace(part), `'"`))
		if name == "" || slices.Contains(names, name) {
			return nil, errors.New("want different names of columns with commas between")
		}
		names = append(names, name)
	}
	return names, nil
}

// hidden reports whether a file or directory is left out.
func hidden(name string) bool { return name != "." && strings.HasPrefix(path.Base(name), ".") }
