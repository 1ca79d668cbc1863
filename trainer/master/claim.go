package master

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// take claims the job's checkpoint directory, before anything else is written there. A master that
// follows another has its claim.
func (c *checkpoints) take(ctx context.Context) error {
	m := c.m
	if !c.on() {
		return nil
	}
	me := m.owner()
	permit := checkpoint.Permit{Ancestors: m.Ancestors, TakeOver: m.Job.CheckpointDirTakeOver, Look: m.Look}
	var claimed checkpoint.Claimed
	err := c.patiently(ctx, func() (err error) {
		claimed, err = c.dir.Claim(me, permit, time.Now())
		return err
	})
	if err != nil {
		return fmt.Errorf("--checkpoint_dir=%s: %w", m.Job.CheckpointDir, err)
	}
	m.Log.Debug("Checkpoint directory claimed", "directory", m.Job.CheckpointDir, "claim",
		claimed.Number, "reason", "it "+claimed.Why)
	if claimed.Weak {
		m.Log.Warn("The store of the checkpoint directory ignores conditional writes: if another "+
			"job begins with the same directory at the same moment, that is noticed at the first checkpoint",
			"directory", m.Job.CheckpointDir)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	c.claim, c.dir, c.policy.Claim = claimed.Claim, c.dir.Under(claimed.Claim, m.Ancestors...), claimed.Tag()
	return nil
}

// owner returns the job as owner of checkpoint directories.
func (m *master) owner() checkpoint.Owner {
	if m.Owner.Job == "" {
		return checkpoint.Owner{Job: m.Self.Header().Job, Name: m.Job.Name}
	}
	return m.Owner
}

// Vouch implements [wire.MasterServer]. The agents of a program claim its checkpoints where they
// see them; the master knows the job, and can find out about others.
func (m *master) Vouch(_ context.Context, r *wire.VouchRequest) (*wire.VouchReply, error) {
	me, err := json.Marshal(m.owner())
	if err != nil {
		return nil, status.Errorf(codes.Internal, "encode the owner: %v", err)
	}
	reply := &wire.VouchReply{Owner: string(me), Ancestors: m.Ancestors, TakeOver: m.Job.CheckpointDirTakeOver}
	var other checkpoint.Owner
	known := checkpoint.Unknown
	if r.Owner != "" {
		if err := json.Unmarshal([]byte(r.Owner), &other); err != nil {
			return nil, status.Errorf(codes.InvalidArgument, "the owner %q: %v", r.Owner, err)
		}
		if m.Look != nil {
			known = m.Look(other)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.program != nil && r.Path != "" {
		claim := m.program.vouch(r.Path)
		if r.Owner != "" {
			known = m.program.standing(claim, other, known)
		}
	}
	reply.Standing = int32(known)
	return reply, nil
}

// unread notes why the checkpoints cannot be read now, for the status.
func (c *checkpoints) unread(err error) {
	c.m.mu.Lock()
	defer c.m.mu.Unlock()
	if !c.loaded {
		c.problem = fmt.Sprintf("reading %s fails: %v",
			cmp.Or(c.m.Job.CheckpointDir, c.m.Job.CheckpointDirForInit), err)
	}
}

// leave removes what is left of checkpoints that were given up, and releases the directory of a job
// that has ended. No pod of the job is there any more.
func (c *checkpoints) leave() {
	m := c.m
	if !c.on() || c.claim.Number == 0 || m.stage.Left() != nil {
		return
	}
	c.clean(c.cut.Ended())
	if !m.stage.State().Ended() {
		return
	}
	if err := c.dir.Release(c.claim); err != nil {
		m.Log.Warn("Releasing the checkpoint directory failed: another job has to confirm that this "+
			"one is gone", "directory", m.Job.CheckpointDir, "error", err)
	}
}
