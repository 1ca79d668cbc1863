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

	"github.com/elasticdl/elasticdl/trainer/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/membership"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// ownerSuffix is what follows the path of a program's checkpoint in the name of the directory of
// its claims.
const ownerSuffix = ".owner"

// claim makes the job the owner of a checkpoint of its program, before the program reads or
// writes it. The processes and agents of a job get the same claim. Nothing is claimed where
// nothing can be written.
func (r *records) claim(ctx context.Context, path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("the checkpoint %q: expected an absolute path", path)
	}
	me, ancestors, _, err := r.vouch(ctx, nil)
	if err != nil {
		return err
	}
	var unknown error // why the master could not tell about the other owner
	permit := checkpoint.Permit{Ancestors: ancestors, Look: func(other checkpoint.Owner) (s checkpoint.Standing) {
		_, _, s, unknown = r.vouch(ctx, &other)
		return s
	}}
	claims := checkpoint.Dir{Files: checkpoint.Local(path + ownerSuffix)}
	_, err = claims.Claim(me, permit, time.Now())
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return nil
	case unknown != nil:
		return unknown
	case errors.Is(err, checkpoint.ErrOwned):
		owned, _ := claims.Owned() // it was read just now
		if owned == nil {
			return fmt.Errorf("checkpoint %s: %w", path, err)
		}
		return fmt.Errorf("checkpoint %s belongs to %v; give each job a checkpoint of its own; if that job is gone for ever, remove %s%s", path, owned.Owner, path, ownerSuffix)
	}
	return err
}

// vouch asks the master as which owner the job claims, and what is known about another one.
func (r *records) vouch(ctx context.Context, other *checkpoint.Owner) (me checkpoint.Owner, ancestors []string, s checkpoint.Standing, err error) {
	request := new(wire.VouchRequest)
	if other != nil {
		text, err := json.Marshal(other)
		if err != nil {
			return me, nil, 0, err
		}
		request.Owner = string(text)
	}
	var reply *wire.VouchReply
	err = membership.Retry(ctx, func() (err error) {
		reply, err = r.master.Vouch(ctx, request)
		return err
	})
	if err != nil {
		return me, nil, 0, errors.New(status.Convert(err).Message())
	}
	err = json.Unmarshal([]byte(reply.Owner), &me)
	return me, reply.Ancestors, checkpoint.Standing(reply.Standing), err
}
