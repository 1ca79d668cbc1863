package cli

import (
	"bytes"
	"encoding/json"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// asJSON returns a message as JSON. It has every field, in a fixed order, with the names of
// protobuf's JSON. Unlike there, 64-bit numbers are numbers, not texts. NaN and infinity are null.
func asJSON(m proto.Message) json.RawMessage {
	var b bytes.Buffer
	writeMessage(&b, m.ProtoReflect())
	return b.Bytes()
}

// apiVersion is the version of the JSON of a status. Fields may be added to it. A change of the
// meaning of a field, or its removal, is another version.
const apiVersion = "elasticdl/v1"

// statusJSON returns the status of a job as JSON, with its version.
func statusJSON(s *wire.JobStatus) json.RawMessage {
	s = proto.Clone(s).(*wire.JobStatus)
	s.ApiVersion = apiVersion
	return asJSON(s)
}

func writeMessage(b *bytes.Buffer, m protoreflect.Message) {
	if !m.IsValid() {
		b.WriteString("null")
		return
	}
	fields := m.Descriptor().Fields()
	b.WriteByte('{')
	for i := range fields.Len() {
		if i > 0 {
			b.WriteByte(',')
		}
		f := fields.Get(i)
		writeText(b, f.JSONName())
		b.WriteByte(':')
		switch v := m.Get(f); {
		case f.IsMap():
			writeMap(b, f, v.Map())
		case f.IsList():
			b.WriteByte('[')
			for at := range v.List().Len() {
				if at > 0 {
					b.WriteByte(',')
				}
				writeValue(b, f, v.List().Get(at))
			}
			b.WriteByte(']')
		default:
			writeValue(b, f, v)
		}
	}
	b.WriteByte('}')
}

func writeMap(b *bytes.Buffer, f protoreflect.FieldDescriptor, m protoreflect.Map) {
	var keys []protoreflect.MapKey
	m.Range(func(key protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, key)
		return true
	})
	slices.SortFunc(keys, func(a, b protoreflect.MapKey) int { return strings.Compare(a.String(), b.String()) })
	b.WriteByte('{')
	for i, key := range keys {
		if i > 0 {
			b.WriteByte(',')
		}
		writeText(b, key.String())
		b.WriteByte(':')
		writeValue(b, f.MapValue(), m.Get(key))
	}
	b.WriteByte('}')
}

func writeValue(b *bytes.Buffer, f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch f.Kind() {
	case protoreflect.MessageKind:
		writeMessage(b, v.Message())
	case protoreflect.EnumKind:
		if e := f.Enum().Values().ByNumber(v.Enum()); e != nil {
			writeText(b, string(e.Name()))
		} else {
			b.WriteString(strconv.Itoa(int(v.Enum())))
		}
	case protoreflect.FloatKind:
		writeReal(b, v.Float(), 32)
	case protoreflect.DoubleKind:
		writeReal(b, v.Float(), 64)
	case protoreflect.StringKind:
		writeText(b, v.String())
	case protoreflect.BytesKind:
		text, _ := json.Marshal(v.Bytes()) // never fails for bytes
		b.Write(text)
	default: // whole numbers and booleans
		b.WriteString(v.String())
	}
}

func writeReal(b *bytes.Buffer, v float64, bits int) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		b.WriteString("null")
		return
	}
	b.WriteString(strconv.FormatFloat(v, 'g', -1, bits))
}

func writeText(b *bytes.Buffer, s string) {
	text, _ := json.Marshal(s) // never fails for a text
	b.Write(text)
}
