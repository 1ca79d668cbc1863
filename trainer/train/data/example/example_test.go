package example

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"pgregory.net/rapid"
)

func valueGen() *rapid.Generator[Value] {
	return rapid.Custom(func(t *rapid.T) Value {
		v := Value{Name: rapid.String().Draw(t, "name")}
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 1:
			v.Bytes = rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 0, 5).Draw(t, "bytes")
		case 2:
			v.Floats = rapid.SliceOf(rapid.Float32()).Draw(t, "floats")
		case 3:
			v.Ints = rapid.SliceOf(rapid.Int64()).Draw(t, "ints")
		}
		return v
	})
}

// The features that are read are those that were written.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfNDistinct(valueGen(), 0, 6, func(v Value) string { return v.Name }).Draw(t, "values")
		fs, err := Parse(nil, Append(nil, values...))
		if err != nil {
			t.Fatal(err)
		}
		if len(fs) != len(values) {
			t.Fatalf("%d features, want %d", len(fs), len(values))
		}
		for _, v := range values {
			f, ok := fs.Get(v.Name)
			if !ok || f.Kind != v.kind() || f.Len != len(v.Bytes)+len(v.Floats)+len(v.Ints) {
				t.Fatalf("%q: %+v", v.Name, f)
			}
			if got := f.AppendBytes(nil); !slices.EqualFunc(got, v.Bytes, bytes.Equal) {
				t.Fatalf("%q: bytes %v, want %v", v.Name, got, v.Bytes)
			}
			if got := f.AppendInts(nil); !slices.Equal(got, v.Ints) {
				t.Fatalf("%q: ints %v, want %v", v.Name, got, v.Ints)
			}
			sameBits := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
			if got := f.AppendFloats(nil); !slices.EqualFunc(got, v.Floats, sameBits) {
				t.Fatalf("%q: floats %v, want %v", v.Name, got, v.Floats)
			}
		}
	})
}

// Append writes the bytes that protoc --encode=tensorflow.Example writes, with the entries of its
// map in the given order.
func TestKnownBytes(t *testing.T) {
	want, err := hex.DecodeString("0a3f" +
		"0a110a0178120c120a0a080000803f000000c00a140a0179120f1a0d0a0b03ffffffffffffffffff010a0d0a017a12080a060a0261620a000a050a016e1200")
	if err != nil {
		t.Fatal(err)
	}
	got := Append(nil,
		Value{Name: "x", Floats: []float32{1, -2}},
		Value{Name: "y", Ints: []int64{3, -1}},
		Value{Name: "z", Bytes: [][]byte{[]byte("ab"), nil}},
		Value{Name: "n"})
	if !bytes.Equal(got, want) {
		t.Fatalf("got  %x\nwant %x", got, want)
	}
}

// Lists that are not packed, or packed in part, are read: old writers make them.
func TestUnpacked(t *testing.T) {
	list := protowire.AppendTag(nil, 1, protowire.VarintType)
	list = protowire.AppendVarint(list, 5)
	list = appendHeader(list, 1, 2)
	list = append(list, 6, 7)
	list = protowire.AppendTag(list, 9, protowire.Fixed64Type) // unknown
	list = protowire.AppendFixed64(list, 0)
	fs, err := Parse(nil, wrap(3, list))
	if err != nil {
		t.Fatal(err)
	}
	got := make([]int64, 3)
	if err := fs.Ints("f", got); err != nil || !slices.Equal(got, []int64{5, 6, 7}) {
		t.Errorf("ints %v, %v", got, err)
	}
	list = protowire.AppendTag(nil, 1, protowire.Fixed32Type)
	list = protowire.AppendFixed32(list, math.Float32bits(1.5))
	if fs, err = Parse(fs[:0], wrap(2, list)); err != nil {
		t.Fatal(err)
	}
	x := make([]float32, 1)
	if err := fs.Floats("f", x); err != nil || x[0] != 1.5 {
		t.Errorf("floats %v, %v", x, err)
	}
}

// wrap makes a record of one feature f with the given list.
func wrap(kind protowire.Number, list []byte) []byte {
	bytesField := func(num protowire.Number, b []byte) []byte {
		return append(appendHeader(nil, num, len(b)), b...)
	}
	entry := append(bytesField(1, []byte("f")), bytesField(2, bytesField(kind, list))...)
	return bytesField(1, bytesField(1, entry))
}

func TestLookUpErrors(t *testing.T) {
	fs, err := Parse(nil, Append(nil, Value{Name: "x", Ints: []int64{1, 2}}, Value{Name: "b", Bytes: [][]byte{{7}}}))
	if err != nil {
		t.Fatal(err)
	}
	_, missing := fs.Int("nothing")
	_, many := fs.Int("x")
	_, kind := fs.Bytes("x")
	for _, c := range []struct {
		err  error
		want string
	}{
		{missing, `feature "nothing": not in the record`},
		{many, `feature "x": has 2 values, want 1`},
		{kind, `feature "x": has int64s, want bytes`},
		{fs.Floats("b", nil), `feature "b": has bytes, want floats`},
	} {
		if c.err == nil || c.err.Error() != c.want {
			t.Errorf("error %v, want %s", c.err, c.want)
		}
	}
	if b, err := fs.Bytes("b"); err != nil || !bytes.Equal(b, []byte{7}) {
		t.Errorf("bytes %v, %v", b, err)
	}
	if fs.Kind("b") != Bytes || fs.Kind("nothing") != None {
		t.Error("wrong kinds")
	}
}

func TestParseErrors(t *testing.T) {
	floats := wrap(2, appendHeader(nil, 1, 0))
	for name, record := range map[string][]byte{
		"truncated":           floats[:len(floats)-1],
		"features a number":   {0x08, 0x01},
		"feature a number":    {0x0a, 0x02, 0x08, 0x01},
		"list a number":       {0x0a, 0x06, 0x0a, 0x04, 0x12, 0x02, 0x08, 0x01},
		"floats of 3 bytes":   wrap(2, []byte{0x0a, 3, 0, 0, 0}),
		"floats as varint":    wrap(2, []byte{0x08, 1}),
		"packed int cut off":  wrap(3, []byte{0x0a, 1, 0x80}),
		"two kinds":           {0x0a, 0x08, 0x0a, 0x06, 0x12, 0x04, 0x12, 0, 0x1a, 0},
		"two values":          {0x0a, 0x06, 0x0a, 0x04, 0x12, 0, 0x12, 0},
		"a group never ended": {0x0b},
	} {
		if fs, err := Parse(nil, record); err == nil {
			t.Errorf("%s: no error, %v", name, fs)
		}
	}
}

func TestParseAllocatesNothing(t *testing.T) {
	record := Append(nil, Value{Name: "image", Bytes: [][]byte{make([]byte, 784)}},
		Value{Name: "label", Ints: []int64{3}},
		Value{Name: "x", Floats: make([]float32, 784)})
	fs := make(Features, 0, 4)
	dst := make([]float32, 784)
	allocs := testing.AllocsPerRun(100, func() {
		var err error
		if fs, err = Parse(fs[:0], record); err != nil {
			t.Fatal(err)
		}
		_, err1 := fs.Bytes("image")
		_, err2 := fs.Int("label")
		if err := errors.Join(err1, err2, fs.Floats("x", dst)); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations for a record", allocs)
	}
}

// Any bytes give an error, or features that can be read and written again.
func FuzzParse(f *testing.F) {
	f.Add(Append(nil, Value{Name: "image", Bytes: [][]byte{{1, 2, 3}}}, Value{Name: "label", Ints: []int64{-7, 7}}))
	f.Add(Append(nil, Value{Name: "x", Floats: []float32{1, 2}}, Value{Name: "none"},
		Value{Name: "empty", Ints: []int64{}}))
	f.Add(wrap(3, []byte{0x08, 5, 0x0a, 2, 6, 7}))
	f.Fuzz(func(t *testing.T, record []byte) {
		fs, err := Parse(nil, record)
		if err != nil {
			return
		}
		values := make([]Value, len(fs))
		for i, f := range fs {
			v := Value{Name: string(f.Name), Bytes: f.AppendBytes(nil), Floats: f.AppendFloats(nil),
				Ints: f.AppendInts(nil)}
			if n := len(v.Bytes) + len(v.Floats) + len(v.Ints); n != f.Len {
				t.Fatalf("%d values, Len %d", n, f.Len)
			}
			values[i] = v
		}
		again, err := Parse(nil, Append(nil, values...))
		if err != nil || len(again) != len(fs) {
			t.Fatalf("%d features, %v; want %d", len(again), err, len(fs))
		}
	})
}

func BenchmarkParse(b *testing.B) {
	record := Append(nil, Value{Name: "image", Bytes: [][]byte{make([]byte, 784)}},
		Value{Name: "label", Ints: []int64{3}})
	var fs Features
	b.SetBytes(int64(len(record)))
	for b.Loop() {
		fs, _ = Parse(fs[:0], record)
	}
}
