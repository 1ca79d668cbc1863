package master

import (
	"testing"
	"time"
)

// The rollbacks of the training outlive the master, its speed does not.
func TestProgressIsSaved(t *testing.T) {
	now := time.Now()
	var p, next progress
	p.resumedWith(100)
	p.rolledBack("ps-0 was lost")
	p.rolledBack("ps-1 was lost")
	p.explain("ps-1 was lost; resumed from step 3")
	p.speed.add(now, 100)
	if got := p.speed.rate(now.Add(time.Second), 150); got != 50 {
		t.Errorf("%v records per second", got)
	}
	var r record
	p.save(&r)
	next.restore(&r)
	if next.resumed != 100 || next.rewinds != 2 || next.reason != "ps-1 was lost; resumed from step 3" ||
		len(next.speed.samples) != 0 {
		t.Errorf("restored %+v", next)
	}
	if p.restart(); p.speed.rate(now.Add(2*time.Second), 0) != 0 || p.rewinds != 2 {
		t.Errorf("restarted: %+v", p)
	}
}
