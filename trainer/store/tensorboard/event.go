package tensorboard

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"google.golang.org/protobuf/encoding/protowire"
)

// Event is one event of a file: the version of the file's format, a start, or points of scalars.
type Event struct {
	// WallTime is the time of the event, in seconds since 1970.
	WallTime float64
	Step     int64
	// FileVersion is [FileVersion] in the first event of a file, "" in the others.
	FileVersion string
	// Start reports whether TensorBoard drops the points of earlier events whose step is Step or
	// higher.
	Start   bool
	Scalars []Scalar
}

// Scalar is the value of a tag.
type Scalar struct {
	Tag   string
	Value float32
}

// FileVersion is the version of the format: from 2, a start drops points.
const FileVersion = "brain.Event:2"

// Fields of the messages Event, Summary, Summary.Value and SessionLog of TensorFlow.
const (
	fieldWallTime    = 1
	fieldStep        = 2
	fieldFileVersion = 3
	fieldSummary     = 5
	fieldSessionLog  = 7

	fieldValue = 1 // of Summary

	fieldTag         = 1 // of Summary.Value
	fieldSimpleValue = 2

	fieldStatus = 1 // of SessionLog
	statusStart = 1
)

// MaxEvent is the largest length of an event that [Decode] accepts, in bytes.
const MaxEvent = 1 << 20

// Sizes of the parts around an event in a file, in bytes.
const (
	sizeOfLength = 8
	sizeOfSum    = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// sum returns the masked CRC-32C of bytes.
func sum(b []byte) uint32 {
	crc := crc32.Checksum(b, castagnoli)
	return (crc>>15 | crc<<17) + 0xa282ead8
}

// Encode appends an event to a file's bytes, with its length and checksums.
func Encode(file []byte, e Event) []byte {
	message := encode(e)
	file = binary.LittleEndian.AppendUint64(file, uint64(len(message)))
	file = binary.LittleEndian.AppendUint32(file, sum(file[len(file)-sizeOfLength:]))
	file = append(file, message...)
	return binary.LittleEndian.AppendUint32(file, sum(message))
}

func encode(e Event) []byte {
	b := protowire.AppendTag(nil, fieldWallTime, protowire.Fixed64Type)
	b = protowire.AppendFixed64(b, math.Float64bits(e.WallTime))
	if e.Step != 0 {
		b = protowire.AppendTag(b, fieldStep, protowire.VarintType)
		b = protowire.AppendVarint(b, uint64(e.Step))
	}
	if e.FileVersion != "" {
		b = protowire.AppendTag(b, fieldFileVersion, protowire.BytesType)
		b = protowire.AppendString(b, e.FileVersion)
	}
	if len(e.Scalars) > 0 {
		b = protowire.AppendTag(b, fieldSummary, protowire.BytesType)
		b = protowire.AppendBytes(b, encodeSummary(e.Scalars))
	}
	if e.Start {
		log := protowire.AppendTag(nil, fieldStatus, protowire.VarintType)
		log = protowire.AppendVarint(log, statusStart)
		b = protowire.AppendTag(b, fieldSessionLog, protowire.BytesType)
		b = protowire.AppendBytes(b, log)
	}
	return b
}

func encodeSummary(scalars []Scalar) (b []byte) {
	for _, s := range scalars {
		value := protowire.AppendTag(nil, fieldTag, protowire.BytesType)
		value = protowire.AppendString(value, s.Tag)
		value = protowire.AppendTag(value, fieldSimpleValue, protowire.Fixed32Type)
		value = protowire.AppendFixed32(value, math.Float32bits(s.Value))
		b = protowire.AppendTag(b, fieldValue, protowire.BytesType)
		b = protowire.AppendBytes(b, value)
	}
	return b
}

// errDamaged is the error of an event that is incomplete or has a wrong checksum.
var errDamaged = errors.New("the event is incomplete or damaged")

// Decode reads the events of a file up to the first one that is damaged, and returns them with the
// number of bytes that they take. A file whose writer was killed may end within an event. The error
// says why the reading has ended; nil: at the end of the file.
func Decode(file []byte) (events []Event, size int, err error) {
	for size < len(file) {
		message, n := cut(file[size:])
		if n == 0 {
			return events, size, errDamaged
		}
		e, err := decode(message)
		if err != nil {
			return events, size, err
		}
		events = append(events, e)
		size += n
	}
	return events, size, nil
}

// cut returns the message of the first event of a file, and the bytes that the event takes; 0 if it
// is damaged.
func cut(file []byte) (message []byte, n int) {
	const before = sizeOfLength + sizeOfSum
	if len(file) < before || sum(file[:sizeOfLength]) != binary.LittleEndian.Uint32(file[sizeOfLength:]) {
		return nil, 0
	}
	length := binary.LittleEndian.Uint64(file)
	if length > MaxEvent || uint64(len(file)) < before+length+sizeOfSum {
		return nil, 0
	}
	end := before + int(length)
	message = file[before:end]
	if sum(message) != binary.LittleEndian.Uint32(file[end:]) {
		return nil, 0
	}
	return message, end + sizeOfSum
}

func decode(message []byte) (e Event, err error) {
	err = fields(message, func(number protowire.Number, kind protowire.Type, b []byte) (err error) {
		switch {
		case number == fieldWallTime && kind == protowire.Fixed64Type:
			bits, _ := protowire.ConsumeFixed64(b)
			e.WallTime = math.Float64frombits(bits)
		case number == fieldStep && kind == protowire.VarintType:
			step, _ := protowire.ConsumeVarint(b)
			e.Step = int64(step)
		case number == fieldFileVersion && kind == protowire.BytesType:
			text, _ := protowire.ConsumeBytes(b)
			e.FileVersion = string(text)
		case number == fieldSummary && kind == protowire.BytesType:
			text, _ := protowire.ConsumeBytes(b)
			e.Scalars, err = decodeSummary(text)
		case number == fieldSessionLog && kind == protowire.BytesType:
			text, _ := protowire.ConsumeBytes(b)
			err = fields(text, func(number protowire.Number, kind protowire.Type, b []byte) error {
				if number == fieldStatus && kind == protowire.VarintType {
					status, _ := protowire.ConsumeVarint(b)
					e.Start = status == statusStart
				}
				return nil
			})
		}
		return err
	})
	return e, err
}

func decodeSummary(b []byte) (scalars []Scalar, err error) {
	err = fields(b, func(number protowire.Number, kind protowire.Type, b []byte) error {
		if number != fieldValue || kind != protowire.BytesType {
			return nil
		}
		text, _ := protowire.ConsumeBytes(b)
		var s Scalar
		err := fields(text, func(number protowire.Number, kind protowire.Type, b []byte) error {
			switch {
			case number == fieldTag && kind == protowire.BytesType:
				tag, _ := protowire.ConsumeBytes(b)
				s.Tag = string(tag)
			case number == fieldSimpleValue && kind == protowire.Fixed32Type:
				bits, _ := protowire.ConsumeFixed32(b)
				s.Value = math.Float32frombits(bits)
			}
			return nil
		})
		scalars = append(scalars, s)
		return err
	})
	return scalars, err
}

// fields calls visit with each field of a message: its number, its type, and its value as encoded,
// which is complete.
func fields(b []byte, visit func(protowire.Number, protowire.Type, []byte) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", errDamaged, protowire.ParseError(n))
		}
		b = b[n:]
		if n = protowire.ConsumeFieldValue(number, kind, b); n < 0 {
			return fmt.Errorf("%w: %w", errDamaged, protowire.ParseError(n))
		}
		if err := visit(number, kind, b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
