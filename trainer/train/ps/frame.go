package ps

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/elastic/param"
	"github.com/elasticdl/elasticdl/trainer/train/nn/kernel"
)

// A data connection carries requests of the worker, each answered by one reply
// before the next. All numbers are little endian.
//
//	request   0 "EDLP"  4 protocol u16  6 op u16       8 flags u32   12 epoch u32
//	         16 payload bytes u64      24 version i64  32 task i64
//	         40 from i64               48 to i64      56 of i64        64 snapshot i64
//	reply     0 "EDLR"  4 protocol u16  6 status u16   8 detail i64
//	         16 payload bytes u64      24 version i64
//	trailer   0 torn u64    8 version i64
//
// The first request opens the connection: its payload is the worker's identity.Header, that of its
// reply the server's. The payload of a push is the server's range of the values; so is that of the
// reply to a pull, which a trailer follows. The payload of any other reply is the text of an error.
const (
	requestSize = 72
	replySize   = 32
	trailerSize = 16
	maxText     = 4096 // bytes of an error's text
)

var (
	requestMagic = [4]byte{'E', 'D', 'L', 'P'}
	replyMagic   = [4]byte{'E', 'D', 'L', 'R'}
)

type op uint16

const (
	opOpen op = 1 + iota
	opPush
	opPull
)

// Flags of a pull.
const (
	// wait until the worker's gradient is applied
	flagAfter uint32 = 1 << iota
	flagWhole        // do not begin within an update
	flagsEnd
)

type status uint16

const (
	statusOK status = 1 + iota
	statusStale
	// of a push: the server is at another record of the task, which is the detail
	statusCut
	statusWait // After: not yet; ask again
	statusNoSnapshot
	// the model is of another generation, which is the detail
	statusModelGeneration
	statusRefused // the payload says why
	statusEnd     // not a status: one past the last
)

type request struct {
	op    op
	flags uint32
	// push: with task it names what is trained on; 0: nothing that has a marker
	epoch int
	// of the payload, in bytes
	length uint64
	// push: of the values that the gradient was computed with
	version int64
	// push
	task int64
	// push: the records of the task's order that the gradient is of,
	from, to int64
	// of the task's records
	of int64
	// pull; 0: the values as they stand
	snapshot int64
}

func (r request) appendTo(b []byte) []byte {
	b = append(b, requestMagic[:]...)
	b = binary.LittleEndian.AppendUint16(b, identity.Protocol)
	b = binary.LittleEndian.AppendUint16(b, uint16(r.op))
	b = binary.LittleEndian.AppendUint32(b, r.flags)
	b = binary.LittleEndian.AppendUint32(b, uint32(r.epoch))
	for _, v := range []uint64{r.length, uint64(r.version), uint64(r.task), uint64(r.from),
		uint64(r.to), uint64(r.of), uint64(r.snapshot)} {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return b
}

// parseRequest reads a request from its requestSize bytes. A number that has no
// meaning for its op must be zero, so one request has one form.
func parseRequest(b []byte) (request, error) {
	le := binary.LittleEndian
	if [4]byte(b) != requestMagic || le.Uint16(b[4:]) != identity.Protocol {
		return request{}, fmt.Errorf("parse request: no frame of protocol %d: % x", identity.Protocol, b[:16])
	}
	r := request{
		op:       op(le.Uint16(b[6:])),
		flags:    le.Uint32(b[8:]),
		epoch:    int(int32(le.Uint32(b[12:]))),
		length:   le.Uint64(b[16:]),
		version:  int64(le.Uint64(b[24:])),
		task:     int64(le.Uint64(b[32:])),
		from:     int64(le.Uint64(b[40:])),
		to:       int64(le.Uint64(b[48:])),
		of:       int64(le.Uint64(b[56:])),
		snapshot: int64(le.Uint64(b[64:])),
	}
	blank := r // what the op does not use
	switch r.op {
	case opOpen:
		blank.length = 0
	case opPush:
		blank = request{op: r.op, flags: r.flags, snapshot: r.snapshot}
	case opPull:
		blank.snapshot = 0
		blank.flags &^= flagsEnd - 1
	default:
		return request{}, fmt.Errorf("parse request: unknown op %d", r.op)
	}
	if blank != (request{op: r.op}) || r.epoch < 0 || min(r.version, r.task, r.from, r.snapshot) < 0 ||
		r.to < r.from || r.epoch > 0 && r.to > r.of || r.task >= ledger.MaxTasks {
		return request{}, fmt.Errorf("parse request: impossible %+v", r)
	}
	if r.op == opOpen && (r.length == 0 || r.length > identity.MaxSize) {
		return request{}, fmt.Errorf("parse request: an identity of %d bytes", r.length)
	}
	return r, nil
}

type reply struct {
	status  status
	detail  int64
	length  uint64
	version int64
}

func (r reply) appendTo(b []byte) []byte {
	b = append(b, replyMagic[:]...)
	b = binary.LittleEndian.AppendUint16(b, identity.Protocol)
	b = binary.LittleEndian.AppendUint16(b, uint16(r.status))
	b = binary.LittleEndian.AppendUint64(b, uint64(r.detail))
	b = binary.LittleEndian.AppendUint64(b, r.length)
	return binary.LittleEndian.AppendUint64(b, uint64(r.version))
}

// parseReply reads a reply from its replySize bytes.
func parseReply(b []byte) (reply, error) {
	le := binary.LittleEndian
	if [4]byte(b) != replyMagic || le.Uint16(b[4:]) != identity.Protocol {
		return reply{}, fmt.Errorf("parse reply: no frame of protocol %d: % x", identity.Protocol, b[:16])
	}
	r := reply{status(le.Uint16(b[6:])), int64(le.Uint64(b[8:])), le.Uint64(b[16:]), int64(le.Uint64(b[24:]))}
	if r.status == 0 || r.status >= statusEnd || min(r.version, r.detail) < 0 || r.detail > 0 &&
		r.status != statusCut && r.status != statusModelGeneration {
		return reply{}, fmt.Errorf("parse reply: impossible %+v", r)
	}
	if r.status != statusOK && r.length > maxText {
		return reply{}, fmt.Errorf("parse reply: text of %d bytes", r.length)
	}
	return r, nil
}

// trailer ends the values of a pull.
type trailer struct {
	// an update fell between the first value and the last
	torn bool
	// at the end
	version int64
}

func (t trailer) appendTo(b []byte) []byte {
	torn := uint64(0)
	if t.torn {
		torn = 1
	}
	b = binary.LittleEndian.AppendUint64(b, torn)
	return binary.LittleEndian.AppendUint64(b, uint64(t.version))
}

// parseTrailer reads a trailer from its trailerSize bytes.
func parseTrailer(b []byte) (trailer, error) {
	torn, version := binary.LittleEndian.Uint64(b), int64(binary.LittleEndian.Uint64(b[8:]))
	if torn > 1 || version < 0 {
		return trailer{}, fmt.Errorf("parse trailer: % x", b[:trailerSize])
	}
	return trailer{torn == 1, version}, nil
}

// chunk is the number of float32s that are read, written, copied or updated at a time: 256 KB,
// which stay in the second-level cache from one use to the next.
const chunk = 64 << 10

// readFloats fills x from r, which gives it in the order of the wire.
func readFloats(r io.Reader, x []float32) error {
	_, err := io.ReadFull(r, param.Bytes(x))
	param.Decode(x)
	return err
}

// notFinite returns which of x, the layout's elements from offset on, is NaN or infinite; "": none.
func notFinite(layout param.Layout, offset int, x []float32) string {
	if i := kernel.FirstNonFinite(x); i >= 0 {
		return fmt.Sprintf("%s is %v", layout.At(offset+i), x[i])
	}
	return ""
}
