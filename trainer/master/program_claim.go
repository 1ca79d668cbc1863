package master

import (
	"slices"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// vouched is a checkpoint that agents of the job claim.
type vouched struct {
	Path string `json:"path"`
	// FormerJob is the UID of the job from which it is taken over, as the user has confirmed; it is
	// empty if there is none.
	FormerJob string `json:"gone,omitempty"`
}

// vouch notes that an agent claims a checkpoint: the claim is released when the job has ended.
func (g *program) vouch(path string) *vouched {
	i := slices.IndexFunc(g.claims, func(v *vouched) bool { return v.Path == path })
	if i < 0 {
		g.claims = append(g.claims, &vouched{Path: path})
		g.host.record() // a later master releases it
		i = len(g.claims) - 1
	}
	return g.claims[i]
}

// standing returns what is known about the owner of a checkpoint that the job claims. A user who
// gave --checkpoint_dir_take_over has confirmed that the owner found first no longer exists.
func (g *program) standing(v *vouched, other checkpoint.Owner, known checkpoint.Standing) checkpoint.Standing {
	if !g.Job.CheckpointDirTakeOver || v.FormerJob != "" && v.FormerJob != other.Job {
		return known
	}
	if v.FormerJob == "" && known != checkpoint.Dead {
		v.FormerJob = other.Job
		g.host.record()
		g.Log.Warn("The checkpoint is taken over from another job (--checkpoint_dir_take_over)",
			"checkpoint", v.Path, "owner", other)
	}
	return checkpoint.Dead
}

// release ends the claims on the program's checkpoints if the job has ended. No process of it is
// left.
func (g *program) release() {
	if g.stage.Left() != nil || !g.stage.State().Ended() {
		return
	}
	for _, v := range g.claims {
		if err := g.Open.Release(v.Path, g.owner().Job); err != nil {
			g.Log.Warn("Releasing the checkpoint of the program failed: another job has to "+
				"confirm that this one no longer exists", "checkpoint", v.Path, "error", err)
		}
	}
}

// Claimed returns the checkpoints that a program has claimed, as the record of the job's last
// master has them.
func Claimed(former []byte) (paths []string, err error) {
	r, err := readRecord(former)
	if err != nil || r == nil || r.Program == nil {
		return nil, err
	}
	for _, v := range r.Program.Claims {
		paths = append(paths, v.Path)
	}
	return paths, nil
}
