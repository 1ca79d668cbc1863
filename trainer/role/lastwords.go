package role

import (
	"io"
	"os"
	"strings"
)

// terminationLog is where a container says in a line or two why it failed.
const terminationLog = "/dev/termination-log"

// LastWords has `kubectl describe` show why this process, the main one of a container, fails; nil is no failure. What
// cannot be told is not: the log says it, too.
func LastWords(err error) { lastWords(terminationLog, err) }

func lastWords(path string, err error) {
	if err == nil {
		return
	}
	file, openErr := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0) // never made where there is no kubelet to read it
	if openErr != nil {
		return
	}
	defer file.Close()
	const most = 4096 // is read
	text := err.Error()
	io.WriteString(file, text[:min(len(text), most)])
}

// Brief returns a text on one line, of bearable length: it may be a whole log, and goes into messages and tables.
func Brief(text string) string {
	const most = 240
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
