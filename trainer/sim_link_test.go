package trainer_test

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"sync"
)

// link is the connection of a process to its agent, as link.py of the package has it. The mutex
// guards what changes.
type link struct {
	process *fakeProcess
	conn    net.Conn
	// is given each message that is no reply
	heard func(told)

	mu      sync.Mutex
	changed *sync.Cond
	sending sync.Mutex
	replies map[int]told
	// number of the last request
	number int
	// generations up to this one are over
	over int64
	// the connection has ended
	lost bool
}

// A message of the agent.
type told struct {
	Op        string          `json:"op"`
	Q         int             `json:"q"`
	OK        json.RawMessage `json:"ok"`
	Err       string          `json:"err"`
	Cancelled bool            `json:"cancelled"`

	Generation int64 `json:"formation"`
	Rank       int   `json:"rank"`
	Size       int   `json:"size"`
	Source     int   `json:"source"`
	Settled    int   `json:"settled"`
	Floor      int64 `json:"floor"`
	Now        bool  `json:"now"`
	// of leave and stop
	Deadline float64 `json:"deadline"`
	Code     int     `json:"code"`
	Why      string  `json:"why"`
}

var errCancelled = errors.New("the world of the request is over")

// newLink connects a process to its agent, which it greets.
func newLink(p *fakeProcess, heard func(told), hello map[string]any) *link {
	l := &link{process: p, heard: heard, replies: make(map[int]told)}
	l.changed = sync.NewCond(&l.mu)
	var err error
	l.conn, err = p.network.dial(p.host)(p.ctx, p.address)
	p.stand()
	if err != nil {
		p.exits(codeAgentLost)
	}
	context.AfterFunc(p.ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.changed.Broadcast()
	})
	binary.Write(l.conn, binary.BigEndian, uint32(p.pid))
	l.say("hello", hello)
	go l.read()
	return l
}

// Exit codes of the package.
const (
	codeAgentLost = 80
	codeDoubt     = 81
)

// say sends a message.
func (l *link) say(op string, fields map[string]any) {
	l.process.stand()
	defer l.process.stand()
	l.sending.Lock()
	defer l.sending.Unlock()
	line := map[string]any{"op": op}
	maps.Copy(line, fields)
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	l.conn.Write(append(text, '\n'))
}

// ask sends a request, and returns its answer. One of a generation is cancelled with it; 0: it is
// of none.
func (l *link) ask(op string, generation int64, fields map[string]any) (json.RawMessage, error) {
	l.mu.Lock()
	if generation > 0 && generation <= l.over {
		l.mu.Unlock()
		return nil, errCancelled
	}
	l.number++
	number := l.number
	l.mu.Unlock()
	line := map[string]any{"q": number}
	maps.Copy(line, fields)
	if generation > 0 {
		line["f"] = generation
	}
	l.say(op, line)
	defer l.process.stand()
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		reply, ok := l.replies[number]
		switch {
		case ok && reply.Cancelled, generation > 0 && generation <= l.over:
			return nil, errCancelled
		case ok && reply.Err != "":
			return nil, errors.New(reply.Err)
		case ok:
			return reply.OK, nil
		case l.lost, l.process.ctx.Err() != nil:
			return nil, errors.New("the connection has ended")
		}
		l.changed.Wait()
	}
}

// cancel ends all requests of generations up to this one.
func (l *link) cancel(generation int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = max(l.over, generation)
	l.changed.Broadcast()
}

// read takes the messages of the agent until the connection ends: then the process does, too.
func (l *link) read() {
	lines := bufio.NewScanner(l.conn)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m told
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			panic(err)
		}
		l.process.stand()
		if m.Q > 0 {
			l.mu.Lock()
			l.replies[m.Q] = m
			l.changed.Broadcast()
			l.mu.Unlock()
			continue
		}
		l.heard(m)
	}
	l.process.stand()
	l.mu.Lock()
	l.lost = true
	l.changed.Broadcast()
	l.mu.Unlock()
	l.process.exits(codeAgentLost)
}

// agentStore is the store of a world, through the agent.
type agentStore struct {
	*link
	generation int64
}

func text(value string) string { return base64.StdEncoding.EncodeToString([]byte(value)) }

func (s agentStore) set(key, value string) error {
	_, err := s.ask("set", s.generation, map[string]any{"k": key, "v": text(value)})
	return err
}

func (s agentStore) get(key string) (string, error) {
	reply, err := s.ask("get", s.generation, map[string]any{"k": key})
	if err != nil {
		return "", err
	}
	var encoded string
	if err := json.Unmarshal(reply, &encoded); err != nil {
		return "", err
	}
	value, err := base64.StdEncoding.DecodeString(encoded)
	return string(value), err
}

// meet waits until all ranks have come, however long that takes. It returns whether one has ended
// before.
func (s agentStore) meet(rank, size int) (ended bool, err error) {
	if err := s.set(fmt.Sprint("elasticdl/come/", rank), "1"); err != nil {
		return false, err
	}
	var keys []string
	for r := range size {
		keys = append(keys, fmt.Sprint("elasticdl/come/", r))
	}
	if _, err := s.ask("wait", s.generation, map[string]any{"ks": keys}); err != nil {
		return false, err
	}
	reply, err := s.ask("check", s.generation, map[string]any{"ks": []string{"elasticdl/ended/any"}})
	if err == nil {
		err = json.Unmarshal(reply, &ended)
	}
	return ended, err
}
