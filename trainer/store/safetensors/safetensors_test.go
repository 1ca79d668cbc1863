package safetensors

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/elasticdl/elasticdl/trainer/elastic/param"
)

func TestWriteReadIsIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var layout param.Layout
		trainable := rapid.IntRange(0, 5).Draw(t, "trainable")
		for i := range trainable + rapid.IntRange(0, 3).Draw(t, "state") {
			shape := rapid.SliceOfN(rapid.IntRange(1, 7), 0, 4).Draw(t, "shape")
			layout = append(layout, param.Variable{Name: string(rune('a' + i)), Shape: shape, Trainable: i < trainable})
		}
		values := make([]float32, layout.Len())
		for i := range values {
			values[i] = rand.Float32()
		}
		var file bytes.Buffer
		if err := Write(&file, layout, values, map[string]string{"job": "test"}); err != nil {
			t.Fatal(err)
		}
		gotLayout, gotValues, metadata, err := Read(bytes.NewReader(file.Bytes()), int64(file.Len()))
		if err != nil {
			t.Fatal(err)
		}
		if err := layout.Match(gotLayout); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(values, gotValues) {
			t.Fatal("other values came back")
		}
		if want := map[string]string{"job": "test", "format": "pt"}; !reflect.DeepEqual(metadata, want) {
			t.Fatalf("metadata %v", metadata)
		}
	})
}

func file(header string, payload int) []byte {
	data := make([]byte, 8, 8+len(header)+payload)
	data[0], data[1] = byte(len(header)), byte(len(header)>>8)
	return append(append(data, header...), make([]byte, payload)...)
}

func TestReadRefuses(t *testing.T) {
	for _, test := range []struct {
		name, want string
		file       []byte
	}{
		{"empty", "length of the header", nil},
		{"long header", "a header of 65535 bytes", []byte{255, 255, 0, 0, 0, 0, 0, 0, '{'}},
		{"no JSON", "header", file("{", 0)},
		{"other type", `tensor "a" is "F64"`, file(`{"a":{"dtype":"F64","shape":[1],"data_offsets":[0,8]}}`, 8)},
		{"gap", "lies at [4 8], expected [0 4]", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}}`, 8)},
		{"short", "shape [3]", file(`{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,12]}}`, 8)},
		{"rest", "take 4 bytes, the file holds 8", file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 8)},
		{"overflow", "shape", file(`{"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}}`, 8)},
	} {
		_, _, _, err := Read(bytes.NewReader(test.file), int64(len(test.file)))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v does not say %q", test.name, err, test.want)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(file(`{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}`, 4))
	f.Add(file(`{"__metadata__":{"state_variables":"[\"a\"]"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}`, 4))
	f.Fuzz(func(t *testing.T, data []byte) {
		layout, values, _, err := Read(bytes.NewReader(data), int64(len(data)))
		if err == nil && layout.Len() != len(values) {
			t.Fatalf("%d values for a layout of %d", len(values), layout.Len())
		}
	})
}
