package program

import (
	"strings"
	"testing"
	"time"
)

const recorded = `{"message": {"message": "ValueError: bad", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"x.py\"\nValueError: bad\n", "timestamp": "1700000000"}}}`

func TestParseFailure(t *testing.T) {
	at := time.Unix(1700000000, 0)
	for text, want := range map[string]Failure{
		recorded: {Message: "ValueError: bad",
			Traceback: "Traceback (most recent call last):\n  File \"x.py\"\nValueError: bad\n", Time: at},
		`{"message": "plain", "timestamp": 1700000000}`:            {Message: "plain", Time: at},
		`{"message": "plain", "timestamp": "1700000000"}`:          {Message: "plain", Time: at},
		`{"message": "plain"}`:                                     {Message: "plain"},
		`{"message": {"message": "m"}}`:                            {Message: "m"},
		`{"message": {"message": "m", "extraInfo": null}}`:         {Message: "m"},
		`{"message": {"extraInfo": {"timestamp": 1700000000.75}}}`: {Time: at},
		`{"message": "m", "timestamp": "soon"}`:                    {Message: "m"},
	} {
		f, err := ParseFailure([]byte(text))
		if err != nil || f.Message != want.Message || f.Traceback != want.Traceback || !f.Time.Equal(want.Time) {
			t.Errorf("%s: %+v, %v", text, f, err)
		}
	}
	for _, text := range []string{"", "[]", "null", `{"error": 1}`, `{"message": 3}`,
		`{"message": ["x"]}`, recorded[:40]} {
		if _, err := ParseFailure([]byte(text)); err == nil {
			t.Errorf("%q was parsed", text)
		}
	}
}

func FuzzParseFailure(f *testing.F) {
	f.Add([]byte(recorded))
	f.Add([]byte(`{"message": "plain", "timestamp": 1}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		failure, err := ParseFailure(text)
		if err != nil {
			return
		}
		again, err := ParseFailure(Exit{Code: 7, Failure: failure}.ErrorFile())
		if err != nil || again.Message != failure.Message || !again.Time.Equal(failure.Time) {
			t.Fatalf("%q: %+v, with a code %+v, %v", text, failure, again, err)
		}
		Report("x.py", "h", []Exit{{Code: 1, Failure: failure}}, 0)
	})
}

// The agent's own error file has what the process's has, and the exit code, as torchrun's; without
// one it has what ended the process.
func TestErrorFile(t *testing.T) {
	own := func(text string) *Failure {
		f, err := ParseFailure([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	at := time.Unix(1700000001, 5)
	for name, c := range map[string]struct {
		exit Exit
		want string
	}{
		"of @record": {Exit{Code: -9,
			Failure: own(
				`{"message": {"message": "a<b", "extraInfo": {"timestamp": "1", "x": 1}}, "more": true}`)},
			`{"message":{"errorCode":-9,"extraInfo":{"timestamp":"1","x":1},"message":"a<b"},"more":true}`},
		"plain": {Exit{Code: 1, Failure: own(`{"message": "text", "timestamp": 2}`)},
			`{"message":"text","timestamp":2}`},
		"none": {Exit{Code: 7, At: at, Words: "ValueError: bad"},
			`{"message":{"errorCode":7,"extraInfo":{"timestamp":"1700000001"},"message":"ValueError: bad (exit code 7)"}}`},
		"by a signal": {Exit{Code: -9, Signal: 9, Pid: 5, At: at},
			`{"message":{"errorCode":-9,"extraInfo":{"timestamp":"1700000001"},"message":"Signal 9 (SIGKILL) received by PID 5"}}`},
		"unreadable": {Exit{Code: 1, At: at, Failure: &Failure{Message: "the error file cannot be " +
			"read: x"}},
			`{"message":{"errorCode":1,"extraInfo":{"timestamp":"1700000001"},"message":"the error file cannot be read: x"}}`},
	} {
		if got := c.exit.ErrorFile(); string(got) != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

// The time of a failure is that of its error file, if it has one with a time.
func TestSecond(t *testing.T) {
	seen := time.Unix(1700000009, 900)
	for name, c := range map[string]struct {
		failure *Failure
		want    int64
	}{
		"seen":                  {nil, 1700000009},
		"a file":                {&Failure{Time: time.Unix(1700000001, 0)}, 1700000001},
		"a file without a time": {&Failure{}, 1700000009},
	} {
		if got := (Exit{Code: 1, At: seen, Failure: c.failure}).Second(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
}

func TestReport(t *testing.T) {
	at := time.Date(2026, 11, 22, 23, 25, 9, 0, time.Local)
	// a later time
	f, _ := ParseFailure([]byte(strings.ReplaceAll(recorded, "1700000000", "4000000000")))
	f.File = "/logs/attempt_0/0/error.json"
	got := Report("main.py", "node", []Exit{
		{Rank: 5, Local: 1, Pid: 77, Code: -9, Signal: 9, At: at},
		{Rank: 4, Local: 0, Pid: 76, Code: 1, At: at.Add(time.Second), Failure: f},
		{Rank: 6, Local: 2, Pid: 78, Code: -15, Signal: 15, At: at, Stopped: true},
		{Rank: 7, Local: 3, Pid: 79, At: at},
	}, 77)
	want := `============================================================
main.py FAILED
------------------------------------------------------------
Failures:
[0]:
  time      : ` + time.Unix(4000000000, 0).Format("2006-01-02_15:04:05") + `
  host      : node
  rank      : 4 (local_rank: 0)
  exitcode  : 1 (pid: 76)
  error_file: /logs/attempt_0/0/error.json
  traceback : Traceback (most recent call last):
    File "x.py"
  ValueError: bad
  
------------------------------------------------------------
Root Cause (first observed failure):
[1]:
  time      : 2026-11-22_23:25:09
  host      : node
  rank      : 5 (local_rank: 1)
  exitcode  : -9 (pid: 77)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 77
============================================================
`
	// The width of the report is that of its longest line, at most 60.
	width := len("  traceback : Signal 9 (SIGKILL) received by PID 77")
	want = strings.ReplaceAll(strings.ReplaceAll(want, strings.Repeat("=", 60),
		strings.Repeat("=", width)), strings.Repeat("-", 60), strings.Repeat("-", width))
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A failure without an error file is reported with the last error message that the process wrote to
// standard error.
func TestReportWithoutErrorFile(t *testing.T) {
	got := Report("main.py", "node", []Exit{{Pid: 77, Code: 1, Words: "ValueError: no label"}}, 77)
	if want := "\n  error_file: <N/A>\n  traceback : ValueError: no label (exit code 1)\n"; !strings.Contains(got, want) {
		t.Errorf("got\n%s\nwant %s", got, want)
	}
}
