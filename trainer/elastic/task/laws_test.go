package task

import (
	"testing"

	"pgregory.net/rapid"
)

// TestLaws compares the queue with the model after random calls.
func TestLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"":             m.Check,
			"lease":        m.Lease,
			"lease more":   m.Lease,
			"touch":        m.Touch,
			"too much":     m.TouchTooMuch,
			"done":         m.Done,
			"done more":    m.Done,
			"fail":         m.Fail,
			"lose":         m.Lose,
			"work":         m.Work,
			"return":       m.Return,
			"overdue":      m.Overdue,
			"stale":        m.Stale,
			"next epoch":   m.NextEpoch,
			"evaluate":     m.Evaluate,
			"withdraw":     m.Withdraw,
			"export":       m.Export,
			"save":         m.Save,
			"rewind":       m.Rewind,
			"hint":         m.Hint,
			"restart":      m.Restart,
			"replace":      m.Replace,
			"announce":     m.Announce,
			"announce 2":   m.Announce,
			"impossible":   m.AnnounceImpossible,
			"announced":    m.Announced,
			"lease gently": m.Lease,
		})
	})
}

// TestEveryRecordOnce runs whole jobs to their end, with workers that are lost, slow, or report
// wrongly.
func TestEveryRecordOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newModel(t)
		m.policy.MaxAttempts = 1 << 30
		m.q.policy.MaxAttempts, m.twin.policy.MaxAttempts = 1<<30, 1<<30
		m.q.policy.Epochs = max(1, m.policy.Epochs)
		m.twin.policy.Epochs = m.q.policy.Epochs
		m.q.plan()
		m.twin.plan()
		moods := []func(*rapid.T){m.Lease, m.Lease, m.Lease, m.Touch, m.Done, m.Done, m.Lose, m.Fail,
			m.Return, m.Work, m.Overdue, m.Stale, m.Save, m.Rewind, m.Hint, m.Restart, m.Replace,
			m.Announce, m.Announce, m.Announced}
		steps := 0
		for ; !m.q.TrainingDone() && steps < 5000; steps++ {
			if m.q.Settled() {
				m.NextEpoch(t)
				continue
			}
			mood := rapid.IntRange(0, len(moods)-1).Draw(t, "mood")
			if len(m.leases) == 0 {
				mood = 0
			}
			moods[mood](t)
			m.Check(t)
		}
		if !m.q.Finished() {
			t.Fatalf("not finished after %d steps: %v", steps, m.q.Stats())
		}
	})
}
