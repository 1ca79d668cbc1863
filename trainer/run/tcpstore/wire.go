package tcpstore

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Limits: those of PyTorch 2.x, and further ones that it lacks.
const (
	maxKey     = 8 << 10
	maxValue   = 8 << 20
	maxKeys    = 128 << 10 // of one request
	maxMessage = 64 << 20  // bytes of one request, and of its answer
)

// magic is the value of a 2.x client's first request, VALIDATE.
const magic = 0x3C85F7CE

// kind is the kind of a request. The numbers are those of 2.x on the wire.
type kind uint8

const (
	validate   kind = iota
	set             // no answer
	compareSet      // answer: what the key has now
	// answer: the value, empty if there is none
	get
	add   // answer: the sum
	check // answer: ready or notReady
	// answer: stopWaiting, when all keys have existed
	wait
	numKeys    // answer: how many there are
	deleteKey  // answer: 1 if there was one
	appendTo   // no answer
	multiGet   // answer: the values
	multiSet   // no answer
	cancelWait // answer: waitCanceled
	ping       // answer: the nonce
	queuePush  // no answer; from here on since 2.8
	// answer: how many there were, and the first
	queuePop
	queueLen // answer: how many there are
	listKeys // answer: how many there are, and they
	// answer: stopWaiting, when as many as the number have come
	barrier
)

// Answers of one byte.
const (
	ready, notReady           = 0, 1
	stopWaiting, waitCanceled = 0, 1
)

// fields are the fields after a request's type on the wire: k a key, v a value, n a number of 64
// bits, u one of 32 bits, K keys after their number, P pairs of key and value after their number.
var fields = [...]string{
	validate: "u", set: "kv", compareSet: "kvv", get: "k", add: "kn", check: "K", wait: "K",
	numKeys: "", deleteKey: "k",
	appendTo: "kv", multiGet: "K", multiSet: "P", cancelWait: "", ping: "u", queuePush: "kv",
	queuePop: "k", queueLen: "k",
	listKeys: "", barrier: "kn",
}

// generation is a version of the protocol: it maps a byte on the wire to a kind.
type generation []kind

// old is PyTorch 1.x, and 2.0, which adds what follows deleteKey. Type 7, WATCH_KEY, is left out:
// no Python reaches it.
var old = generation{set, compareSet, get, add, check, wait, numKeys, unknown, deleteKey, appendTo,
	multiGet, multiSet, cancelWait}

// modern is PyTorch from 2.1 on.
var modern = generation{
	validate, set, compareSet, get, add, check, wait, numKeys, deleteKey, appendTo, multiGet, multiSet,
	cancelWait, ping,
	queuePush, queuePop, queueLen, listKeys, barrier,
}

// unknown is the kind of a type that is not served.
const unknown kind = 255

// request is a request of a client.
type request struct {
	kind kind
	keys []string
	// compareSet: what is expected, and what it becomes
	values [][]byte
	// add, barrier, ping, validate
	number int64
}

// errRequest is wrapped by every error about malformed bytes of a client.
var errRequest = errors.New("not a request of a TCPStore")

func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", errRequest, fmt.Sprintf(format, args...))
}

// decoder reads the requests of one connection.
type decoder struct {
	r          *bufio.Reader
	generation generation // nil: nothing has been read yet
	left       int        // bytes that the request may still have
}

func newDecoder(r io.Reader) *decoder { return &decoder{r: bufio.NewReader(r)} }

// next returns the next request, or io.EOF if the client ended between two.
func (d *decoder) next() (request, error) {
	if d.generation == nil {
		if err := d.recognize(); err != nil {
			return request{}, err
		}
	}
	b, err := d.r.ReadByte()
	if err != nil {
		return request{}, err
	}
	if int(b) >= len(d.generation) || d.generation[b] == unknown {
		return request{}, refused("unknown type %d", b)
	}
	r := request{kind: d.generation[b]}
	d.left = maxMessage
	for _, f := range fields[r.kind] {
		if err := d.field(&r, f); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return request{}, err
		}
	}
	if r.kind == validate && uint32(r.number) != magic {
		return request{}, refused("VALIDATE with %#x, want %#x", uint32(r.number), uint32(magic))
	}
	return r, nil
}

// recognize tells the generations apart by the first bytes. A request of 1.x that begins with 0 has
// at least five bytes.
func (d *decoder) recognize() error {
	first, err := d.r.Peek(1)
	if err != nil {
		return err
	}
	d.generation = old
	if first[0] == byte(validate) {
		first, err := d.r.Peek(5)
		if err != nil {
			return io.ErrUnexpectedEOF
		}
		if binary.LittleEndian.Uint32(first[1:]) == magic {
			d.generation = modern
		}
	}
	return nil
}

func (d *decoder) field(r *request, f rune) error {
	switch f {
	case 'k':
		key, err := d.blob(maxKey, "key")
		r.keys = append(r.keys, string(key))
		return err
	case 'v':
		value, err := d.blob(maxValue, "value")
		r.values = append(r.values, value)
		return err
	case 'n':
		n, err := d.uint64()
		r.number = int64(n)
		return err
	case 'u':
		var b [4]byte
		_, err := io.ReadFull(d.r, b[:])
		r.number = int64(binary.LittleEndian.Uint32(b[:]))
		return err
	}
	n, err := d.uint64()
	if err != nil {
		return err
	}
	if n > maxKeys {
		return refused("%d keys, more than %d", n, maxKeys)
	}
	for range n {
		if err := d.field(r, 'k'); err != nil {
			return err
		}
		if f == 'P' {
			if err := d.field(r, 'v'); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *decoder) uint64() (uint64, error) {
	var b [8]byte
	_, err := io.ReadFull(d.r, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// blob reads a length and as many bytes. It allocates memory for what has come, not for what is
// announced.
func (d *decoder) blob(most uint64, what string) ([]byte, error) {
	n, err := d.uint64()
	if err != nil {
		return nil, err
	}
	if n > most {
		return nil, refused("a %s of %d bytes, more than %d", what, n, most)
	}
	if d.left -= 8 + int(n); d.left < 0 {
		return nil, refused("more than %d bytes", maxMessage)
	}
	if n <= maxKey {
		b := make([]byte, n)
		_, err := io.ReadFull(d.r, b)
		return b, err
	}
	var b bytes.Buffer
	_, err = io.CopyN(&b, d.r, int64(n))
	return b.Bytes(), err
}

// append writes the request as a client of that generation does.
func (r request) append(b []byte, g generation) []byte {
	for i, k := range g {
		if k == r.kind {
			b = append(b, byte(i))
		}
	}
	keys, values := r.keys, r.values
	for _, f := range fields[r.kind] {
		switch f {
		case 'k':
			b, keys = appendBlob(b, keys[0]), keys[1:]
		case 'v':
			b, values = appendBlob(b, values[0]), values[1:]
		case 'n':
			b = binary.LittleEndian.AppendUint64(b, uint64(r.number))
		case 'u':
			b = binary.LittleEndian.AppendUint32(b, uint32(r.number))
		case 'K', 'P':
			b = binary.LittleEndian.AppendUint64(b, uint64(len(keys)))
			for i, key := range keys {
				b = appendBlob(b, key)
				if f == 'P' {
					b = appendBlob(b, values[i])
				}
			}
		}
	}
	return b
}

func appendBlob[T string | []byte](b []byte, blob T) []byte {
	return append(binary.LittleEndian.AppendUint64(b, uint64(len(blob))), blob...)
}

func appendNumber(b []byte, n int64) []byte { return binary.LittleEndian.AppendUint64(b, uint64(n)) }
