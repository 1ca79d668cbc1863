package tensorboard

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/elasticdl/elasticdl/test/tensorboard"
	"github.com/elasticdl/elasticdl/test/until"
)

// The run of a job that was rolled back, whose master was replaced, and that was resumed: real
// TensorBoard shows the curves of the model that was kept, by each of its readers, also of a file
// that ends within an event and of one that grows while it is served.
func TestRealTensorBoard(t *testing.T) {
	dir := t.TempDir()
	run := filepath.Join(dir, "test-mnist")
	master := func(session Session, do func(*Recorder, func(version int64, loss float32))) {
		r := Start(Config{Open: func() (Place, error) { return Directory(run), nil }, Session: session, Host: "host"})
		do(r, func(version int64, loss float32) {
			s, _ := training(0, version, loss)
			r.Status(s)
		})
		r.End(t.Context())
	}
	master(First, func(r *Recorder, at func(int64, float32)) {
		r.Fact(Evaluation{100, map[string]float64{"accuracy": 0.5}})
		at(100, 1)
	})
	master(Successor, func(r *Recorder, at func(int64, float32)) { at(200, 0.875) })
	master(Successor, func(r *Recorder, at func(int64, float32)) {
		r.Fact(Evaluation{300, map[string]float64{"accuracy": 0.625}})
		r.Fact(Rollback{Version: 150, ModelGeneration: 1})
		at(180, 0.75)
	})
	f, err := Directory(run).create(Name(files(t, run), begin, "killed"))
	if err != nil {
		t.Fatal(err)
	}
	half := Encode(nil, Event{Step: 190, Scalars: []Scalar{{"train/loss", 77}}})
	f.add(append(Encode(nil, Event{FileVersion: FileVersion}), half[:len(half)/2]...))
	master(Continued, func(r *Recorder, at func(int64, float32)) {
		r.Fact(Rollback{Version: 180})
		at(220, 0.5)
	})

	want := []tensorboard.Point{{Step: 100, Value: 1}, {Step: 180, Value: 0.75}, {Step: 220, Value: 0.5}}
	accuracy := []tensorboard.Point{{Step: 100, Value: 0.5}}
	all := tensorboard.Read(t, run)
	if got := all["train/loss"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the loss is shown as %v, want %v", got, want)
	}
	if got := all["eval/accuracy"]; !reflect.DeepEqual(got, accuracy) {
		t.Errorf("the accuracy is shown as %v, want %v", got, accuracy)
	}
	for _, fast := range []bool{false, true} {
		t.Run(fmt.Sprintf("fast=%v", fast), func(t *testing.T) {
			server := tensorboard.Serve(t, dir, fast)
			shows := func(want []tensorboard.Point) {
				t.Helper()
				until.Nil(t, "the curve", func() error {
					got, err := server.Curve("test-mnist", "train/loss")
					if err == nil && !reflect.DeepEqual(got, want) {
						err = fmt.Errorf("the loss is shown as %v, want %v", got, want)
					}
					return err
				})
			}
			shows(want)
			next := want[len(want)-1].Step + 10
			master(Successor, func(r *Recorder, at func(int64, float32)) { at(next, 0.25) })
			want = append(want, tensorboard.Point{Step: next, Value: 0.25})
			shows(want)
		})
	}
}
