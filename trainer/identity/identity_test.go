package identity

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/pod"
)

var self = Header{Job: "uid-1", Secret: "s3cret", Role: pod.PS, Index: 2, Incarnation: 3, Master: 1, Life: 7}

func TestAdmit(t *testing.T) {
	worker := Header{Job: "uid-1", Secret: "s3cret", Role: pod.Worker, Index: 5, Incarnation: 1, Life: 7}
	for name, c := range map[string]struct {
		change func(*Header)
		want   error
	}{
		"admitted":      {func(*Header) {}, nil},
		"another job":   {func(h *Header) { h.Job = "uid-2" }, ErrForeign},
		"no secret":     {func(h *Header) { h.Secret = "" }, ErrForeign},
		"a wrong one":   {func(h *Header) { h.Secret = "s3crets" }, ErrForeign},
		"another role":  {func(h *Header) { h.Role = pod.PS }, ErrForbidden},
		"a role beside": {func(h *Header) { h.Role = User }, ErrForbidden},
	} {
		h := worker
		c.change(&h)
		err := Admit(self, h, pod.Worker, pod.Master)
		if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil && (strings.Contains(err.Error(), h.Secret) && h.Secret != "" || strings.Contains(err.Error(), self.Secret)) {
			t.Errorf("%s: the error tells the secret: %v", name, err)
		}
	}
}

func TestExpect(t *testing.T) {
	client := Header{Job: "uid-1", Secret: "s3cret", Role: pod.Worker}
	server := pod.ID{Role: pod.PS, Index: 2}
	for _, c := range []struct {
		called      pod.ID
		incarnation int
		want        error
	}{
		{server, 3, nil}, {server, 0, nil},
		{server, 4, ErrReplaced}, // an old process answers at the address
		{server, 2, ErrLife},     // the caller has not heard of the newer one
		{pod.ID{Role: pod.PS, Index: 1}, 3, ErrForbidden},
		{pod.ID{Role: pod.Master}, 1, ErrForbidden},
	} {
		if err := Expect(client, self, c.called, c.incarnation); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%v launch %d: %v", c.called, c.incarnation, err)
		}
	}
}

// Law 3, of the master.
func TestMasterThatWasReplaced(t *testing.T) {
	old, next := Header{Job: "uid-1", Secret: "s3cret", Role: pod.Master, Incarnation: 1}, Header{Job: "uid-1", Secret: "s3cret", Role: pod.Master, Incarnation: 2}
	server := self
	for heard, refused := range map[int]bool{0: false, 1: false, 2: true} {
		server.Master = heard
		for what, err := range map[string]error{
			"it calls":     Admit(server, old, pod.Master),
			"it is called": Admit(old, server, pod.PS),
			"it answers":   Expect(server, old, old.ID(), 0),
		} {
			if errors.Is(err, ErrReplaced) != refused || (err != nil) != refused {
				t.Errorf("launch 1 of the master, after launch %d was heard: %s: %v", heard, what, err)
			}
		}
		if err := Admit(server, next, pod.Master); err != nil {
			t.Errorf("launch 2 of the master, after launch %d was heard: %v", heard, err)
		}
	}
}

func TestSameLife(t *testing.T) {
	other := self
	if err := SameLife(self, other); err != nil {
		t.Error(err)
	}
	other.Life = 6
	if err := SameLife(self, other); !errors.Is(err, ErrLife) || !strings.Contains(err.Error(), "life 6") || !strings.Contains(err.Error(), "life 7") {
		t.Error(err)
	}
}

func TestAnotherProtocolIsNamed(t *testing.T) {
	h := self
	h.Protocol = Protocol + 1
	if _, err := Parse(h.Append(nil)); !errors.Is(err, ErrForeign) || !strings.Contains(err.Error(), fmt.Sprintf("protocol %d, this program %d", Protocol+1, Protocol)) {
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
