package tcpstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"reflect"
	"strings"
	"testing"
)

// hello is the first request of a client of 2.x.
var hello = request{kind: validate, number: magic}.append(nil, modern)

// samples returns one request of each kind that the generation has.
func samples(g generation) []request {
	var all []request
	for _, k := range g {
		if k == unknown {
			continue
		}
		r := request{kind: k}
		for _, f := range fields[k] {
			switch f {
			case 'k':
				r.keys = append(r.keys, "/key")
			case 'v':
				r.values = append(r.values, []byte("value"), bytes.Repeat([]byte{1}, 10<<10))
				r.values = r.values[:len(r.values)-1]
			case 'n':
				r.number = -3
			case 'u':
				r.number = magic
			case 'K':
				r.keys = []string{"/a", "", "/c"}
			case 'P':
				r.keys, r.values = []string{"/a", "/b"}, [][]byte{[]byte("x"), {}}
			}
		}
		all = append(all, r)
	}
	return all
}

func FuzzOld(f *testing.F) {
	for _, r := range samples(old) {
		f.Add(r.append(nil, old))
	}
	f.Add(append([]byte{0}, bytes.Repeat([]byte{255}, 20)...))
	f.Fuzz(func(t *testing.T, b []byte) { isReversible(t, b) })
}

func FuzzModern(f *testing.F) {
	for _, r := range samples(modern) {
		f.Add(r.append(hello, modern))
	}
	f.Fuzz(func(t *testing.T, b []byte) { isReversible(t, append(bytes.Clone(hello), b...)) })
}

// isReversible reads requests, and writes them back as they were. The store bears all of them.
func isReversible(t *testing.T, b []byte) {
	d := newDecoder(bytes.NewReader(b))
	s := newStore(1 << 20)
	var back []byte
	for {
		r, err := d.next()
		if err != nil {
			if !errors.Is(err, errRequest) && err != io.EOF && err != io.ErrUnexpectedEOF {
				t.Errorf("% x: %v", b, err)
			}
			if err == io.EOF && len(back) != len(b) {
				t.Errorf("% x: ends after %d bytes", b, len(back))
			}
			break
		}
		back = r.append(back, d.generation)
		s.apply(1, r)
		if s.held > s.most {
			t.Errorf("the store holds %d bytes, more than %d", s.held, s.most)
		}
	}
	if !bytes.HasPrefix(b, back) {
		t.Errorf("% x is read as % x", b, back)
	}
	if is := len(d.generation) == len(modern); len(back) > 0 && is != bytes.HasPrefix(b, hello) {
		t.Errorf("% x: taken for 2.x: %t", b, is)
	}
}

// TestBytes compares with the bytes that PyTorch 1.13 and 2.15 were seen to send.
func TestBytes(t *testing.T) {
	for _, test := range []struct {
		name  string
		bytes string
		want  request
	}{
		{"1.x SET", "\x00\x02\x00\x00\x00\x00\x00\x00\x00/k\x01\x00\x00\x00\x00\x00\x00\x00v",
			request{kind: set, keys: []string{"/k"}, values: [][]byte{[]byte("v")}}},
		{"1.x ADD", "\x03\x02\x00\x00\x00\x00\x00\x00\x00/n\x05\x00\x00\x00\x00\x00\x00\x00",
			request{kind: add, keys: []string{"/n"}, number: 5}},
		{"1.x WAIT", "\x05\x01\x00\x00\x00\x00\x00\x00\x00\x03\x00\x00\x00\x00\x00\x00\x00/zz",
			request{kind: wait, keys: []string{"/zz"}}},
		{"2.x VALIDATE", "\x00\xce\xf7\x85\x3c", request{kind: validate, number: magic}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := newDecoder(strings.NewReader(test.bytes)).next()
			if err != nil || !reflect.DeepEqual(r, test.want) {
				t.Errorf("read %+v (%v), want %+v", r, err, test.want)
			}
		})
	}
}

func TestRefused(t *testing.T) {
	u64 := func(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }
	for _, test := range []struct {
		name, bytes, want string
	}{
		{"type of neither", "GET / HTTP/1.1\r\n\r\n", "unknown type 71"},
		{"WATCH_KEY", "\x07" + u64(1) + "k", "unknown type 7"},
		{"type of 1.x", "\x0d", "unknown type 13"},
		{"type of 2.x", string(hello) + "\x13", "unknown type 19"},
		{"other magic later", string(hello) + "\x00\x00\x00\x00\x00", "VALIDATE with 0x0, want 0x3c85f7ce"},
		{"long key", "\x02" + u64(maxKey+1), "a key of 8193 bytes, more than 8192"},
		{"negative length", "\x02" + u64(1<<64-1), "a key of 18446744073709551615 bytes, more than 8192"},
		{"long value", "\x00" + u64(1) + "k" + u64(maxValue+1), "a value of 8388609 bytes, more than 8388608"},
		{"many keys", "\x05" + u64(maxKeys+1), "131073 keys, more than 131072"},
		{"long request", "\x05" + u64(maxKeys) + strings.Repeat(u64(maxKey)+strings.Repeat("k", maxKey),
			maxMessage/maxKey), "more than 67108864 bytes"},
		{"cut", "\x00" + u64(1) + "k" + u64(5000) + "v", "unexpected EOF"},
		{"cut in the type", "\x00\xce", "unexpected EOF"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var err error
			for d := newDecoder(strings.NewReader(test.bytes)); err == nil; {
				_, err = d.next()
			}
			if got := strings.TrimPrefix(err.Error(), errRequest.Error()+": "); got != test.want {
				t.Errorf("refused with %q, want %q", got, test.want)
			}
		})
	}
}
