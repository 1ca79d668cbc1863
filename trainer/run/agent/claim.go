package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
	"time"

	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// claim makes the job the owner of a checkpoint of its program, before the program reads or
// writes it. Its place is a directory or a bucket. All processes and agents of a job get the same
// claim. If a directory is read-only, nothing is claimed, and the number is 0.
func (r *records) claim(ctx context.Context, path string, at time.Time) (number int64, err error) {
	u, err := checkpoint.ParseLocation(path)
	if err != nil {
		return 0, fmt.Errorf("the checkpoint: %w", err)
	}
	if u == nil && !filepath.IsAbs(path) {
		return 0, fmt.Errorf("the checkpoint %q: expected an absolute path", path)
	}
	files, err := r.open(ctx, path)
	if err != nil {
		return 0, err
	}
	by, err := r.vouch(ctx, path, nil)
	if err != nil {
		return 0, err
	}
	// why the master's answer about the other owner is missing
	var unknown error
	permit := checkpoint.Permit{Ancestors: by.ancestors, Look: func(other checkpoint.Owner) checkpoint.Standing {
		var of claimant
		of, unknown = r.vouch(ctx, path, &other)
		return of.standing
	}}
	claims := checkpoint.Dir{Files: files}
	if _, unreadable := claims.Owned(); errors.Is(unreadable, checkpoint.ErrDamaged) {
		permit.TakeOver = by.takeOver
	}
	claimed, err := claims.Claim(by.me, permit, at)
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return 0, nil
	case unknown != nil:
		return 0, unknown
	case errors.Is(err, checkpoint.ErrOwned):
		owned, _ := claims.Owned() // it was read just now
		if owned == nil {
			return 0, fmt.Errorf("checkpoint %s: %w", path, err)
		}
		return 0, fmt.Errorf("checkpoint %s belongs to %v; give each job a checkpoint of its own; "+
			"if that job no longer exists, confirm with --checkpoint_dir_take_over", path, owned.Owner)
	}
	return claimed.Number, err
}

// claimant identifies the job that claims a checkpoint.
type claimant struct {
	me        checkpoint.Owner
	ancestors []string
	// what is known about the other owner's job
	standing checkpoint.Standing
	// the user has confirmed that the owner no longer exists
	takeOver bool
}

// vouch asks the master for the identity with which the job claims a checkpoint, and for what is
// known about another owner; nil: there is no other one.
func (r *records) vouch(ctx context.Context, path string, other *checkpoint.Owner) (v claimant, err error) {
	request := &wire.VouchRequest{Path: path}
	if other != nil {
		text, err := json.Marshal(other)
		if err != nil {
			return v, err
		}
		request.Owner = string(text)
	}
	var reply *wire.VouchReply
	err = membership.Retry(ctx, func() (err error) {
		reply, err = r.master.Vouch(ctx, request)
		return err
	})
	if err != nil {
		return v, errors.New(status.Convert(err).Message())
	}
	v = claimant{ancestors: reply.Ancestors, standing: checkpoint.Standing(reply.Standing), takeOver: reply.TakeOver}
	return v, json.Unmarshal([]byte(reply.Owner), &v.me)
}
