package master

import (
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The verdict on the end of a world follows from that end and from what the program has used up.
func TestJudge(t *testing.T) {
	failed := func(f *wire.Failure) []failure { return []failure{{f, 0}} }
	own := failed(&wire.Failure{Code: 1})
	killed := failed(&wire.Failure{Signal: int32(syscall.SIGKILL)})
	doubts := failed(&wire.Failure{Code: 81, Excused: true, Doubt: true})
	excused := failed(&wire.Failure{Code: 83, Excused: true})
	forked := failed(&wire.Failure{Signal: int32(syscall.SIGSEGV), Forked: true})
	same := func(count int) repeats {
		return repeats{Last: worldEnd{}.manner(own[0]), Count: count, Ran: time.Second}
	}
	for name, c := range map[string]struct {
		had     charges
		end     worldEnd
		most    int
		want    verdict
		becomes charges
	}{
		"nobody failed": {charges{2, 3, same(2)}, worldEnd{}, 5, verdict{nothing: true},
			charges{restarts: 2, doubts: 3}},
		"a member is lost": {charges{repeats: same(2)}, worldEnd{failed: own, left: true}, 5,
			verdict{nothing: true}, charges{}},
		"an excused end": {charges{repeats: same(2)}, worldEnd{failed: excused}, 5,
			verdict{nothing: true}, charges{repeats: same(2)}},
		"its own failure": {charges{}, worldEnd{failed: own, ran: time.Second}, 1,
			verdict{charged: true}, charges{restarts: 1, repeats: same(1)}},
		"one more than allowed": {charges{restarts: 1}, worldEnd{failed: own, ran: time.Second}, 1,
			verdict{charged: true, outcome: exceeds}, charges{restarts: 2, repeats: same(1)}},
		"the same again": {charges{repeats: same(2)},
			worldEnd{failed: own, ran: time.Second}, 9, verdict{charged: true, outcome: endsSame},
			charges{restarts: 1, repeats: same(3)}},
		"the same, others kept on": {charges{repeats: same(2)},
			worldEnd{failed: own, ran: time.Second, kept: true}, 9, verdict{charged: true},
			charges{restarts: 1, repeats: same(3)}},
		"the same, after a round": {charges{doubts: 4, repeats: same(2)},
			worldEnd{failed: own, ran: time.Second, completed: true}, 9, verdict{charged: true},
			charges{restarts: 1, repeats: same(1)}},
		"for want of workers": {charges{}, worldEnd{failed: own, lacked: 1, wanted: 2}, 0,
			verdict{lacked: 1, again: ", in a world that lacked 1 of 2 workers"}, charges{}},
		"killed, for want of others": {charges{}, worldEnd{failed: killed, lacked: 1, wanted: 2}, 0,
			verdict{}, charges{}},
		"after a fork": {charges{}, worldEnd{failed: forked}, 0, verdict{again: byExec}, charges{}},
		"a doubt":      {charges{}, worldEnd{failed: doubts}, 0, verdict{}, charges{doubts: 1}},
		"another doubt": {charges{doubts: 2}, worldEnd{failed: doubts}, 0,
			verdict{again: ", in 3 worlds without a completed round"}, charges{doubts: 3}},
		"a doubt too many": {charges{doubts: 4}, worldEnd{failed: doubts}, 1,
			verdict{charged: true, again: ", in 5 worlds without a completed round"}, charges{restarts: 1}},
		"a doubt after a round": {charges{doubts: 4}, worldEnd{failed: doubts, completed: true}, 0,
			verdict{}, charges{}},
	} {
		t.Run(name, func(t *testing.T) {
			if !c.want.nothing {
				c.want.root = c.end.failed[0]
			}
			got, became := c.had.judge(c.end, c.most)
			if got != c.want || became != c.becomes {
				t.Errorf("%+v and then %+v; want %+v and then %+v", got, became, c.want, c.becomes)
			}
		})
	}
}
