package data

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
)

// Fields appends the unquoted fields of a row to dst. A field shares the memory of the row, unless
// it has a doubled quote or a CRLF, which becomes LF.
func Fields(dst [][]byte, row []byte, delimiter byte) ([][]byte, error) {
	for {
		var field []byte
		if len(row) > 0 && row[0] == '"' {
			var err error
			if field, row, err = quotedField(row[1:]); err != nil {
				return dst, err
			}
			if len(row) > 0 && row[0] != delimiter {
				return dst, errAfter
			}
		} else {
			n := bytes.IndexByte(row, delimiter)
			if n < 0 {
				n = len(row)
			}
			field, row = row[:n:n], row[n:]
			if bytes.IndexByte(field, '"') >= 0 {
				return dst, errBareQuote
			}
		}
		dst = append(dst, field)
		if len(row) == 0 {
			return dst, nil
		}
		row = row[1:] // the delimiter
	}
}

// quotedField returns the field that begins b, behind its opening quote, and the rest of the row
// behind its closing quote.
func quotedField(b []byte) (field, rest []byte, err error) {
	doubled := false
	for i := 0; ; i++ {
		n := bytes.IndexByte(b[i:], '"')
		if n < 0 {
			return nil, nil, errUnclosed
		}
		i += n
		if i+1 == len(b) || b[i+1] != '"' {
			field, rest = b[:i:i], b[i+1:]
			break
		}
		doubled = true
		i++
	}
	if doubled {
		field = bytes.ReplaceAll(field, []byte(`""`), []byte(`"`))
	}
	if bytes.Contains(field, []byte("\r\n")) {
		field = bytes.ReplaceAll(field, []byte("\r\n"), []byte("\n"))
	}
	return field, rest, nil
}

// maxLine is the length in bytes of the longest line that is accepted.
const maxLine = 16 << 20

// A rowScanner finds the rows of a file and checks their quotes.
type rowScanner struct {
	br        *bufio.Reader
	delimiter byte
	// in the file, of the next line
	offset int64
	// number of lines read
	line int
	// a line that is longer than the buffer of br
	long []byte
}

// rowSpan is the position of a row.
type rowSpan struct {
	start, end int64 // bytes of the file, without the line end
	line       int   // in which the row begins, from 1
	fields     int   // number of fields
}

// scanState is the position of the scanner within a row.
type scanState int

const (
	fieldStart scanState = iota
	inField
	inQuotes
	// behind a quote in a quoted field: it is the closing one, or the first of two
	quoteInQuotes
)

// next returns the next row, or io.EOF.
func (s *rowScanner) next() (rowSpan, error) {
	for {
		r := rowSpan{start: s.offset, line: s.line + 1, fields: 1}
		line, err := s.readLine()
		if err != nil {
			return r, err
		}
		text := trimLineEnd(line)
		if len(text) == 0 {
			continue
		}
		state := fieldStart
		for {
			var more int
			if state, more, err = scanLine(text, s.delimiter, state); err != nil {
				return r, &RowError{s.line, err}
			}
			r.fields += more
			if state != inQuotes {
				r.end = s.offset - int64(len(line)-len(text))
				return r, nil
			}
			if line, err = s.readLine(); err == io.EOF {
				return r, &RowError{r.line, errUnclosed}
			} else if err != nil {
				return r, err
			}
			text = trimLineEnd(line)
		}
	}
}

// readLine returns the next line with its line end. The bytes are valid until the next call.
func (s *rowScanner) readLine() ([]byte, error) {
	line, err := s.br.ReadSlice('\n')
	if err == bufio.ErrBufferFull {
		s.long = append(s.long[:0], line...)
		for err == bufio.ErrBufferFull {
			line, err = s.br.ReadSlice('\n')
			s.long = append(s.long, line...)
			if len(s.long) > maxLine {
				return nil, &RowError{s.line + 1, fmt.Errorf("more than %d bytes", maxLine)}
			}
		}
		line = s.long
	}
	if err == io.EOF && len(line) > 0 {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	s.offset += int64(len(line))
	s.line++
	return line, nil
}

// trimLineEnd removes LF or CRLF, and a CR at the end of the file.
func trimLineEnd(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}

// scanLine scans a line that begins in the given state. It returns the state at the line's end, and
// how many delimiters between fields the line has.
func scanLine(text []byte, delimiter byte, state scanState) (end scanState, delimiters int, err error) {
	if state == fieldStart && bytes.IndexByte(text, '"') < 0 {
		return inField, bytes.Count(text, []byte{delimiter}), nil
	}
	for _, c := range text {
		switch {
		case state == inQuotes:
			if c == '"' {
				state = quoteInQuotes
			}
		case c == delimiter:
			state = fieldStart
			delimiters++
		case state == quoteInQuotes && c == '"':
			state = inQuotes
		case state == quoteInQuotes:
			return state, delimiters, errAfter
		case c == '"' && state == inField:
			return state, delimiters, errBareQuote
		case c == '"':
			state = inQuotes
		default:
			state = inField
		}
	}
	return state, delimiters, nil
}
