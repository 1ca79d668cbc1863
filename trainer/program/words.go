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
	// wordsKept is how many bytes of the end of a standard error are kept.
	wordsKept = 16 << 10
	// wordsMost is how many characters of it are reported at most.
	wordsMost = 240
	// wordsLimit is how long the last output of an ended process may take to arrive: a process that it has started may hold the pipe.
	wordsLimit = 100 * time.Millisecond
)

// words keeps the end of what a process writes to its standard error.
type words struct {
	file  string        // file with the standard error; "": it is copied to this buffer
	ended chan struct{} // closed when nothing more comes

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

func (w *words) close() { close(w.ended) }

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

// traceback is the first line of a traceback of Python.
const traceback = "Traceback (most recent call last):"

// lastWords returns in one line what a standard error says of a failure: the exception of Python's last traceback, otherwise the last line
// that is not empty. Control characters are escaped.
func lastWords(text string) string {
	text = ranked.ReplaceAllString(colour.ReplaceAllString(text, ""), "")
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.TrimSpace(line) == "" })
	last := ""
	for i, line := range slices.Backward(lines) {
		if last == "" {
			last = line
		}
		if strings.TrimSpace(line) == traceback { // what follows the exception is said at the end of the interpreter
			stack := slices.IndexFunc(lines[i+1:], func(line string) bool { return line[0] != ' ' })
			if stack >= 0 {
				last = lines[i+1+stack]
			}
			break
		}
	}
	return brief(last)
}

// withInterpreter adds which Python has run a script to a failure that may be for want of another one: what this one cannot import or read.
func withInterpreter(words, python string) string {
	if python == "" || strings.Contains(words, python) {
		return words
	}
	for _, kind := range []string{"ModuleNotFoundError:", "ImportError:", "SyntaxError:"} {
		if strings.HasPrefix(words, kind) {
			return fmt.Sprintf("%s (Python: %s; to run another, name it, as in: -- /path/to/python3 main.py)", words, python)
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
