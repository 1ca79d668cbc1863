package tcpstore

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestStore(t *testing.T) {
	number := func(n int64) string { return string(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
	blob := func(s string) string { return number(int64(len(s))) + s }
	type step struct {
		from client
		ask  request
		want string // the answers, as client:bytes
	}
	k := func(kind kind, key string, values ...string) request {
		r := request{kind: kind, keys: []string{key}}
		for _, v := range values {
			r.values = append(r.values, []byte(v))
		}
		return r
	}
	n := func(kind kind, key string, number int64) request {
		return request{kind: kind, keys: []string{key}, number: number}
	}
	keys := func(kind kind, keys ...string) request { return request{kind: kind, keys: keys} }
	for name, steps := range map[string][]step{
		"values": {
			{1, k(get, "a"), "1:" + blob("")},
			{1, k(set, "a", "x"), ""},
			{2, k(get, "a"), "2:" + blob("x")},
			{2, k(appendTo, "a", "y"), ""},
			{2, k(appendTo, "b", "z"), ""},
			{2, keys(multiGet, "a", "b", "none"), "2:" + blob("xy") + blob("z") + blob("")},
			{2, keys(numKeys), "2:" + number(2)},
			{2, keys(listKeys), "2:" + number(2) + blob("a") + blob("b")},
			{2, k(deleteKey, "a"), "2:" + number(1)},
			{2, k(deleteKey, "a"), "2:" + number(0)},
			{2, request{kind: ping, number: 7}, "2:\x07\x00\x00\x00"},
			{2, request{kind: validate, number: magic}, ""},
		},
		"add": {
			{1, n(add, "a", 5), "1:" + number(5)},
			{1, n(add, "a", -7), "1:" + number(-2)},
			{1, k(get, "a"), "1:" + blob("-2")},
			{1, k(set, "b", "three"), ""},
			{1, n(add, "b", 1), `error: add to key "b": its value is not a number: "three"`},
			{1, k(get, "b"), "1:" + blob("three")},
		},
		"compare set": {
			// there is none, which PyTorch does not say
			{1, k(compareSet, "a", "x", "y"), "1:" + blob("x")},
			{1, keys(check, "a"), "1:\x01"},
			{1, k(compareSet, "a", "", "y"), "1:" + blob("y")},
			{1, k(compareSet, "a", "x", "z"), "1:" + blob("y")},
			{1, k(compareSet, "a", "y", "z"), "1:" + blob("z")},
			{1, k(get, "a"), "1:" + blob("z")},
		},
		"wait": {
			{1, keys(wait), "1:\x00"},
			{1, keys(wait, "a", "b", "b"), ""},
			{2, keys(wait, "b"), ""},
			{3, k(set, "b", "x"), "2:\x00"},
			{3, k(deleteKey, "b"), "3:" + number(1)},
			{3, n(add, "a", 1), "3:" + number(1) + " 1:\x00"}, // both have existed
			{3, k(set, "b", "x"), ""},
			{3, keys(check, "a", "b"), "3:\x00"},
			{3, keys(wait, "a", "b"), "3:\x00"},
		},
		"wait given up": {
			{1, keys(wait, "a"), ""},
			{1, keys(cancelWait), "1:\x01"},
			{2, k(set, "a", "x"), ""},
			{1, keys(wait, "b"), ""},
			{1, keys(check, "a"), "1:\x00"}, // what 1.x sends after its timeout
			{2, k(set, "b", "x"), ""},
			{2, keys(cancelWait), "2:\x01"},
		},
		"queue": {
			{1, k(queuePop, "q"), "1:" + number(0)},
			{1, keys(wait, "q"), ""},
			{2, keys(wait, "q", "a"), ""},
			{3, keys(wait, "q"), ""},
			{4, k(queuePush, "q", "x"), "1:\x00"},
			{4, k(queuePush, "q", "y"), "3:\x00"}, // 2 has seen it, and lacks a
			{4, k(queuePush, "q", "z"), ""},
			{4, k(queueLen, "q"), "4:" + number(3)},
			{4, keys(check, "q"), "4:\x00"},
			{4, keys(numKeys), "4:" + number(0)},
			{4, k(queuePop, "q"), "4:" + number(3) + blob("x")},
			{4, k(set, "a", ""), "2:\x00"},
			{4, k(queuePop, "q"), "4:" + number(2) + blob("y")},
			{4, k(queuePop, "q"), "4:" + number(1) + blob("z")},
			{4, keys(check, "q"), "4:\x01"},
		},
		"barrier": {
			{1, n(barrier, "b", 3), ""},
			{2, n(barrier, "b", 3), ""},
			{2, keys(cancelWait), "2:\x01"},
			{3, n(barrier, "b", 3), "3:\x00 1:\x00"},
			// a second time nobody waits: so it is in PyTorch
			{4, n(barrier, "b", 3), "4:\x00"},
			{4, k(get, "b"), "4:" + blob("4")},
			{4, k(set, "c", "x"), ""},
			{4, n(barrier, "c", 3), `error: add to key "c": its value is not a number: "x"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(1 << 20)
			for i, step := range steps {
				answers, err := s.apply(step.from, step.ask)
				if got := said(answers, err); got != step.want {
					t.Fatalf("step %d: %v of client %d: answered %q, want %q", i, step.ask, step.from, got, step.want)
				}
			}
		})
	}
}

func said(answers []answer, err error) string {
	if err != nil {
		return "error: " + err.Error()
	}
	var all []string
	for _, a := range answers {
		all = append(all, fmt.Sprintf("%d:%s", a.to, a.bytes))
	}
	return strings.Join(all, " ")
}

// dumb is a store without an index, which computes everything again.
type dumb struct {
	values map[string]string
	queues map[string][]string
	waits  []dumbWait // in the order in which they began
}

type dumbWait struct {
	who  client
	lack []string
}

// appeared crosses the key out in all waits, until that many are over.
func (d *dumb) appeared(key string, most int) string {
	var over []string
	var rest []dumbWait
	for _, w := range d.waits {
		if len(over) < most && slices.Contains(w.lack, key) {
			w.lack = slices.DeleteFunc(slices.Clone(w.lack), func(k string) bool { return k == key })
		}
		if len(w.lack) == 0 {
			over = append(over, fmt.Sprintf("%d:\x00", w.who))
		} else {
			rest = append(rest, w)
		}
	}
	d.waits = rest
	return strings.Join(over, " ")
}

func (d *dumb) gone(c client) {
	d.waits = slices.DeleteFunc(d.waits, func(w dumbWait) bool { return w.who == c })
}

func (d *dumb) there(key string) bool {
	_, ok := d.values[key]
	return ok || len(d.queues[key]) > 0
}

// TestStoreIsDumb compares the store with one that keeps no index: both give the same answers to
// the same clients, in the same order.
func TestStoreIsDumb(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, d := newStore(1<<20), &dumb{values: make(map[string]string), queues: make(map[string][]string)}
		clients, names := rapid.IntRange(1, 5), rapid.SampledFrom([]string{"a", "b", "c", "d"})
		check := func(c client, r request, want string) {
			answers, err := s.apply(c, r)
			if got := said(answers, err); strings.TrimSpace(got) != strings.TrimSpace(want) {
				t.Fatalf("%v of client %d: answered %q, want %q", r, c, got, want)
			}
		}
		number := func(n int) string { return string(binary.LittleEndian.AppendUint64(nil, uint64(n))) }
		actions := map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				c, key, value := client(clients.Draw(t, "client")), names.Draw(t, "key"),
					rapid.StringN(0, 3, 9).Draw(t, "value")
				d.gone(c)
				d.values[key] = value
				check(c, request{kind: set, keys: []string{key}, values: [][]byte{[]byte(value)}}, d.appeared(key, 99))
			},
			"add": func(t *rapid.T) {
				c, key, n := client(clients.Draw(t, "client")), names.Draw(t, "key"), rapid.IntRange(-3, 3).Draw(t, "n")
				d.gone(c)
				now, err := strconv.Atoi(cmp.Or(d.values[key], "0"))
				if value, ok := d.values[key]; ok && (err != nil || value == "") {
					check(c, request{kind: add, keys: []string{key}},
						fmt.Sprintf("error: add to key %q: its value is not a number: %q", key, value))
					return
				}
				d.values[key] = strconv.Itoa(now + n)
				check(c, request{kind: add, keys: []string{key}, number: int64(n)},
					fmt.Sprintf("%d:%s %s", c, number(now+n), d.appeared(key, 99)))
			},
			"delete": func(t *rapid.T) {
				c, key := client(clients.Draw(t, "client")), names.Draw(t, "key")
				d.gone(c)
				n := 0
				if _, ok := d.values[key]; ok {
					n = 1
				}
				delete(d.values, key)
				check(c, request{kind: deleteKey, keys: []string{key}}, fmt.Sprintf("%d:%s", c, number(n)))
			},
			"wait": func(t *rapid.T) {
				c, keys := client(clients.Draw(t, "client")), rapid.SliceOfN(names, 0, 3).Draw(t, "keys")
				d.gone(c)
				lack := slices.DeleteFunc(slices.Clone(keys), d.there)
				want := fmt.Sprintf("%d:\x00", c)
				if len(lack) > 0 {
					d.waits, want = append(d.waits, dumbWait{c, lack}), ""
				}
				check(c, request{kind: wait, keys: keys}, want)
			},
			"push": func(t *rapid.T) {
				c, key, value := client(clients.Draw(t, "client")), names.Draw(t, "key"),
					rapid.StringN(0, 3, 9).Draw(t, "value")
				d.gone(c)
				d.queues[key] = append(d.queues[key], value)
				check(c, request{kind: queuePush, keys: []string{key}, values: [][]byte{[]byte(value)}},
					d.appeared(key, 1))
			},
			"pop": func(t *rapid.T) {
				c, key := client(clients.Draw(t, "client")), names.Draw(t, "key")
				d.gone(c)
				want := fmt.Sprintf("%d:%s", c, number(len(d.queues[key])))
				if q := d.queues[key]; len(q) > 0 {
					want, d.queues[key] = want+number(len(q[0]))+q[0], q[1:]
				}
				check(c, request{kind: queuePop, keys: []string{key}}, want)
			},
			"leave": func(t *rapid.T) {
				c := client(clients.Draw(t, "client"))
				d.gone(c)
				s.stopWaiting(c)
			},
			"": func(t *rapid.T) {
				held := 0
				for key, value := range d.values {
					held += overhead + len(key) + len(value)
				}
				for key, queue := range d.queues {
					for _, value := range queue {
						held += overhead + len(key) + len(value)
					}
				}
				waiting := make(map[client]bool)
				for _, w := range d.waits {
					slices.Sort(w.lack)
					for _, key := range slices.Compact(slices.Clone(w.lack)) {
						held += overhead + len(key)
					}
					waiting[w.who] = true
				}
				if s.held != held || len(s.missing) != len(waiting) {
					t.Fatalf("the store holds %d bytes for %d who wait, want %d for %d", s.held,
						len(s.missing), held, len(waiting))
				}
			},
		}
		t.Repeat(actions)
	})
}

func TestStoreIsBounded(t *testing.T) {
	s := newStore(1000)
	full := func(r request) error {
		t.Helper()
		answers, err := s.apply(1, r)
		if err == nil {
			t.Fatalf("%d bytes are held; answered %v", s.held, answers)
		}
		return err
	}
	if _, err := s.apply(1, request{kind: set, keys: []string{"a"}, values: [][]byte{make([]byte, 500)}}); err != nil {
		t.Fatal(err)
	}
	big := [][]byte{make([]byte, 500)}
	for _, r := range []request{
		{kind: set, keys: []string{"b"}, values: big}, {kind: appendTo, keys: []string{"a"}, values: big},
		{kind: multiSet, keys: []string{"b", "c"}, values: [][]byte{big[0][:200], big[0][:200]}},
		{kind: compareSet, keys: []string{"b"}, values: [][]byte{nil, big[0]}},
		{kind: queuePush, keys: []string{"b"}, values: big},
		{kind: wait, keys: []string{"b", string(make([]byte, 500))}},
		{kind: add, keys: []string{string(make([]byte, 500))}},
		{kind: barrier, keys: []string{string(make([]byte, 500))}},
	} {
		full(r)
		if want := overhead + 1 + 500; s.held != want || len(s.missing) > 0 || len(s.values) != 1 {
			t.Errorf("after %v: %d bytes are held, want %d", r.kind, s.held, want)
		}
	}
	many := slices.Repeat([]string{"v"}, maxMessage/(1<<10)+1)
	s.most, s.values["v"] = 1<<30, make([]byte, 1<<10)
	if err := full(request{kind: multiGet, keys: many}); !bytes.Contains([]byte(err.Error()),
		[]byte("more than 67108864 bytes")) {
		t.Error(err)
	}
}
