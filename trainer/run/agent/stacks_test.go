package agent

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

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
		begin, taken := time.Now(), make(chan []program.Stack)
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
			if want := (program.Stack{Local: i, Rank: 7 + i, Pid: 100 + i, Why: program.Silent}); s != want {
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
