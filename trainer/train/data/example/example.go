// Package example reads and writes tf.train.Example, the record format of
// TensorFlow and ElasticDL: named features, each a list of byte strings, of
// float32 or of int64.
//
//	message Example   { Features features = 1; }
//	message Features  { map<string, Feature> feature = 1; }
//	message Feature   { oneof kind { BytesList bytes_list = 1; FloatList float_list = 2;
//	                                 Int64List int64_list = 3; } }
//	message BytesList { repeated bytes value = 1; }
//
// FloatList is of repeated float, Int64List of repeated int64, packed or not.
//
// Parse checks the whole record. Reading a feature afterwards fails only if it is
// missing, or if its kind or length is not the expected one.
package example

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Kind is the type of the values of a feature.
type Kind int

// The numbers are those of the fields of a Feature message.
const (
	None   Kind = iota // a feature without a list
	Bytes              // byte strings
	Floats             // float32
	Ints               // int64
)

func (k Kind) String() string {
	switch k {
	case None:
		return "nothing"
	case Bytes:
		return "bytes"
	case Floats:
		return "floats"
	case Ints:
		return "int64s"
	}
	return fmt.Sprintf("Kind(%d)", int(k))
}

// A Feature is one feature of a parsed record. It shares the record's memory.
type Feature struct {
	Name []byte
	Kind Kind
	// number of values
	Len int
	// the BytesList, FloatList or Int64List, checked
	list []byte
}

// Features are the features of one record, in its order. Of several features
// with one name, the last counts, as in any protobuf map.
type Features []Feature

// Parse appends the features of a record to fs, which may be nil. Passing fs[:0]
// of an earlier record avoids allocations. The features share the record's memory
// and are valid until it changes. Unknown fields are ignored. A message that is
// split in two, which protobuf allows and no known writer produces, is refused.
func Parse(fs Features, record []byte) (Features, error) {
	err := fields(record, func(num protowire.Number, typ protowire.Type, val []byte) error {
		if num != 1 {
			return nil
		}
		if typ != protowire.BytesType {
			return errType
		}
		return fields(val, func(num protowire.Number, typ protowire.Type, val []byte) error {
			if num != 1 {
				return nil
			}
			if typ != protowire.BytesType {
				return errType
			}
			f, err := parseEntry(val)
			if err != nil {
				return fmt.Errorf("feature %q: %w", f.Name, err)
			}
			fs = append(fs, f)
			return nil
		})
	})
	if err != nil {
		return fs, fmt.Errorf("parse example: %w", err)
	}
	return fs, nil
}

var (
	errType  = errors.New("unexpected wire type")
	errSplit = errors.New("message in two parts")
)

// parseEntry reads one entry of the map of features.
func parseEntry(b []byte) (f Feature, err error) {
	var value []byte
	seen := false
	err = fields(b, func(num protowire.Number, typ protowire.Type, val []byte) error {
		switch {
		case num > 2:
			return nil
		case typ != protowire.BytesType:
			return errType
		case num == 1:
			f.Name = val
		case seen:
			return errSplit
		default:
			value, seen = val, true
		}
		return nil
	})
	if err != nil {
		return f, err
	}
	err = fields(value, func(num protowire.Number, typ protowire.Type, val []byte) error {
		switch {
		case num > protowire.Number(Ints):
			return nil
		case typ != protowire.BytesType:
			return errType
		case f.Kind != None:
			return errSplit
		}
		f.Kind, f.list = Kind(num), val
		return nil
	})
	if err != nil {
		return f, err
	}
	f.Len, err = count(f.Kind, f.list)
	return f, err
}

// count checks a list and returns the number of its values.
func count(k Kind, list []byte) (n int, err error) {
	err = fields(list, func(num protowire.Number, typ protowire.Type, val []byte) error {
		switch {
		case num != 1:
		case k == Bytes && typ == protowire.BytesType,
			k == Floats && typ == protowire.Fixed32Type,
			k == Ints && typ == protowire.VarintType:
			n++
		case k == Floats && typ == protowire.BytesType && len(val)%4 == 0:
			n += len(val) / 4
		case k == Ints && typ == protowire.BytesType:
			for len(val) > 0 {
				_, size := protowire.ConsumeVarint(val)
				if size < 0 {
					return protowire.ParseError(size)
				}
				val = val[size:]
				n++
			}
		default:
			return errType
		}
		return nil
	})
	return n, err
}

// fields calls visit with every field of a message. A value of BytesType is passed without its
// length, any other in its encoding.
func fields(b []byte, visit func(protowire.Number, protowire.Type, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		val := b[:size]
		if typ == protowire.BytesType {
			val, _ = protowire.ConsumeBytes(val)
		}
		if err := visit(num, typ, val); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}

// Get returns the feature of a name; ok is false if there is none.
func (fs Features) Get(name string) (f Feature, ok bool) {
	for i := len(fs) - 1; i >= 0; i-- {
		if string(fs[i].Name) == name {
			return fs[i], true
		}
	}
	return Feature{}, false
}

// Kind returns the kind of the feature of a name, None if there is none.
func (fs Features) Kind(name string) Kind {
	f, _ := fs.Get(name)
	return f.Kind
}

// want returns the feature of a name, or an error if it is missing or has not n values of kind k.
func (fs Features) want(name string, k Kind, n int) (Feature, error) {
	f, ok := fs.Get(name)
	switch {
	case !ok:
		return f, fmt.Errorf("feature %q: not in the record", name)
	case f.Kind != k:
		return f, fmt.Errorf("feature %q: has %v, want %v", name, f.Kind, k)
	case f.Len != n:
		return f, fmt.Errorf("feature %q: has %d values, want %d", name, f.Len, n)
	}
	return f, nil
}

// Bytes returns the single byte string of a feature. It shares the record's memory.
func (fs Features) Bytes(name string) ([]byte, error) {
	f, err := fs.want(name, Bytes, 1)
	if err != nil {
		return nil, err
	}
	var v []byte
	f.values(Bytes, func(val []byte) { v = val })
	return v, nil
}

// Int returns the single int64 of a feature.
func (fs Features) Int(name string) (int64, error) {
	var v [1]int64
	err := fs.Ints(name, v[:])
	return v[0], err
}

// Ints fills dst with the int64s of a feature, which must have len(dst) values.
func (fs Features) Ints(name string, dst []int64) error {
	f, err := fs.want(name, Ints, len(dst))
	if err != nil {
		return err
	}
	f.AppendInts(dst[:0])
	return nil
}

// Floats fills dst with the float32s of a feature, which must have len(dst) values.
func (fs Features) Floats(name string, dst []float32) error {
	f, err := fs.want(name, Floats, len(dst))
	if err != nil {
		return err
	}
	f.AppendFloats(dst[:0])
	return nil
}

// AppendBytes appends the byte strings of f to dst; none if f is of another kind. They share the
// record's memory.
func (f Feature) AppendBytes(dst [][]byte) [][]byte {
	f.values(Bytes, func(val []byte) { dst = append(dst, val) })
	return dst
}

// AppendFloats appends the float32s of f to dst; none if f is of another kind.
func (f Feature) AppendFloats(dst []float32) []float32 {
	f.values(Floats, func(val []byte) {
		for ; len(val) > 0; val = val[4:] {
			dst = append(dst, math.Float32frombits(binary.LittleEndian.Uint32(val)))
		}
	})
	return dst
}

// AppendInts appends the int64s of f to dst; none if f is of another kind.
func (f Feature) AppendInts(dst []int64) []int64 {
	f.values(Ints, func(val []byte) {
		for len(val) > 0 {
			v, n := protowire.ConsumeVarint(val)
			dst = append(dst, int64(v))
			val = val[n:]
		}
	})
	return dst
}

// values calls visit with each encoded value of a checked list. A packed list is one call.
func (f Feature) values(k Kind, visit func([]byte)) {
	if f.Kind != k {
		return
	}
	fields(f.list, func(num protowire.Number, _ protowire.Type, val []byte) error {
		if num == 1 {
			visit(val)
		}
		return nil
	})
}
