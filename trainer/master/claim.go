package master

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/elasticdl/elasticdl/trainer/checkpoint"
)

// take claims the job's checkpoint directory, before anything else is written there. A master that follows another has its claim.
func (c *checkpoints) take(ctx context.Context) error {
	m := c.m
	if !c.on() {
		return nil
	}
	me := m.Owner
	if me.Job == "" {
		me = checkpoint.Owner{Job: m.Self.Header().Job, Name: m.Job.Name}
	}
	permit := checkpoint.Permit{Ancestors: m.Ancestors, TakeOver: m.Job.CheckpointDirTakeOver, Look: m.Look}
	var claimed checkpoint.Claimed
	err := c.patiently(ctx, func() (err error) {
		claimed, err = c.dir.Claim(me, permit, time.Now())
		return err
	})
	if err != nil {
		return fmt.Errorf("--checkpoint_dir=%s: %w", m.Job.CheckpointDir, err)
	}
	m.Log.Debug("Checkpoint directory claimed", "directory", m.Job.CheckpointDir, "claim", claimed.Number, "reason", "it "+claimed.Why)
	if claimed.Weak {
		m.Log.Warn("The store of the checkpoint directory ignores conditional writes: if another job begins with the same directory at the same moment, that is noticed at the first checkpoint",
			"directory", m.Job.CheckpointDir)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c.claim, c.dir, c.policy.Claim = claimed.Claim, c.dir.Under(claimed.Claim), claimed.Tag()
	return nil
}

// unread notes why the checkpoints cannot be read now, for the status.
func (c *checkpoints) unread(err error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if !c.loaded {
		c.problem = fmt.Sprintf("reading %s fails: %v", cmp.Or(c.m.Job.CheckpointDir, c.m.Job.CheckpointDirForInit), err)
	}
}

// leave removes what is left of checkpoints that were given up, and releases the directory of a job that has ended. No pod of the job
// is there any more.
func (c *checkpoints) leave() {
	m := c.m
	if !c.on() || c.claim.Number == 0 || m.left != nil {
		return
	}
	c.clean(c.cut.Ended())
	if !m.state.Ended() {
		return
	}
	if err := c.dir.Release(c.claim); err != nil {
		m.Log.Warn("Releasing the checkpoint directory failed: another job has to confirm that this one is gone", "directory", m.Job.CheckpointDir, "error", err)
	}
}
