package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// This file formats numbers, times and lines for the views.

// short formats a duration as kubectl does an age: 35s, 2m3s, 5m, 3h20m, 4d.
func short(d time.Duration) string {
	d = d.Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h >= 48:
		return fmt.Sprintf("%dd", h/24)
	case h > 0 && m > 0:
		return fmt.Sprintf("%dh%dm", h, m)
	case h > 0:
		return fmt.Sprintf("%dh", h)
	case m >= 10 || m > 0 && s == 0:
		return fmt.Sprintf("%dm", m)
	case m > 0:
		return fmt.Sprintf("%dm%ds", m, s)
	}
	return fmt.Sprintf("%ds", s)
}

// oneLine removes line breaks and tabs from a reason, and escapes control sequences.
func oneLine(reason string) string {
	return strings.NewReplacer("\n", "; ", "\t", " ").Replace(logline.Escape(reason))
}

// plain returns a copy of a status in which the control sequences of all texts are escaped: pods,
// the cluster and files have written them.
func plain(s *wire.JobStatus) *wire.JobStatus {
	if s == nil {
		return nil
	}
	s = proto.Clone(s).(*wire.JobStatus)
	escape(s.ProtoReflect())
	return s
}

// escape escapes all texts of a message, and the keys of its maps, whose values are numbers.
func escape(m protoreflect.Message) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			from, to := v.Map(), m.NewField(f).Map()
			from.Range(func(key protoreflect.MapKey, e protoreflect.Value) bool {
				to.Set(protoreflect.ValueOfString(logline.Escape(key.String())).MapKey(), e)
				return true
			})
			m.Set(f, protoreflect.ValueOfMap(to))
		case f.IsList():
			for i := range v.List().Len() {
				if e := v.List().Get(i); f.Message() != nil {
					escape(e.Message())
				} else if f.Kind() == protoreflect.StringKind {
					v.List().Set(i, protoreflect.ValueOfString(logline.Escape(e.String())))
				}
			}
		case f.Message() != nil:
			escape(v.Message())
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(logline.Escape(v.String())))
		}
		return true
	})
}

// notes writes a command's notes, in which texts of pods and clusters are escaped.
type notes struct{ out io.Writer }

func (n notes) Write(text []byte) (int, error) {
	if _, err := io.WriteString(n.out, logline.Escape(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// forLogs returns the writer for logs. On a terminal it escapes control sequences except colours.
func forLogs(out io.Writer) io.Writer {
	if isTerminal(out) {
		return logline.Terminal{Out: out}
	}
	return out
}

func isTerminal(out io.Writer) bool {
	f, ok := out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// count returns a number with its noun: "1 pod", "3 pods".
func count(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return logline.Thousands(n) + " " + noun
}

// cut shortens a line to at most width characters.
func cut(line string, width int) string {
	if utf8.RuneCountInString(line) <= width {
		return line
	}
	return string([]rune(line)[:max(0, width)])
}
