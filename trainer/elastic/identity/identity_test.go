package identity

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

var self = Header{Job: "uid-1", Role: pod.PS, Index: 2, Incarnation: 3, Master: 1, ModelGeneration: 7}

func TestAdmit(t *testing.T) {
	worker := Header{Job: "uid-1", Role: pod.Worker, Index: 5, Incarnation: 1, ModelGeneration: 7}
	for name, c := range map[string]struct {
		change func(*Header)
		// by a certificate of the same name; else by the worker's
		proved bool
		want   error
	}{
		"admitted":                              {func(*Header) {}, true, nil},
		"another job":                           {func(h *Header) { h.Job = "uid-2" }, true, ErrForeign},
		"another role":                          {func(h *Header) { h.Role = pod.PS }, true, ErrForbidden},
		"the role of a user":                    {func(h *Header) { h.Role = User }, true, ErrForbidden},
		"a job that is not proved":              {func(h *Header) { h.Job = "uid-2" }, false, ErrForeign},
		"a role that is not proved":             {func(h *Header) { h.Role = pod.Master }, false, ErrForeign},
		"an index that is not proved":           {func(h *Header) { h.Index++ }, false, ErrForeign},
		"an incarnation that is not so":         {func(h *Header) { h.Incarnation++ }, false, ErrForeign},
		"a generation, which no card speaks of": {func(h *Header) { h.ModelGeneration++ }, false, nil},
	} {
		h := worker
		c.change(&h)
		proved := worker.Name()
		if c.proved {
			proved = h.Name()
		}
		err := Admit(self, h, proved, pod.Worker, pod.Master)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := Admit(self, worker, Name{}, pod.Worker); !errors.Is(err, ErrForeign) {
		t.Errorf("nobody: %v", err)
	}
}

func TestExpect(t *testing.T) {
	client := Header{Job: "uid-1", Role: pod.Worker}
	server := pod.ID{Role: pod.PS, Index: 2}
	for _, c := range []struct {
		called      pod.ID
		incarnation int
		want        error
	}{
		{server, 3, nil}, {server, 0, nil},
		{server, 4, ErrReplaced}, // an old process answers at the address
		// the caller has not heard of the newer one
		{server, 2, ErrModelGeneration},
		{pod.ID{Role: pod.PS, Index: 1}, 3, ErrForbidden},
		{pod.ID{Role: pod.Master}, 1, ErrForbidden},
	} {
		if err := Expect(client, self, self.Name(), c.called, c.incarnation); !errors.Is(err, c.want) ||
			(err == nil) != (c.want == nil) {
			t.Errorf("%v incarnation %d: %v", c.called, c.incarnation, err)
		}
	}
}

// Law 3, of the master.
func TestMasterThatWasReplaced(t *testing.T) {
	old, next := Header{Job: "uid-1", Role: pod.Master, Incarnation: 1},
		Header{Job: "uid-1", Role: pod.Master, Incarnation: 2}
	server := self
	for heard, refused := range map[int]bool{0: false, 1: false, 2: true} {
		server.Master = heard
		for what, err := range map[string]error{
			"it calls":     Admit(server, old, old.Name(), pod.Master),
			"it is called": Admit(old, server, server.Name(), pod.PS),
			"it answers":   Expect(server, old, old.Name(), old.ID(), 0),
		} {
			if errors.Is(err, ErrReplaced) != refused || (err != nil) != refused {
				t.Errorf("incarnation 1 of the master, after incarnation %d was heard: %s: %v", heard, what, err)
			}
		}
		if err := Admit(server, next, next.Name(), pod.Master); err != nil {
			t.Errorf("incarnation 2 of the master, after incarnation %d was heard: %v", heard, err)
		}
	}
}

func TestSameModelGeneration(t *testing.T) {
	other := self
	if err := SameModelGeneration(self, other); err != nil {
		t.Error(err)
	}
	other.ModelGeneration = 6
	if err := SameModelGeneration(self, other); !errors.Is(err, ErrModelGeneration) ||
		!strings.Contains(err.Error(), "generation 6") || !strings.Contains(err.Error(), "generation 7") {
		t.Error(err)
	}
}

func TestAnotherProtocolIsNamed(t *testing.T) {
	h := self
	h.Protocol = Protocol + 1
	if _, err := Parse(h.Append(nil)); !errors.Is(err, ErrForeign) ||
		!strings.Contains(err.Error(), fmt.Sprintf("protocol %d, this program %d", Protocol+1, Protocol)) {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add(self.Append(nil))
	f.Add(Header{Role: User}.Append(nil))
	f.Add([]byte{2, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := Parse(b)
		if err != nil {
			if !errors.Is(err, ErrForeign) {
				t.Fatal(err)
			}
			return
		}
		if again := h.Append(nil); !bytes.Equal(again, b) {
			t.Fatalf("% x parsed and written is % x", b, again)
		}
	})
}

func TestIs(t *testing.T) {
	n := Name{Job: "uid-1", ID: pod.ID{Role: pod.PS, Index: 2}, Incarnation: 3}
	if err := Is(n.ID)(n); err != nil {
		t.Error(err)
	}
	if err := Is(pod.ID{Role: pod.PS, Index: 1})(n); !errors.Is(err, ErrForbidden) ||
		!strings.Contains(err.Error(), n.String()) {
		t.Error(err)
	}
}

func TestName(t *testing.T) {
	for _, n := range []Name{
		{Job: "u", ID: pod.ID{Role: pod.Master}, Incarnation: 1},
		{Job: "7a-b", ID: pod.ID{Role: pod.PS, Index: 12}, Incarnation: 3},
		{Job: "u", ID: pod.ID{Role: pod.Worker, Index: 1<<31 - 1}, Incarnation: 1<<31 - 1},
		{Job: "u", ID: pod.ID{Role: User}},
	} {
		if got, err := ParseName(n.String()); err != nil || got != n {
			t.Errorf("%v is %v: %v", n, got, err)
		}
	}
	for _, uri := range []string{
		"", "nobody", "elasticdl://", "elasticdl://u/worker/1", "elasticdl://u/worker/1/1/",
		"elasticdl:///worker/1/1", "spiffe://u/worker/1/1",
		"elasticdl://u/boss/1/1", "elasticdl://u/worker/01/1", "elasticdl://u/worker/-1/1",
		"elasticdl://u/worker/1/2147483648", "elasticdl://u//1/1",
	} {
		if n, err := ParseName(uri); !errors.Is(err, ErrForeign) {
			t.Errorf("%q is %v: %v", uri, n, err)
		}
	}
}

func FuzzParseName(f *testing.F) {
	f.Add(self.Name().String())
	f.Add("elasticdl://u/user/0/0")
	f.Fuzz(func(t *testing.T, uri string) {
		n, err := ParseName(uri)
		if err != nil {
			if !errors.Is(err, ErrForeign) {
				t.Fatal(err)
			}
			return
		}
		if n.String() != uri {
			t.Fatalf("%q is %v", uri, n)
		}
	})
}
