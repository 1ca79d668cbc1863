package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/elasticdl/elasticdl/test/generated"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// described are the messages of docs/json.md, in its order.
var described = []protoreflect.MessageDescriptor{
	(&wire.JobStatus{}).ProtoReflect().Descriptor(), (&wire.Condition{}).ProtoReflect().Descriptor(),
	(&wire.Incident{}).ProtoReflect().Descriptor(), (&wire.PodStatus{}).ProtoReflect().Descriptor(),
	(&wire.ProcessStatus{}).ProtoReflect().Descriptor(), (&wire.Checkpoint{}).ProtoReflect().Descriptor(),
	(&wire.Saved{}).ProtoReflect().Descriptor(), (&wire.Evaluation{}).ProtoReflect().Descriptor(),
	(&wire.Accounting{}).ProtoReflect().Descriptor(), (&wire.LostTime{}).ProtoReflect().Descriptor(),
	(&wire.SlowWorker{}).ProtoReflect().Descriptor(), (&wire.Cost{}).ProtoReflect().Descriptor(),
}

// The tables of docs/json.md are those of the messages; -update writes them.
func TestJSONPage(t *testing.T) {
	proto, err := os.ReadFile(filepath.Join(repository, "trainer/wire/elasticdl.proto"))
	if err != nil {
		t.Fatal(err)
	}
	comments := commentsOf(string(proto))
	var b strings.Builder
	for _, m := range described {
		name := string(m.Name())
		fmt.Fprintf(&b, "### %s\n\n%s\n\n| field | type | meaning |\n|---|---|---|\n", name, sentence(comments[name]))
		for i := range m.Fields().Len() {
			f := m.Fields().Get(i)
			if message := f.Message(); message != nil && !f.IsMap() && !known(message) {
				t.Errorf("%s.%s: message %s is not in the page", name, f.Name(), message.Name())
			}
			meaning := cmp.Or(comments[name+"."+string(f.Name())], strings.ReplaceAll(string(f.Name()), "_", " "))
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", f.JSONName(), typeOf(f), meaning)
		}
		b.WriteString("\n")
	}
	generated.Tables(t, filepath.Join(repository, "docs/json.md"), b.String(), *update,
		"go test ./cmd/elasticdl/cli -run TestJSONPage -update")
}

// known reports whether the page describes a message.
func known(m protoreflect.MessageDescriptor) bool {
	for _, d := range described {
		if d.FullName() == m.FullName() {
			return true
		}
	}
	return false
}

// typeOf returns the type of a field, as JSON has it.
func typeOf(f protoreflect.FieldDescriptor) string {
	var name string
	switch f.Kind() {
	case protoreflect.MessageKind:
		name = fmt.Sprintf("[%s](#%s)", f.Message().Name(), strings.ToLower(string(f.Message().Name())))
	case protoreflect.StringKind, protoreflect.EnumKind, protoreflect.BytesKind:
		name = "text"
	case protoreflect.BoolKind:
		name = "true or false"
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		name = "number or null"
	default:
		name = "whole number"
	}
	switch {
	case f.IsMap():
		return "numbers by name"
	case f.IsList():
		return "list of " + name
	case f.Kind() == protoreflect.MessageKind:
		return name + " or null"
	}
	return name
}

// sentence begins a comment with a capital letter.
func sentence(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

var (
	messageLine = regexp.MustCompile(`^message (\w+) {`)
	fieldLine   = regexp.MustCompile(`^  (?:repeated )?[\w<>, ]+ (\w+) = \d+`)
)

// commentsOf returns the comments of a .proto file: by message, and by "message.field".
func commentsOf(proto string) map[string]string {
	all := make(map[string]string)
	message, comment := "", ""
	for line := range strings.Lines(proto) {
		line = strings.TrimRight(line, "\n")
		said, isComment := strings.CutPrefix(strings.TrimSpace(line), "//")
		switch {
		case isComment:
			comment = strings.TrimSpace(comment + " " + strings.TrimSpace(said))
			continue
		case messageLine.MatchString(line):
			message = messageLine.FindStringSubmatch(line)[1]
			all[message] = comment
		case fieldLine.MatchString(line):
			_, behind, _ := strings.Cut(line, "; // ")
			if behind == "" {
				_, behind, _ = strings.Cut(line, ";  // ")
			}
			all[message+"."+fieldLine.FindStringSubmatch(line)[1]] = cmp.Or(comment, strings.TrimSpace(behind))
		}
		comment = ""
	}
	return all
}
