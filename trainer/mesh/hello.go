package mesh

import (
	"encoding/binary"
	"fmt"
)

// Who dials says hello, in 48 bytes, and is answered in 16. Numbers are little endian.
//
//	hello   0 "EDLM"  4 protocol u16  6 order u16    8 formation i64
//	       16 from worker i64        24 to worker i64
//	       32 from rank u32          36 to rank u32   40 size u32   44 reserved u32
//	answer  0 "EDLN"  4 protocol u16  6 verdict u16  8 formation i64
//
// order is 1 in the order of the machine's own bytes: in that of the numbers that follow.
const (
	protocol   = 1
	helloSize  = 48
	answerSize = 16
)

var (
	helloMagic  = [4]byte{'E', 'D', 'L', 'M'}
	answerMagic = [4]byte{'E', 'D', 'L', 'N'}
)

type hello struct {
	formation            int64
	fromWorker, toWorker int
	fromRank, toRank     int
	size                 int
}

func (h hello) append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, helloMagic[:]...)
	b = le.AppendUint16(b, protocol)
	b = binary.NativeEndian.AppendUint16(b, 1)
	for _, v := range []int64{h.formation, int64(h.fromWorker), int64(h.toWorker)} {
		b = le.AppendUint64(b, uint64(v))
	}
	for _, v := range []int{h.fromRank, h.toRank, h.size, 0} {
		b = le.AppendUint32(b, uint32(v))
	}
	return b
}

// parseHello reads a hello from its helloSize bytes.
func parseHello(b []byte) (hello, error) {
	le := binary.LittleEndian
	if [4]byte(b) != helloMagic || le.Uint16(b[4:]) != protocol || le.Uint32(b[44:]) != 0 {
		return hello{}, fmt.Errorf("parse hello: no frame of protocol %d: % x", protocol, b[:16])
	}
	if binary.NativeEndian.Uint16(b[6:]) != 1 {
		return hello{}, fmt.Errorf("parse hello: another order of bytes")
	}
	h := hello{
		formation:  int64(le.Uint64(b[8:])),
		fromWorker: int(int64(le.Uint64(b[16:]))),
		toWorker:   int(int64(le.Uint64(b[24:]))),
		fromRank:   int(le.Uint32(b[32:])),
		toRank:     int(le.Uint32(b[36:])),
		size:       int(le.Uint32(b[40:])),
	}
	if h.formation <= 0 || h.fromWorker < 0 || h.toWorker < 0 || h.toRank >= h.fromRank || h.fromRank >= h.size {
		return hello{}, fmt.Errorf("parse hello: impossible %+v", h)
	}
	return h, nil
}

type verdict uint16

const (
	welcome    verdict = 1 + iota
	outdated           // the answerer is in the newer world that the answer names
	stranger           // the answerer is another worker, or in a world of this formation it has another place
	crowded            // ask again
	verdictEnd         // not a verdict: one past the last
)

type answer struct {
	verdict   verdict
	formation int64
}

func (a answer) append(b []byte) []byte {
	b = append(b, answerMagic[:]...)
	b = binary.LittleEndian.AppendUint16(b, protocol)
	b = binary.LittleEndian.AppendUint16(b, uint16(a.verdict))
	return binary.LittleEndian.AppendUint64(b, uint64(a.formation))
}

// parseAnswer reads an answer from its answerSize bytes.
func parseAnswer(b []byte) (answer, error) {
	le := binary.LittleEndian
	a := answer{verdict(le.Uint16(b[6:])), int64(le.Uint64(b[8:]))}
	if [4]byte(b) != answerMagic || le.Uint16(b[4:]) != protocol || a.verdict == 0 || a.verdict >= verdictEnd || a.formation < 0 {
		return answer{}, fmt.Errorf("parse answer: no frame of protocol %d: % x", protocol, b[:answerSize])
	}
	return a, nil
}
