package dump

import (
	"bytes"
	"maps"
	"slices"

	"github.com/elasticdl/elasticdl/trainer/elastic/secret"
)

// Logs splits the log of a job, in which each line begins with "[POD] ", into one for each pod. It
// keeps the last lines: [Logs.Most] bytes of all pods together. The longest log loses lines first.
type Logs struct {
	Most int64

	pods map[string]*last
	part []byte // of a line
	gap  int64  // bytes that were removed from that part
	held int64
}

// last is the end of a log.
type last struct {
	lines [][]byte
	bytes int64
	left  int64 // bytes before
}

// longestLine is the maximum number of bytes of a line that are kept together.
const longestLine = 64 << 10

// longestName is the maximum number of bytes of the name of a pod, with its brackets and the space.
const longestName = 67

// nameless is the number of bytes that are removed after a cut in a line, and the rest of the word
// there: it may be a secret, whose name is before the cut.
const nameless = 1 << 10

// Write implements [io.Writer].
func (l *Logs) Write(text []byte) (int, error) {
	n := len(text)
	for len(text) > 0 {
		end := bytes.IndexByte(text, '\n') + 1
		if end == 0 {
			if l.part = append(l.part, text...); len(l.part) > 4*longestLine {
				// the pod stands at the beginning
				n := len(l.part) - 2*longestLine
				l.part = slices.Delete(l.part, longestName, n)
				l.gap += int64(n - longestName)
			}
			break
		}
		l.add(append(l.part, text[:end]...))
		l.part, text = l.part[:0], text[end:]
	}
	return n, nil
}

func (l *Logs) add(line []byte) {
	pod, text := "job", line
	if rest, ok := bytes.CutPrefix(line, []byte("[")); ok {
		if name, rest, ok := bytes.Cut(rest, []byte("] ")); ok && len(name) < longestName-3 && safe(string(name)) &&
			!bytes.ContainsAny(name, "/ ") {
			pod, text = string(name), rest
		}
	}
	if l.pods == nil {
		l.pods = make(map[string]*last)
	}
	p := l.pods[pod]
	if p == nil {
		p = new(last)
		l.pods[pod] = p
	}
	if n := len(text); n > longestLine {
		text = lineRest(text[n-longestLine:])
		p.left += l.gap + int64(max(0, n-len(text)))
	}
	l.gap = 0
	p.lines = append(p.lines, bytes.Clone(text))
	p.bytes += int64(len(text))
	l.held += int64(len(text))
	for l.held > l.Most {
		l.drop()
	}
}

// lineRest returns what may be kept of the rest of a line: without secrets, whose names may be cut
// off. It ends with the line.
func lineRest(text []byte) []byte {
	rest := []byte(new(secret.Redactor).Text(string(text)))
	// marks may have made it longer
	rest = rest[max(min(nameless, len(rest)-1), len(rest)-longestLine):]
	space := bytes.IndexAny(rest, " \t\n")
	return rest[max(0, space):]
}

// drop drops the first eighth of the longest log, and at least a line.
func (l *Logs) drop() {
	var longest *last
	for _, p := range l.pods {
		if longest == nil || p.bytes > longest.bytes {
			longest = p
		}
	}
	for enough := longest.bytes - longest.bytes/8; len(longest.lines) > 0; {
		n := int64(len(longest.lines[0]))
		longest.lines[0] = nil
		longest.lines = longest.lines[1:]
		longest.bytes, longest.left, l.held = longest.bytes-n, longest.left+n, l.held-n
		if longest.bytes <= enough {
			return
		}
	}
}

// Files returns the logs as files of a directory.
func (l *Logs) Files(directory string) []File {
	if len(l.part) > 0 {
		l.add(append(l.part, '\n'))
		l.part = nil
	}
	var files []File
	for _, pod := range slices.Sorted(maps.Keys(l.pods)) {
		p := l.pods[pod]
		files = append(files, File{Name: directory + "/" + pod + ".log", Text: bytes.Join(p.lines, nil), Left: p.left})
	}
	return files
}
