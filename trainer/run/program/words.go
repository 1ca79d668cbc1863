package program

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/elasticdl/elasticdl/trainer/logline"
)

const (
	// wordsKept limits the kept end of a standard error, in bytes.
	wordsKept = 16 << 10
	// wordsMost limits the reported characters of it.
	wordsMost = 240
	// wordsLimit is the time that the last output of an ended process may take to arrive: a process
	// that it has started may hold the pipe.
	wordsLimit = 100 * time.Millisecond
)

// words keeps the end of what a process writes to its standard error.
type words struct {
	// file with the standard error; "": it is copied to this buffer
	file string
	// closed when nothing more comes
	ended chan struct{}

	mu   sync.Mutex
	text []byte
}

func newWords() *words { return &words{ended: make(chan struct{})} }

// Write takes what comes next. It never fails.
func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	if over := len(w.text) - wordsKept; over > 0 {
		w.text = append(w.text[:0], w.text[over:]...)
	}
	return len(p), nil
}

// Close reports that nothing more comes. It never fails.
func (w *words) Close() error {
	close(w.ended)
	return nil
}

// last returns the last words of a process that has ended, on one line.
func (w *words) last() string {
	if w.file != "" {
		return lastWords(endOf(w.file))
	}
	timer := time.NewTimer(wordsLimit)
	defer timer.Stop()
	select {
	case <-w.ended:
	case <-timer.C:
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return lastWords(string(w.text))
}

// endOf returns the end of a file, "" if it cannot be read.
func endOf(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > wordsKept {
		file.Seek(-wordsKept, io.SeekEnd) // else all of it is read
	}
	text, _ := io.ReadAll(io.LimitReader(file, wordsKept))
	return string(text)
}

var (
	// ranked matches the prefix that PyTorch 2.x puts before each line of an exception.
	ranked = regexp.MustCompile(`(?m)^\[rank\d+\]: ?`)
	colour = regexp.MustCompile("\x1b\\[[0-9;:]*m")
)

// First lines of tracebacks of Python: of an exception, and of a group of them, whose lines have
// a margin.
const (
	traceback      = "Traceback (most recent call last):"
	groupTraceback = "+ Exception Group " + traceback
)

// lastWords returns in one line what a standard error says of a failure: the exception of Python's
// last traceback, otherwise the last line that is not empty. Control characters are escaped.
func lastWords(text string) string {
	text = ranked.ReplaceAllString(colour.ReplaceAllString(text, ""), "")
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return strings.TrimSpace(line) == ""
	})
	last := ""
	for i, line := range slices.Backward(lines) {
		if last == "" {
			last = line
		}
		if strings.TrimSpace(line) == groupTraceback {
			if words := groupWords(lines[i:]); words != "" {
				return brief(words)
			}
		}
		// what follows the exception is reported at the end of the interpreter
		if strings.TrimSpace(line) == traceback {
			stack := slices.IndexFunc(lines[i+1:], func(line string) bool { return line[0] != ' ' })
			if stack >= 0 {
				last = lines[i+1+stack]
			}
			break
		}
	}
	return brief(last)
}

// margin matches what precedes the text of a line in the traceback of a group of exceptions, and
// border a line between two of them.
var (
	margin = regexp.MustCompile(`^ *\| ?`)
	border = regexp.MustCompile(`^ *\+[-+ ]`)
)

// groupWords returns what a traceback says of a group of exceptions: the group, and each
// exception in it that is no group, at any depth. It returns "" if the text is cut off before the
// group's name.
//
//   - Exception Group Traceback (most recent call last):
//     |   File "main.py", line 1, in <module>
//     | ExceptionGroup: several (2 sub-exceptions)
//     +-+---------------- 1 ----------------
//     | ValueError: a
//     +---------------- 2 ----------------
//     | TypeError: b
//     +------------------------------------
func groupWords(lines []string) string {
	var group, within []string
	var section []string
	end := func() {
		words := exceptionIn(section)
		switch {
		case words == "":
		case len(group) == 0:
			group = append(group, words)
		case !strings.HasSuffix(words, "sub-exception)") && !strings.HasSuffix(words, "sub-exceptions)"):
			within = append(within, words)
		}
		section = nil
	}
	for _, line := range lines[1:] {
		if text := margin.FindString(line); text != "" {
			section = append(section, line[len(text):])
			continue
		}
		// other lines are more of a message, or follow the group
		if border.MatchString(line) {
			end()
		}
	}
	end()
	if len(within) > 0 {
		group = append(group, strings.Join(within, "; "))
	}
	return strings.Join(group, ": ")
}

// exceptionIn returns the last exception among the lines of one member of a group; "" if there is
// none.
func exceptionIn(lines []string) string {
	last := ""
	for i, line := range slices.Backward(lines) {
		if line == "" || line[0] == ' ' {
			continue
		}
		if strings.HasSuffix(line, traceback) {
			break
		}
		// the first line behind the stack: more lines of the message may follow
		if last = line; i > 0 && strings.HasPrefix(lines[i-1], " ") {
			break
		}
	}
	return last
}

// withInterpreter adds which Python has run a script to a failure that may be for want of another
// one: what this one cannot import or read.
func withInterpreter(words, python string) string {
	if python == "" || strings.Contains(words, python) {
		return words
	}
	for _, kind := range []string{"ModuleNotFoundError:", "ImportError:", "SyntaxError:"} {
		if strings.HasPrefix(words, kind) {
			return fmt.Sprintf("%s (Python: %s; to run another, name it, as in: -- /path/to/python3 "+
				"main.py)", words, python)
		}
	}
	return words
}

// brief returns a line shortened and escaped for display.
func brief(line string) string {
	line = logline.Escape(strings.Join(strings.Fields(line), " "))
	if runes := []rune(line); len(runes) > wordsMost {
		return string(runes[:wordsMost]) + "…"
	}
	return line
}
