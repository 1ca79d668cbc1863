package program

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Exit describes the end of one process.
type Exit struct {
	Local int
	Rank  int
	Pid   int
	// Code is the exit code, or the negative number of the signal that ended the process, as in
	// Python.
	Code int
	// Signal is the number of the signal that ended the process, 0 if none did.
	Signal int
	// At is the time at which the agent saw the end.
	At time.Time
	// Stopped reports that the agent had asked the process to end before it ended, or wrote its
	// error file. One that had failed before counts as ended by its failure, even if the signal of
	// the agent has cut its end short: with exit code 1.
	Stopped bool
	// Forked reports that the process may have crashed because it was forked: no other is forked
	// from then on.
	Forked bool
	// Failure is the content of the process's error file, nil if it wrote none.
	Failure *Failure
	// Words is the end of the process's standard error, in one line of at most 240 characters, if
	// the process failed with an exit code and wrote no error file; "" if it could not be read.
	Words string
	// Output is a digest of what a process wrote that has not ended with 0, "" if that is nothing.
	// It is the same for two processes that wrote the same, apart from dates, times, addresses and
	// their own pids.
	Output string
}

// Failure is the content of an error file, which torch's @record writes for an exception.
type Failure struct {
	// File is the path of the error file.
	File string
	// Message is the exception's type and text.
	Message string
	// Traceback is Python's, "" if the file has none.
	Traceback string
	// Time is the second of the exception, zero if the file has none.
	Time time.Time
	// Written is the time at which the process wrote the file.
	Written time.Time

	content map[string]json.RawMessage
}

// maxErrorFile limits the part of an error file that is read: a traceback is small.
const maxErrorFile = 4 << 20

// readFailure returns what is in an error file: nil if there is none, and what is wrong with it as
// its message if it cannot be parsed.
func readFailure(path string) *Failure {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxErrorFile+1))
	if err != nil || len(text) == 0 {
		return nil
	}
	f, err := ParseFailure(text)
	if err != nil {
		f = &Failure{Message: fmt.Sprintf("the error file cannot be read: %v", err)}
	}
	f.File = path
	if info, err := file.Stat(); err == nil {
		f.Written = info.ModTime()
	}
	return f
}

// ParseFailure parses an error file. It knows both forms: a message with a traceback and a time
// inside, as torch's @record writes it, and a plain text with a time.
func ParseFailure(text []byte) (*Failure, error) {
	if len(text) > maxErrorFile {
		return nil, fmt.Errorf("more than %d bytes", maxErrorFile)
	}
	f := &Failure{}
	if err := json.Unmarshal(text, &f.content); err != nil {
		return nil, errors.New("not a JSON object")
	}
	message, ok := f.content["message"]
	if !ok {
		return nil, errors.New(`no "message"`)
	}
	if json.Unmarshal(message, &f.Message) == nil {
		f.Time = parseSecond(f.content["timestamp"])
		return f, nil
	}
	var record struct {
		Message   json.RawMessage `json:"message"`
		ExtraInfo struct {
			Traceback json.RawMessage `json:"py_callstack"`
			Timestamp json.RawMessage `json:"timestamp"`
		} `json:"extraInfo"`
	}
	if err := json.Unmarshal(message, &record); err != nil {
		return nil, errors.New(`"message" is neither a text nor in the form of torch's @record`)
	}
	json.Unmarshal(record.Message, &f.Message) // what is no text stays empty
	json.Unmarshal(record.ExtraInfo.Traceback, &f.Traceback)
	f.Time = parseSecond(record.ExtraInfo.Timestamp)
	return f, nil
}

// parseSecond reads a Unix time, a number or a text that is one; zero if it is neither.
func parseSecond(raw json.RawMessage) time.Time {
	var text string
	if json.Unmarshal(raw, &text) != nil {
		text = string(raw)
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || seconds < 1 || seconds > math.MaxInt32*1000.0 {
		return time.Time{}
	}
	return time.Unix(int64(seconds), 0)
}

// ErrorFile returns the text of an error file about the end of a process, which torchrun's agent
// writes to its own TORCHELASTIC_ERROR_FILE: that of the process, with the exit code as
// message.errorCode, or if it wrote none, one in the form of torch's @record with what ended it. A
// message that is plain text has no place for the code and stays unchanged.
func (e Exit) ErrorFile() []byte {
	content := make(map[string]json.RawMessage)
	if e.Failure != nil {
		maps.Copy(content, e.Failure.content)
	}
	var message map[string]json.RawMessage
	switch {
	case len(content) == 0:
		at := map[string]string{"timestamp": strconv.FormatInt(e.Second(), 10)}
		message = map[string]json.RawMessage{"message": encoded(e.Message()), "extraInfo": encoded(at)}
	case json.Unmarshal(content["message"], &message) != nil:
		return encoded(content)
	}
	message["errorCode"] = encoded(e.Code)
	content["message"] = encoded(message)
	return encoded(content)
}

// encoded returns a value as JSON, in which signs of HTML stay unchanged.
func encoded(v any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(v) != nil {
		// cannot happen: texts, numbers, and what was parsed
		return nil
	}
	return bytes.TrimSpace(out.Bytes())
}

// Failed reports whether the process ended otherwise than with exit code 0.
func (e Exit) Failed() bool { return e.Code != 0 }

// Message returns in a line what ended the process, as torchrun does.
func (e Exit) Message() string {
	switch {
	case e.Failure != nil && e.Failure.Message != "":
		return e.Failure.Message
	case e.Signal != 0:
		return fmt.Sprintf("Signal %d (%s) received by PID %d", e.Signal,
			cmp.Or(unix.SignalName(syscall.Signal(e.Signal)), "unknown"), e.Pid)
	case e.Words != "":
		return fmt.Sprintf("%s (exit code %d)", e.Words, e.Code)
	}
	return fmt.Sprintf("exit code %d", e.Code)
}

// Second returns the Unix time of the failure in seconds: the error file's, or when the agent saw
// the end.
func (e Exit) Second() int64 {
	if e.Failure != nil && !e.Failure.Time.IsZero() {
		return e.Failure.Time.Unix()
	}
	return e.At.Unix()
}

// Report returns the block that torchrun ends with when a program fails: all failures, and last the
// root cause, which has the pid root. Processes that the agent had asked to end are left out,
// unless the root cause is one of them.
func Report(name, host string, exits []Exit, root int) string {
	stopped := slices.ContainsFunc(exits, func(e Exit) bool { return e.Pid == root && e.Stopped })
	title := name + " FAILED"
	width := len(title)
	var others []string
	index, rootText := 0, ""
	for _, e := range slices.SortedFunc(slices.Values(exits), func(a, b Exit) int {
		return cmp.Compare(a.Rank, b.Rank)
	}) {
		if !e.Failed() || e.Stopped && !stopped {
			continue
		}
		text := e.describe(index, host)
		index++
		for line := range strings.SplitSeq(text, "\n") {
			width = max(width, len(line))
		}
		if e.Pid == root {
			rootText = text
		} else {
			others = append(others, text)
		}
	}
	if len(others) == 0 {
		others = []string{"  <NO_OTHER_FAILURES>"}
	}
	width = min(width, 60)
	border, section := strings.Repeat("=", width), strings.Repeat("-", width)
	return strings.Join([]string{
		border, title, section, "Failures:", strings.Join(others, "\n"), section,
		"Root Cause (first observed failure):", rootText, border, "",
	}, "\n")
}

func (e Exit) describe(index int, host string) string {
	file, trace := "<N/A>", e.Message()
	if e.Failure != nil {
		file, trace = e.Failure.File, cmp.Or(e.Failure.Traceback, e.Failure.Message, "<N/A>")
	}
	return fmt.Sprintf("[%d]:\n  time      : %s\n  host      : %s\n  rank      : %d (local_rank: "+
		"%d)\n  exitcode  : %d (pid: %d)\n  error_file: %s\n  traceback : %s",
		index, time.Unix(e.Second(), 0).Format("2006-01-02_15:04:05"), host, e.Rank, e.Local, e.Code, e.Pid, file,
		strings.ReplaceAll(trace, "\n", "\n  "))
}
