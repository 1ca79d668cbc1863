package mesh

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

const testJob = "uid-1"

// worker returns the identity of a worker of the tests' job.
func worker(i int) identity.Header {
	return identity.Header{Protocol: identity.Protocol, Job: testJob, Role: pod.Worker, Index: i, Incarnation: 1}
}

// greets returns a hello of a worker of the tests' job.
func greets(generation int64, from, to, fromRank, toRank, size int) hello {
	return hello{worker(from), generation, to, fromRank, toRank, size, toLink}
}

// helloSize and welcomeSize are the sizes in bytes of the tests' hellos and of the answers that
// welcome them.
var (
	helloSize   = len(greets(1, 1, 0, 1, 0, 2).append(nil))
	welcomeSize = len(answer{verdict: welcome, from: worker(1)}.append(nil))
)

func admitAll(identity.Header) error { return nil }

func FuzzHello(f *testing.F) {
	f.Add(greets(1, 2, 3, 1, 0, 2).append(nil))
	f.Add(hello{worker(1), 1 << 40, 1 << 30, 999, 1000, 1 << 20, toAsk}.append(nil))
	f.Add(hello{identity.Header{}, 1, 1, 1, 0, 2, toLink}.append(nil))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		h, err := readHello(r, admitAll)
		if err != nil {
			return
		}
		if read := b[:len(b)-r.Len()]; !bytes.Equal(h.append(nil), read) {
			t.Errorf("% x is read as %v", read, h)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(answer{verdict: welcome, generation: 7, sent: 1 << 40, from: worker(3)}.append(nil))
	f.Add(answer{verdict: foreign, text: "another job"}.append(nil))
	f.Add(make([]byte, answerSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		a, err := readAnswer(r)
		if err != nil {
			return
		}
		if read := b[:len(b)-r.Len()]; !bytes.Equal(a.append(nil), read) {
			t.Errorf("% x is read as %+v", read, a)
		}
	})
}

func TestHelloOfAnotherOrder(t *testing.T) {
	b := greets(1, 2, 3, 1, 0, 2).append(nil)
	if _, err := readHello(bytes.NewReader(b), admitAll); err != nil {
		t.Fatal(err)
	}
	b[4], b[5] = b[5], b[4]
	if _, err := readHello(bytes.NewReader(b), admitAll); !errors.Is(err, identity.ErrForeign) {
		t.Error("a machine of another order of bytes is welcome")
	}
}

// A length is checked before data of that length is read. Of a caller that is not admitted nothing
// more is read.
func TestHelloIsReadAsFarAsAdmitted(t *testing.T) {
	long := greets(1, 2, 3, 1, 0, 2).append(nil)
	long[6], long[7] = 0xff, 0xff
	if _, err := readHello(io.MultiReader(bytes.NewReader(long[:helloStart]), unreadable{t}),
		admitAll); !errors.Is(err, errStrange) {
		t.Errorf("a header of 65,535 bytes: %v", err)
	}
	b := greets(1, 2, 3, 1, 0, 2).append(nil)
	refused := errors.New("refused")
	_, err := readHello(io.MultiReader(bytes.NewReader(b[:len(b)-helloRest]), unreadable{t}),
		func(identity.Header) error {
			return refused
		})
	if !errors.Is(err, refused) {
		t.Errorf("of who is not admitted: %v", err)
	}
	a := answer{verdict: foreign}.append(nil)
	a[24], a[25] = 0xff, 0xff
	if _, err := readAnswer(io.MultiReader(bytes.NewReader(a), unreadable{t})); !errors.Is(err, errStrange) {
		t.Errorf("a text of 65,535 bytes: %v", err)
	}
}

// unreadable is a reader that must not be read.
type unreadable struct{ *testing.T }

func (u unreadable) Read([]byte) (int, error) {
	u.Error("more is read")
	return 0, io.EOF
}
