package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// hostile returns a status of a job in which every text contains control sequences for a terminal.
func hostile(attack string, state job.State) *wire.JobStatus {
	s := running()
	s.Namespace, s.Checkpoint, s.WorldSize, s.World, s.ModelGeneration, s.EndedUnixMs = "n",
		&wire.Checkpoint{Number: 1, Dir: "d"}, 2, 3, 2, after(time.Minute)
	var fill func(m protoreflect.Message)
	fill = func(m protoreflect.Message) {
		for i := range m.Descriptor().Fields().Len() {
			f := m.Descriptor().Fields().Get(i)
			switch {
			case f.IsMap():
				m.Set(f, protoreflect.ValueOfMap(m.NewField(f).Map()))
				m.Mutable(f).Map().Set(protoreflect.ValueOfString(attack).MapKey(), protoreflect.ValueOfFloat64(1))
			case f.IsList() && f.Message() != nil:
				for i := range m.Get(f).List().Len() {
					fill(m.Get(f).List().Get(i).Message())
				}
			case f.IsList():
			case f.Message() != nil:
				fill(m.Mutable(f).Message())
			case f.Kind() == protoreflect.StringKind:
				m.Set(f, protoreflect.ValueOfString(attack))
			}
		}
	}
	fill(s.ProtoReflect())
	if state != "" { // the state decides what is shown
		s.State = string(state)
	}
	return s
}

// No text from a pod, the cluster or a file can control the terminal that shows it.
func TestViewsAreHarmless(t *testing.T) {
	for _, attack := range []string{"\x1b]0;title\x07", "\x1b[2J", "\u009b2J", "\x1b]52;c;aGk=\x07", "\r\x08"} {
		for _, state := range []job.State{"", job.Running, job.Pending, job.Failed, job.Succeeded, job.Suspended} {
			s := hostile(attack, state)
			now := start.Add(time.Hour)
			views := map[string]string{
				"screen": screen(s, 1000, 1000, now), "progress": progressLine(s, now),
				"news":              strings.Join(news(nil, s), "\n"),
				"news of pods":      strings.Join(podNews(nil, s), "\n"),
				"news of the model": strings.Join(rollbackNews(nil, s), "\n"),
				"summary":           summary(s, "logs"), "verdict": verdict(s), "status": statusText(s, now),
				"list":   listText([]*wire.JobStatus{s}, true, now),
				"rested": rested(s, now),
			}
			for name, text := range views {
				if text != logline.Escape(text) {
					t.Errorf("%s of a job %q: %q", name, state, text)
				}
				if name == "status" && !strings.Contains(text, logline.Escape(attack)) {
					t.Errorf("status says nothing of %q: %q", attack, text)
				}
			}
		}
	}
	var out strings.Builder
	fmt.Fprint(notes{&out}, "note: \x1b[2J\n")
	if got, want := out.String(), "note: \\x1b[2J\n"; got != want {
		t.Errorf("notes: %q, want %q", got, want)
	}
}

// TestJSON checks that numbers are numbers, and all fields exist.
func TestJSON(t *testing.T) {
	s := &wire.JobStatus{
		Name: "a<b", RecordsDone: 1 << 40, RecordsPerSecond: math.NaN(), Loss: 0.1,
		Pods:        []*wire.PodStatus{{Role: wire.Role_PS, Index: 1}},
		Evaluations: []*wire.Evaluation{{Version: 5, Metrics: map[string]float64{"loss": 1e-9, "auc": math.Inf(1)}}},
	}
	var got map[string]any
	if err := json.Unmarshal(asJSON(s), &got); err != nil {
		t.Fatal(err)
	}
	pod := got["pods"].([]any)[0].(map[string]any)
	metrics := got["evaluations"].([]any)[0].(map[string]any)["metrics"]
	if got["name"] != "a<b" || got["recordsDone"] != float64(1<<40) || got["recordsPerSecond"] != nil ||
		got["loss"] != 0.1 || got["checkpoint"] != nil || got["epoch"] != 0.0 ||
		pod["role"] != "PS" || pod["index"] != 1.0 || fmt.Sprint(metrics) != "map[auc:<nil> loss:1e-09]" {
		t.Errorf("%s", asJSON(s))
	}
}

// FuzzStatus checks that every state can be shown by all views, and none controls the terminal.
func FuzzStatus(f *testing.F) {
	for _, s := range []*wire.JobStatus{running(), hostile("\x1b[2J", job.Failed), {}} {
		text, err := protojson.Marshal(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add(`{"evaluations":[null],"pods":[null]}`)
	f.Add(
		`{"recordsDone":"-9223372036854775808","recordsTotal":"1","startedUnixMs":"9223372036854775807","evaluated":"-1"}`)
	f.Add(
		`{"recordsDone":"5","recordsTotal":"2","recordsPerSecond":"NaN","evaluated":"99","evaluations":[{}],"workers":-1}`)
	f.Fuzz(func(t *testing.T, text string) {
		s := new(wire.JobStatus)
		if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), s) != nil {
			return
		}
		// The JSON for programs decodes to the same status, except for numbers that JSON does not
		// have.
		again := new(wire.JobStatus)
		if err := protojson.Unmarshal(asJSON(s), again); err != nil {
			t.Errorf("%s: %v", asJSON(s), err)
		} else if !proto.Equal(s, again) && !bytes.Contains(asJSON(s), []byte("null")) {
			t.Errorf("%v\n%s", s, asJSON(s))
		}
		now := start.Add(time.Hour)
		for _, view := range []string{screen(s, 80, 24, now), strings.Join(news(nil, s), "\n"),
			summary(s, "logs"), verdict(s), statusText(s, now),
			listText([]*wire.JobStatus{s}, true, now), rested(s, now)} {
			if view != logline.Escape(view) {
				t.Errorf("%q", view)
			}
		}
	})
}
