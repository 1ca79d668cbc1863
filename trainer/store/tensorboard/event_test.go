package tensorboard

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

// The same events as TensorBoard's own RecordWriter has written them.
func TestEncodeAsTensorBoardDoes(t *testing.T) {
	for _, tt := range []struct {
		event Event
		want  string
	}{
		{Event{WallTime: 1700000000.5, FileVersion: FileVersion}, "1800000000000000a37f4b22" +
			"0900002040fc54d9411a0d627261696e2e4576656e743a32" + "2b353110"},
		{Event{WallTime: 1700000001, Step: 7, Start: true}, "0f000000000000006d532b09" +
			"0900004040fc54d94110073a020801" + "0298d346"},
		{Event{WallTime: 1700000002.25, Step: 300, Scalars: []Scalar{{"train/loss", 0.5}, {"eval/accuracy", 0}}},
			"3700000000000000e7e8ca59" + "0900009040fc54d94110ac022a290a110a0a747261696e2f6c6f7373150000003f" +
				"0a140a0d6576616c2f61636375726163791500000000" + "f81e245d"},
	} {
		if got := hex.EncodeToString(Encode(nil, tt.event)); got != tt.want {
			t.Errorf("%+v:\n%s, want\n%s", tt.event, got, tt.want)
		}
	}
	// the check value of CRC-32C, masked
	if got := sum([]byte("123456789")); got != (0xe3069283>>15|(0xe3069283<<17)&0xffffffff)+0xa282ead8 {
		t.Errorf("%x", got)
	}
}

func anEvent(t *rapid.T) Event {
	e := Event{WallTime: rapid.Float64().Draw(t, "time"), Step: rapid.Int64().Draw(t, "step"),
		FileVersion: rapid.String().Draw(t, "version"), Start: rapid.Bool().Draw(t, "start")}
	for range rapid.IntRange(0, 3).Draw(t, "scalars") {
		e.Scalars = append(e.Scalars, Scalar{rapid.String().Draw(t, "tag"), rapid.Float32().Draw(t, "value")})
	}
	return e
}

// Encoded events are decoded unchanged, and a file that was cut off shows the whole events before
// the cut.
func TestDecodeWhatIsEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var file []byte
		var want []Event
		var ends []int
		for range rapid.IntRange(0, 4).Draw(t, "events") {
			e := anEvent(t)
			file = Encode(file, e)
			want, ends = append(want, e), append(ends, len(file))
		}
		got, size, err := Decode(file)
		if err != nil || size != len(file) || !reflect.DeepEqual(got, want) {
			t.Fatalf("%+v, %d, %v, want %+v", got, size, err, want)
		}
		at := rapid.IntRange(0, len(file)).Draw(t, "cut")
		whole := 0
		for whole < len(ends) && ends[whole] <= at {
			whole++
		}
		got, size, err = Decode(file[:at])
		if len(got) != whole || (err != nil) != (size != at) {
			t.Fatalf("cut at %d: %d events of %d bytes, %v, want %d events", at, len(got), size, err, whole)
		}
	})
}

// No damaged byte is taken for the value of a point.
func TestDecodeFindsDamage(t *testing.T) {
	file := Encode(nil, Event{WallTime: 1, Step: 2, Scalars: []Scalar{{"train/loss", 0.5}}})
	for i := range file {
		damaged := bytes.Clone(file)
		damaged[i] ^= 4
		if got, size, err := Decode(damaged); !errors.Is(err, errDamaged) || len(got) > 0 || size > 0 {
			t.Errorf("byte %d: %+v, %d, %v", i, got, size, err)
		}
	}
	if got, _, err := Decode(Encode(nil, Event{Scalars: []Scalar{{"x", float32(math.NaN())}}})); err != nil ||
		!math.IsNaN(float64(got[0].Scalars[0].Value)) {
		t.Errorf("%+v, %v", got, err)
	}
}

func FuzzDecode(f *testing.F) {
	file := Encode(nil, Event{WallTime: 1, FileVersion: FileVersion})
	file = Encode(file, Event{WallTime: 2, Step: 7, Start: true})
	file = Encode(file, Event{WallTime: 3, Step: 8, Scalars: []Scalar{{"train/loss", 0.5}, {"", 0}}})
	f.Add(file)
	f.Add(file[:len(file)-1])
	f.Fuzz(func(t *testing.T, file []byte) {
		events, size, err := Decode(file)
		if size > len(file) || (err == nil) != (size == len(file)) {
			t.Fatalf("%d of %d bytes, %v", size, len(file), err)
		}
		PastOf(events)
	})
}

// FuzzMessage decodes messages whose checksums are right.
func FuzzMessage(f *testing.F) {
	f.Add(encode(Event{WallTime: 3, Step: 8, Start: true, Scalars: []Scalar{{"train/loss", 0.5}}}))
	f.Add([]byte{0x2a, 2, 0x0a, 0})
	f.Fuzz(func(t *testing.T, message []byte) {
		e, err := decode(message)
		if err != nil {
			return
		}
		again, err := decode(encode(e))
		if err != nil || !bytes.Equal(encode(again), encode(e)) {
			t.Fatalf("%+v, then %+v: %v", e, again, err)
		}
	})
}
