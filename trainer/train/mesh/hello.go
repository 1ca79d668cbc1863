package mesh

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
)

// Both ends are authenticated by TLS. The dialling end says hello, and is answered. Each says who
// it is with a header of package identity. Numbers are little endian.
//
//	hello   0 "EDLM"        4 order u16       6 header u16    8 the header
//	      + 0 generation i64   8 to worker u32  12 from rank u32  16 to rank u32  20 size u32
//	       24 errand u32
//	answer  0 "EDLN"        4 verdict u16     6 header u16    8 generation i64   16 sent i64
//	       24 text u16       26 the header, the text
//
// order is 1 in the order of the machine's own bytes: in that of the numbers that follow. The words
// header and text are followed by as many bytes, which are bounded before memory is taken for them.
// A peer of another job gets an answer without a header, and with an error text.
const (
	helloStart = 8
	helloRest  = 28
	answerSize = 26 // before the header

	// maxText is the longest text of an answer.
	maxText = 512
)

var (
	helloMagic  = [4]byte{'E', 'D', 'L', 'M'}
	answerMagic = [4]byte{'E', 'D', 'L', 'N'}
)

// errStrange is of bytes that are no hello, and get no answer.
var errStrange = errors.New("not a worker of this program")

// errand is the purpose of a connection.
type errand uint32

const (
	toLink errand = 1 + iota // it becomes the link of two ranks
	// the answer is all: whether the peer is there, and what it has sent on the link
	toAsk
	errandEnd
)

type hello struct {
	from             identity.Header
	generation       int64
	to               int // worker
	fromRank, toRank int
	size             int
	errand           errand
}

func (h hello) String() string {
	return fmt.Sprintf("%v, rank %d, to rank %d of %d, worker %d, in generation %d", h.from, h.fromRank,
		h.toRank, h.size, h.to, h.generation)
}

// same reports whether two hellos are of one rank in one world.
func (h hello) same(o hello) bool {
	return h.generation == o.generation && h.fromRank == o.fromRank && h.from.Index == o.from.Index
}

func (h hello) append(b []byte) []byte {
	le := binary.LittleEndian
	header := h.from.Append(nil)
	b = append(b, helloMagic[:]...)
	b = binary.NativeEndian.AppendUint16(b, 1)
	b = le.AppendUint16(b, uint16(len(header)))
	b = append(b, header...)
	b = le.AppendUint64(b, uint64(h.generation))
	for _, v := range []int{h.to, h.fromRank, h.toRank, h.size, int(h.errand)} {
		b = le.AppendUint32(b, uint32(v))
	}
	return b
}

// readHello reads a hello as far as who says it passes the check. An error of check is returned
// unchanged.
func readHello(r io.Reader, check func(identity.Header) error) (h hello, err error) {
	le := binary.LittleEndian
	var start [helloStart]byte
	if _, err := io.ReadFull(r, start[:]); err != nil {
		return h, err
	}
	length := int(le.Uint16(start[6:]))
	if [4]byte(start[:]) != helloMagic || length > identity.MaxSize {
		return h, fmt.Errorf("%w: % x", errStrange, start)
	}
	if binary.NativeEndian.Uint16(start[4:]) != 1 {
		return h, fmt.Errorf("%w: another order of bytes", identity.ErrForeign)
	}
	header := make([]byte, length)
	if _, err := io.ReadFull(r, header); err != nil {
		return h, err
	}
	if h.from, err = identity.Parse(header); err != nil {
		return h, err
	}
	if err := check(h.from); err != nil {
		return h, err
	}
	var b [helloRest]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return h, err
	}
	word := func(i int) int { return int(le.Uint32(b[i:])) }
	h.generation = int64(le.Uint64(b[0:]))
	h.to, h.fromRank, h.toRank, h.size, h.errand = word(8), word(12), word(16), word(20), errand(word(24))
	if h.generation <= 0 || h.fromRank == h.toRank || max(h.fromRank, h.toRank) >= h.size ||
		h.errand == 0 || h.errand >= errandEnd || h.errand == toLink && h.toRank > h.fromRank {
		return h, fmt.Errorf("%w: an impossible hello: %v", errStrange, h)
	}
	return h, nil
}

type verdict uint16

const (
	welcome verdict = 1 + iota
	// the answerer is in the newer world that the answer names, or has left this one
	outdated
	// the answerer is another worker, or in a world of this generation it has another place
	stranger
	crowded // ask again
	// who said hello is not of the job of the answerer, whose text says why
	foreign
	verdictEnd // not a verdict: one past the last
)

type answer struct {
	verdict    verdict
	generation int64
	// to who asks: how many bytes were sent on the link
	sent int64
	// none of who is foreign
	from identity.Header
	text string
}

func (a answer) append(b []byte) []byte {
	le := binary.LittleEndian
	var header []byte
	if a.verdict != foreign {
		header = a.from.Append(nil)
	}
	text := a.text[:min(len(a.text), maxText)]
	b = append(b, answerMagic[:]...)
	b = le.AppendUint16(b, uint16(a.verdict))
	b = le.AppendUint16(b, uint16(len(header)))
	b = le.AppendUint64(b, uint64(a.generation))
	b = le.AppendUint64(b, uint64(a.sent))
	b = le.AppendUint16(b, uint16(len(text)))
	return append(append(b, header...), text...)
}

func readAnswer(r io.Reader) (answer, error) {
	le := binary.LittleEndian
	var b [answerSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return answer{}, err
	}
	a := answer{verdict: verdict(le.Uint16(b[4:])), generation: int64(le.Uint64(b[8:])), sent: int64(le.Uint64(b[16:]))}
	header, text := int(le.Uint16(b[6:])), int(le.Uint16(b[24:]))
	if [4]byte(b[:]) != answerMagic || a.verdict == 0 || a.verdict >= verdictEnd || a.generation < 0 || a.sent < 0 ||
		header > identity.MaxSize || text > maxText || (header == 0) != (a.verdict == foreign) {
		return answer{}, fmt.Errorf("%w: answer % x", errStrange, b)
	}
	rest := make([]byte, header+text)
	if _, err := io.ReadFull(r, rest); err != nil {
		return answer{}, err
	}
	a.text = string(rest[header:])
	if a.verdict == foreign {
		return a, nil
	}
	var err error
	a.from, err = identity.Parse(rest[:header])
	return a, err
}
