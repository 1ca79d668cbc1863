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
	if !c.on() {
		return nil
	}
	me := c.owner()
	permit := checkpoint.Permit{Ancestors: c.Ancestors, TakeOver: c.Job.CheckpointDirTakeOver, Look: c.Look}
	var claimed checkpoint.Claimed
	err := c.patiently(ctx, func() (err error) {
		claimed, err = c.dir.Claim(me, permit, time.Now())
		return err
	})
	if err != nil {
		return fmt.Errorf("--checkpoint_dir=%s: %w", c.Job.CheckpointDir, err)
	}
	c.Log.Debug("Checkpoint directory claimed", "directory", c.Job.CheckpointDir, "claim",
		claimed.Number, "reason", "it "+claimed.Why)
	if claimed.Weak {
		c.Log.Warn("The store of the checkpoint directory ignores conditional writes: if another "+
			"job begins with the same directory at the same moment, that is noticed at the first checkpoint",
			"directory", c.Job.CheckpointDir)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.claim, c.dir, c.policy.Claim = claimed.Claim, c.dir.Under(claimed.Claim, c.Ancestors...), claimed.Tag()
	return nil
}

// owner returns the job as owner of checkpoint directories.
func (c *Config) owner() checkpoint.Owner {
	if c.Owner.Job == "" {
		return checkpoint.Owner{Job: c.Self.Header().Job, Name: c.Job.Name}
	}
	return c.Owner
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
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.loaded {
		c.problem = fmt.Sprintf("reading %s fails: %v",
			cmp.Or(c.Job.CheckpointDir, c.Job.CheckpointDirForInit), err)
	}
}

// leave removes what is left of checkpoints that were given up, and releases the directory of a job
// that has ended. No pod of the job is there any more.
func (c *checkpoints) leave() {
	if !c.on() || c.claim.Number == 0 || c.stage.Left() != nil {
		return
	}
	c.clean(c.cut.Ended())
	if !c.stage.State().Ended() {
		return
	}
	if err := c.dir.Release(c.claim); err != nil {
		c.Log.Warn("Releasing the checkpoint directory failed: another job has to confirm that this "+
			"one no longer exists", "directory", c.Job.CheckpointDir, "error", err)
	}
}
