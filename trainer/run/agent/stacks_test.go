package agent

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/stacks"
	"github.com/elasticdl/elasticdl/trainer/run/program"
)

// The stacks of all processes take as long as those of one, also if no process answers, and end
// with the request. Meanwhile the agent can change what heartbeats report.
func TestTakeStacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 50
		g := &fakeGroup{}
		a := &agent{beats: beats{urgent: make(chan struct{}, 1)}}
		for i := range n {
			g.pids = append(g.pids, 100+i)
			a.beats.signs.shown = append(a.beats.signs.shown, shown{local: i, rank: 7 + i, pid: 100 + i, group: g})
		}
		begin, taken := time.Now(), make(chan []taken)
		go func() { taken <- a.takeStacks(t.Context()) }()
		synctest.Wait()
		a.beats.set(false, func() { a.beats.signs.shown = nil })
		if age := time.Since(begin); age != 0 {
			t.Errorf("the agent has waited %v", age)
		}
		all := <-taken
		if age := time.Since(begin); age != 2*time.Second || len(all) != n {
			t.Errorf("%d stacks after %v", len(all), age)
		}
		for i, s := range all {
			if want := (program.Stack{Local: i, Rank: 7 + i, Pid: 100 + i, Why: program.Silent}); s.Stack != want {
				t.Errorf("%+v, want %+v", s, want)
			}
		}
		a.beats.signs.shown = []shown{{local: 0, rank: -1, pid: 100, group: g}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin = time.Now()
		if all := a.takeStacks(ctx); len(all) != 1 || all[0].Rank != -1 || time.Since(begin) != time.Second {
			t.Errorf("%+v after %v", all, time.Since(begin))
		}
	})
}

// loopGroup has a process that computes in a loop of some lines. It uses a part of a processor.
type loopGroup struct {
	fakeGroup
	begin time.Time
	lines int
	part  float64
	asked int
}

func (g *loopGroup) Place(int) program.Place {
	return program.Place{State: 'R', Ticks: int64(time.Since(g.begin).Seconds() * 100 * g.part)}
}

func (g *loopGroup) Stack(_ context.Context, local int) program.Stack {
	g.asked++
	text := fmt.Sprintf("Current thread 0x01 (most recent call first):\n  File \"/code/train.py\", line %d in f\n",
		g.asked%g.lines)
	return program.Stack{Local: local, Text: text, Place: g.Place(local)}
}

// A process that computes is looked at until it is found elsewhere, or often enough. One without a
// processor is looked at once.
func TestFurtherLooks(t *testing.T) {
	for name, c := range map[string]struct {
		group loopGroup
		want  stacks.Looks
		asked int
	}{
		"stands":  {loopGroup{lines: 1, part: 1}, stacks.Looks{Same: stacks.MostLooks}, 1 + stacks.MostLooks},
		"moves":   {loopGroup{lines: 2, part: 1}, stacks.Looks{Moved: true}, 2},
		"starves": {loopGroup{lines: 2, part: 0.01}, stacks.Looks{}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.group.begin = time.Now()
				got := take(t.Context(), &c.group, 0)
				if got.looks.Same != c.want.Same || got.looks.Moved != c.want.Moved || c.group.asked != c.asked {
					t.Errorf("%+v after %d looks, want %+v, %d", got.looks, c.group.asked, c.want, c.asked)
				}
				if age := time.Since(c.group.begin); age > lookLimit {
					t.Errorf("it took %v", age)
				}
			})
		})
	}
}
