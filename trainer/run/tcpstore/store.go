package tcpstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// overhead is the cost of a map's entry in addition to its bytes.
const overhead = 64

// client is a connection.
type client int

// answer is bytes that a client is to be sent, in the order in which the store makes them.
type answer struct {
	to    client
	bytes []byte
}

// store holds the keys, the queues, and which clients wait for which of them. It does no I/O: the
// server passes it requests and sends what it answers.
type store struct {
	// limit of held, in bytes
	most int
	// bytes that it holds, including the keys of waits
	held   int
	values map[string][]byte
	// none is empty
	queues map[string][][]byte

	// by waiting client: its keys that have not existed since its wait began
	missing map[client]map[string]bool
	// the same by key, in the order in which they came
	waiters map[string][]client
}

func newStore(most int) *store {
	return &store{
		most: most, values: make(map[string][]byte), queues: make(map[string][][]byte),
		missing: make(map[client]map[string]bool), waiters: make(map[string][]client),
	}
}

// apply does what the client asks for and returns what is to be sent, also to clients that waited
// for it. After an error the client is to be disconnected; nothing has changed except that it does
// not wait any more.
func (s *store) apply(from client, r request) ([]answer, error) {
	s.stopWaiting(from)
	if err := s.room(r); err != nil {
		return nil, err
	}
	own := func(b []byte) []answer { return []answer{{from, b}} }
	switch r.kind {
	case validate:
		return nil, nil
	case ping:
		return own(binary.LittleEndian.AppendUint32(nil, uint32(r.number))), nil
	case set, multiSet:
		var all []answer
		for i, key := range r.keys {
			all = append(all, s.put(key, r.values[i])...)
		}
		return all, nil
	case appendTo:
		key := r.keys[0]
		return s.put(key, append(s.values[key], r.values[0]...)), nil
	case compareSet:
		now, woken := s.compareSet(r.keys[0], r.values[0], r.values[1])
		return append(own(appendBlob(nil, now)), woken...), nil
	case add:
		sum, err := s.sum(r.keys[0], r.number)
		if err != nil {
			return nil, err
		}
		return append(own(appendNumber(nil, sum)), s.put(r.keys[0], strconv.AppendInt(nil, sum, 10))...), nil
	case get, multiGet:
		b, err := s.get(r.keys)
		return own(b), err
	case check:
		if slices.ContainsFunc(r.keys, func(key string) bool { return !s.has(key) }) {
			return own([]byte{notReady}), nil
		}
		return own([]byte{ready}), nil
	case wait:
		return s.wait(from, r.keys), nil
	case cancelWait:
		return own([]byte{waitCanceled}), nil
	case barrier:
		return s.barrier(from, r.keys[0], r.number)
	case numKeys:
		return own(appendNumber(nil, int64(len(s.values)))), nil
	case listKeys:
		b, err := s.list()
		return own(b), err
	case deleteKey:
		return own(appendNumber(nil, s.delete(r.keys[0]))), nil
	case queuePush:
		return s.push(r.keys[0], r.values[0]), nil
	case queuePop:
		return own(s.pop(r.keys[0])), nil
	case queueLen:
		return own(appendNumber(nil, int64(len(s.queues[r.keys[0]])))), nil
	}
	return nil, refused("unknown kind %d", r.kind)
}

// room returns an error if the store would not have the room for what the request brings.
func (s *store) room(r request) error {
	size := s.held
	for _, key := range r.keys {
		size += overhead + len(key)
	}
	for _, value := range r.values {
		size += len(value)
	}
	if brings := len(r.values) > 0 || r.kind == add || r.kind == wait || r.kind == barrier; brings && size > s.most {
		return fmt.Errorf("the store is full: it holds %d bytes, the limit is %d", s.held, s.most)
	}
	return nil
}

// stopWaiting forgets that the client waits.
func (s *store) stopWaiting(c client) {
	for key := range s.missing[c] {
		if s.waiters[key] = slices.DeleteFunc(s.waiters[key], func(w client) bool {
			return w == c
		}); len(s.waiters[key]) == 0 {
			delete(s.waiters, key)
		}
		s.held -= overhead + len(key)
	}
	delete(s.missing, c)
}

func (s *store) has(key string) bool {
	_, ok := s.values[key]
	return ok || len(s.queues[key]) > 0
}

// put sets the key, and ends the waits that lacked only it.
func (s *store) put(key string, value []byte) []answer {
	s.keep(key, value)
	return s.wake(key, len(s.waiters[key]))
}

func (s *store) keep(key string, value []byte) {
	s.delete(key)
	s.values[key] = value
	s.held += overhead + len(key) + len(value)
}

// wake notes that a key now exists for the clients that wait for it, in their order, until most of
// them lack nothing more.
func (s *store) wake(key string, most int) []answer {
	var woken []answer
	waiters := s.waiters[key]
	for len(waiters) > 0 && len(woken) < most {
		c := waiters[0]
		waiters = waiters[1:]
		delete(s.missing[c], key)
		s.held -= overhead + len(key)
		if len(s.missing[c]) == 0 {
			delete(s.missing, c)
			woken = append(woken, answer{c, []byte{stopWaiting}})
		}
	}
	if s.waiters[key] = waiters; len(waiters) == 0 {
		delete(s.waiters, key)
	}
	return woken
}

// wait answers at once if all keys exist, otherwise when the last of them has come.
func (s *store) wait(c client, keys []string) []answer {
	for _, key := range keys {
		if !s.has(key) {
			s.miss(c, key)
		}
	}
	if s.missing[c] == nil {
		return []answer{{c, []byte{stopWaiting}}}
	}
	return nil
}

func (s *store) miss(c client, key string) {
	if s.missing[c] == nil {
		s.missing[c] = make(map[string]bool)
	}
	if !s.missing[c][key] {
		s.missing[c][key] = true
		s.waiters[key] = append(s.waiters[key], c)
		s.held += overhead + len(key)
	}
}

// compareSet sets the key if it has the expected value, or if none is expected and there is none.
// It returns what the client is to believe: the value, and what it expected if there is none, as
// PyTorch does.
func (s *store) compareSet(key string, expected, desired []byte) ([]byte, []answer) {
	now, ok := s.values[key]
	switch {
	case ok && !bytes.Equal(now, expected):
		return now, nil
	case !ok && len(expected) > 0:
		return expected, nil
	}
	return desired, s.put(key, desired)
}

// sum returns the key's value, a decimal number or nothing, and n more.
func (s *store) sum(key string, n int64) (int64, error) {
	now, ok := s.values[key]
	if !ok {
		return n, nil
	}
	v, err := strconv.ParseInt(string(now), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("add to key %.100q: its value is not a number: %.100q", key, now)
	}
	return v + n, nil
}

// barrier counts the clients that have come in the key itself; counting alone ends no wait. A
// client that comes after the last does not wait.
func (s *store) barrier(from client, key string, size int64) ([]answer, error) {
	count, err := s.sum(key, 1)
	if err != nil {
		return nil, err
	}
	s.keep(key, strconv.AppendInt(nil, count, 10))
	if count < size {
		s.miss(from, key)
		return nil, nil
	}
	return append([]answer{{from, []byte{stopWaiting}}}, s.wake(key, len(s.waiters[key]))...), nil
}

func (s *store) get(keys []string) ([]byte, error) {
	size := 0
	for _, key := range keys {
		if size += 8 + len(s.values[key]); size > maxMessage {
			return nil, fmt.Errorf("get %d keys: their values have more than %d bytes", len(keys), maxMessage)
		}
	}
	b := make([]byte, 0, size)
	for _, key := range keys {
		b = appendBlob(b, s.values[key])
	}
	return b, nil
}

func (s *store) list() ([]byte, error) {
	b := appendNumber(nil, int64(len(s.values)))
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		if b = appendBlob(b, key); len(b) > maxMessage {
			return nil, fmt.Errorf("list keys: they have more than %d bytes", maxMessage)
		}
	}
	return b, nil
}

// delete removes the key, and returns the number of removed keys.
func (s *store) delete(key string) int64 {
	value, ok := s.values[key]
	if !ok {
		return 0
	}
	delete(s.values, key)
	s.held -= overhead + len(key) + len(value)
	return 1
}

// push appends to the queue, and ends the first wait that lacked only this key.
func (s *store) push(key string, value []byte) []answer {
	s.queues[key] = append(s.queues[key], value)
	s.held += overhead + len(key) + len(value)
	return s.wake(key, 1)
}

func (s *store) pop(key string) []byte {
	queue := s.queues[key]
	b := appendNumber(nil, int64(len(queue)))
	if len(queue) == 0 {
		return b
	}
	b = appendBlob(b, queue[0])
	s.held -= overhead + len(key) + len(queue[0])
	if s.queues[key] = queue[1:]; len(queue) == 1 {
		delete(s.queues, key)
	}
	return b
}
