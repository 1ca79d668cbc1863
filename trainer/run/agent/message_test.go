package agent

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/leases"
	"github.com/elasticdl/elasticdl/trainer/elastic/ledger"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The messages that the agent accepts and sends are those of PROTOCOL.md.
func TestMessagesAreThoseOfTheProtocol(t *testing.T) {
	text, err := os.ReadFile("../python/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, from, _ := strings.Cut(string(text), "## From the script")
	script, agent, _ := strings.Cut(from, "## From the agent")
	agent, _, _ = strings.Cut(agent, "\n## ")
	rows := regexp.MustCompile("(?m)^\\| `(\\w+)` \\|")
	taken := make(map[string]bool)
	for _, row := range rows.FindAllStringSubmatch(script, -1) {
		if row[1] == "op" { // the head of the table
			continue
		}
		if taken[row[1]] = true; protocol[row[1]] == nil {
			t.Errorf("the agent does not know the message %q of a script", row[1])
		}
	}
	for op := range protocol {
		if !taken[op] {
			t.Errorf("PROTOCOL.md does not have the message %q of a script", op)
		}
	}
	sent := make(map[string]bool)
	for _, row := range rows.FindAllStringSubmatch(agent, -1) {
		sent[row[1]] = true
	}
	delete(sent, "op") // the head of the table
	for _, m := range []outbound{worldMessage{}, outsideMessage{}, recallMessage{}, leaveMessage{}, stopMessage{},
		askMessage{}, endMessage{}} {
		if !sent[m.op()] {
			t.Errorf("PROTOCOL.md does not have the message %q of the agent", m.op())
		}
		delete(sent, m.op())
	}
	for op := range sent {
		t.Errorf("the agent does not send %q", op)
	}
}

// A message is one line with its op first, whether or not it has fields.
func TestEncode(t *testing.T) {
	for want, m := range map[string]outbound{
		`{"op":"account"}`:                           askMessage{},
		`{"op":"recall","formation":3,"now":true}`:   recallMessage{3, true},
		`{"op":"end","code":1,"why":"it has \"q\""}`: endMessage{1, `it has "q"`},
	} {
		if got := string(encode(m)); got != want+"\n" {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A request that cannot be decoded is refused, and does not end the connection.
func TestParse(t *testing.T) {
	for line, want := range map[string]struct {
		q   int64
		bad bool
	}{
		`{"op":"lease","q":2}`:                        {2, false},
		`{"op":"get","q":3,"f":1,"k":"a"}`:            {3, false},
		`{"op":"get","q":4,"f":1,"k":5}`:              {4, true},
		`{"op":"set","q":5,"f":1,"k":"a","v":"%"}`:    {5, true},
		`{"op":"what","q":6}`:                         {6, false},
		`{"op":"arrive","ledger":[[0,-64,4]]}`:        {0, true},
		`{"op":"account","ledger":[[0,0,-1]]}`:        {0, true},
		`{"op":"arrive","ledger":[[2147483647,1,1]]}`: {0, true},
		`[]`: {0, true},
	} {
		_, q, err := parse([]byte(line))
		if (err != nil) != want.bad || (q != nil) != (want.q > 0) || q != nil && *q != want.q {
			t.Errorf("%s: %v, %v", line, q, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, line := range []string{
		`{"op":"hello","v":1,"pid":7,"local_rank":0,"survives":true,"torch":"2.7","backend":"gloo"}`,
		`{"op":"arrive","formation":3,"round":9,"ledger":[[0,2,2],[1,0,3]]}`,
		`{"op":"arrive","ledger":[[0,-64,4]]}`, `{"op":"arrive","ledger":[[2147483647,1,1]]}`,
		`{"op":"arrive","ledger":[[-1,0,-4]]}`, `{"op":"account","formation":1,"ledger":[[1,0,4]],"settled":1}`,
		`{"op":"round","formation":3,"round":10,"credits":[[0,1,2,4]],"leases":[[5,4],[-5,-4]],"loss":null,"records":2,"total":8}`,
		`{"op":"round","loss":1e999}`, `{"op":"set","q":1,"f":3,"k":"a","v":"YQ=="}`, `{"op":"lease","q":2}`, `[]`, `{`,
		`{"op":"compare_set","q":1,"f":3,"k":"a","e":"","v":"YQ=="}`, `{"op":"had","leases":[[5,1]]}`,
	} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		m, _, err := parse(line)
		if err != nil {
			return
		}
		r := newRecords(nil, 0, func(*wire.ReportTaskRequest) { t.Fatal("a lease is reported that has records left") })
		const size = 1 << 62
		process := &script{number: 1}
		grant := leases.Grant{Lease: &leases.Lease{ID: 5, End: size}}
		r.holder.Answered(process.number, grant, time.Time{})
		var state stateRecords
		switch m := m.(type) {
		case roundMessage:
			r.round(process, m)
		case stateMessage:
			r.receivedState(process, m.Leases)
		case arriveMessage:
			state = m.stateRecords
		case accountMessage:
			state = m.stateRecords
		}
		for _, declared := range []bool{false, true} {
			if declared {
				r.holder.Declared(leases.Dataset{Size: 10, PerTask: 4}, leases.Grant{})
			}
			if _, err := ledger.Parse(r.ledger(state)); err != nil {
				t.Fatalf("a ledger that the master does not take: %v", err)
			}
		}
		reported := make(map[int64]bool)
		r.report = func(r *wire.ReportTaskRequest) { reported[r.Lease] = true }
		r.met(process)
		for _, l := range r.holder.Status().Leases {
			reported[l.ID] = l.Done >= 0 && l.Done < size
		}
		if len(reported) != 1 || !reported[5] {
			t.Fatalf("%v are done, or have an impossible progress: %v", reported, r.holder.Status())
		}
	})
}
