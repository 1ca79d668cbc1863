package supervise

import (
	"fmt"
	"maps"
	"time"

	"pgregory.net/rapid"
)

// moves returns what may happen.
func (m *model) moves() map[string]func(*rapid.T) {
	all := m.processMoves()
	maps.Copy(all, m.masterMoves())
	moves := make(map[string]func(*rapid.T))
	// without these little happens
	for _, name := range []string{"world", "hello", "arrive", "obey"} {
		all["again "+name] = all[name]
	}
	for name, move := range all {
		moves[name] = func(t *rapid.T) {
			if m.T = t; !m.finished {
				move()
			}
		}
	}
	return moves
}

// processMoves returns what processes do. Moves that are impossible return false.
func (m *model) processMoves() map[string]func() bool {
	works := func(p *fakeProcess) bool { return p.conn > 0 && !p.done && !p.waits }
	return map[string]func() bool{
		"obey": m.obey,
		"hello": func() bool {
			p := m.some(func(p *fakeProcess) bool { return p.conn == 0 })
			if p == nil {
				return false
			}
			p.conn, p.keeps = p.pid, rapid.Bool().Draw(m.T, "keeps state")
			m.conns[p.conn] = p
			m.tell(Hello{Conn: p.conn, Pid: p.pid, Leader: p.pid, KeepsState: p.keeps})
			return true
		},
		"stranger": func() bool {
			m.tell(Hello{Conn: 7, Pid: 7, Leader: 7}, Done{7}, Arrived{Conn: 7}, Account{7, m.world, nil}, Closed{7})
			return true
		},
		"arrive": func() bool {
			p := m.some(works)
			if p == nil || !p.keeps {
				return false
			}
			p.waits, p.recalled = true, false
			m.tell(Arrived{Conn: p.conn, Round: int64(rapid.IntRange(-1, 9).Draw(m.T, "round")),
				Read: rapid.Bool().Draw(m.T, "read")})
			return true
		},
		"arrive early": func() bool {
			p := m.some(func(p *fakeProcess) bool { return works(p) && p.world == 0 && p.keeps })
			if p == nil {
				return false
			}
			p.waits = true
			m.tell(Arrived{Conn: p.conn, Round: -1, Early: true})
			return true
		},
		"done": func() bool {
			p := m.some(works)
			if p == nil || p.world == 0 {
				return false
			}
			p.done, m.final = true, true
			m.tell(Done{p.conn})
			return true
		},
		"account": func() bool {
			p := m.some(works)
			if p == nil || p.world != m.world || m.arrived || m.s.beat.Generation != m.world ||
				m.s.ofConn(p.conn) == nil { // it connected after it was ordered to end
				return false
			}
			m.ledger, m.asked = fmt.Append(nil, m.pids, m.now), false
			m.tell(Account{p.conn, m.world, m.ledger})
			return true
		},
		"exit": func() bool {
			p := m.some(func(p *fakeProcess) bool { return !p.stopped })
			if p == nil {
				return false
			}
			code := rapid.SampledFrom([]int{0, 1, 80, 81, 83, -9, -11}).Draw(m.T, "code")
			m.exit(p, code, max(0, -code), false, rapid.Bool().Draw(m.T, "forked") && code == -11)
			return true
		},
		"close": func() bool {
			for conn, p := range m.conns {
				if m.live[p.pid] == nil {
					delete(m.conns, conn)
					m.tell(Closed{conn})
					return true
				}
			}
			return false
		},
		"freeze": func() bool {
			p := m.some(func(p *fakeProcess) bool { return true })
			if p != nil {
				p.stopped = !p.stopped && !p.killed || p.killed && p.stopped
			}
			return p != nil
		},
		"stay frozen": func() bool {
			p := m.some(func(p *fakeProcess) bool { return !p.killed })
			if p == nil || rapid.IntRange(0, 4).Draw(m.T, "rarely") > 0 {
				return false
			}
			p.stopped = true
			most := m.policy.HeartbeatTimeout + time.Second
			for end := m.now.Add(most); m.now.Before(end) && m.live[p.pid] != nil && !p.killed; {
				m.pass(end.Sub(m.now))
			}
			return true
		},
	}
}

// masterMoves returns what the master and time do.
func (m *model) masterMoves() map[string]func() bool {
	inWorld := func() bool { return m.world > 0 && !m.arrived && !m.ended }
	return map[string]func() bool{
		"world": func() bool {
			if !m.arrived || m.ended {
				return false
			}
			m.arrived, m.lost = false, false
			m.world++
			m.asked, m.ledger, m.final = false, nil, false
			w := World{Generation: m.world, ID: m.world, LocalSize: m.members, Source: -1,
				First: rapid.IntRange(0, 2).Draw(m.T, "first"),
				Pause: time.Duration(rapid.SampledFrom([]int{0, 0, 5}).Draw(m.T, "pause")) * time.Second}
			w.Size = w.First + w.LocalSize + 1
			for _, p := range m.live {
				p.since = time.Time{}
			}
			m.tell(w)
			return true
		},
		"recall": func() bool {
			if !inWorld() {
				return false
			}
			m.tell(Recalled{m.world, rapid.Bool().Draw(m.T, "joins")})
			return true
		},
		"lose": func() bool {
			if !inWorld() {
				return false
			}
			m.lost = true
			m.tell(Lost{m.world})
			return true
		},
		"old news": func() bool {
			m.tell(Recalled{m.world - 1, false}, Lost{m.world - 1})
			return true
		},
		"ask": func() bool {
			m.asked = true
			m.tell(AccountAsked{})
			return true
		},
		"leave": func() bool {
			if m.leaving || rapid.IntRange(0, 9).Draw(m.T, "rarely") > 0 {
				return false
			}
			m.leaving, m.leaveBy = true, m.now.Add(30*time.Second)
			m.tell(LeaveAsked{m.leaveBy})
			return true
		},
		"stop": func() bool {
			m.tell(StopAsked{m.now.Add(20 * time.Second)})
			return true
		},
		"hung": func() bool {
			p := m.some(func(p *fakeProcess) bool { return !p.killed && !p.terminated })
			if p == nil || rapid.IntRange(0, 2).Draw(m.T, "rarely") > 0 {
				return false
			}
			e := Hung{Generation: m.world - int64(rapid.IntRange(0, 1).Draw(m.T, "late")), Pid: p.pid, Why: "it hangs"}
			p.judged = e.Generation == m.world
			works := p.judged && m.s.Phase() == Running && p.world == m.world && !p.waits && !m.ended
			m.tell(e)
			if works && !p.hung {
				m.Fatalf("%v: it was not killed", e)
			}
			p.judged = false
			return true
		},
		"others": func() bool {
			late := int64(rapid.IntRange(0, 1).Draw(m.T, "late"))
			m.tell(Others{m.world - late, rapid.IntRange(0, 2).Draw(m.T, "ranks")})
			return true
		},
		"leases": func() bool {
			m.unreported = rapid.Bool().Draw(m.T, "unreported")
			m.tell(Leases{m.unreported})
			return true
		},
		"wait": func() bool {
			m.pass(time.Duration(rapid.IntRange(1, 60_000).Draw(m.T, "ms")) * time.Millisecond)
			return true
		},
		"ready": func() bool {
			m.tell(Ready{})
			return true
		},
		"end": func() bool {
			if m.ended || rapid.IntRange(0, 9).Draw(m.T, "rarely") > 0 {
				return false
			}
			m.ended = true
			m.tell(End{})
			return true
		},
	}
}
