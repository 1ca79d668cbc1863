package role

import (
	"io"
	"os"
	"strings"
)

// terminationLog is the file in which a container leaves a short reason of its failure.
const terminationLog = "/dev/termination-log"

// LastWords writes err to the termination log, so that `kubectl describe` shows why this process,
// the main one of a container, failed. It does nothing if err is nil. It ignores its own failures,
// because the log has the error, too.
func LastWords(err error) { lastWords(terminationLog, err) }

func lastWords(path string, err error) {
	if err == nil {
		return
	}
	// not created: without the file there is no kubelet that reads it
	file, openErr := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
	if openErr != nil {
		return
	}
	defer file.Close()
	const most = 4096 // bytes that the kubelet reads
	text := err.Error()
	io.WriteString(file, text[:min(len(text), most)])
}

// Brief returns text, which may be a whole log, as one line of at most 240 characters for messages
// and tables.
func Brief(text string) string {
	const most = 240
	text = strings.Join(strings.Fields(text), " ")
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most]) + "…"
	}
	return text
}
