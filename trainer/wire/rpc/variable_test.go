package rpc

import (
	"math"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// FuzzLayout checks that a valid layout of any message has an allowed size, and is equal to itself.
func FuzzLayout(f *testing.F) {
	for _, variables := range [][]*wire.Variable{
		{{Name: "w", Shape: []int64{784, 10}, Trainable: true}, {Name: "mean", Shape: []int64{10}, Momentum: 0.99}},
		{{Name: "scalar"}},
		{{Name: "overflows", Shape: []int64{1 << 40, 1 << 40}}},
		{{Name: "no number", Shape: []int64{math.MaxInt64, math.MaxInt64, 0}}, {Name: "huge", Shape: []int64{1 << 62}}},
		{{Name: "below zero", Shape: []int64{-4, -5}}},
		{{Name: "momentum", Momentum: math.NaN()}},
		{nil},
	} {
		text, err := proto.Marshal(&wire.DeclareRequest{Variables: variables})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		req := new(wire.DeclareRequest)
		if proto.Unmarshal(text, req) != nil {
			return
		}
		layout, err := Layout(req.Variables)
		if err != nil || layout.Validate() != nil {
			return
		}
		if n := layout.Len(); n < len(layout) || n > maxElements {
			t.Errorf("%v: %d elements", layout, n)
		}
		if n := layout.Trainable(); n < 0 || n > layout.Len() {
			t.Errorf("%v: %d trainable elements", layout, n)
		}
		if err := layout.Match(layout); err != nil {
			t.Error(err)
		}
	})
}
