package agent

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/elasticdl/elasticdl/trainer/elastic/source"
	"github.com/elasticdl/elasticdl/trainer/run/fetch"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
	"github.com/elasticdl/elasticdl/trainer/wire/membership"
)

// bringCode fetches the job's code into the agent's directory. It returns the command, and the
// working directory of its processes, "" for the agent's. Each worker has its own copy, which it
// may change; the uploaded archive never changes. Fetching may take minutes; it is cancelled when
// the worker is asked to leave.
func (l *local) bringCode(ctx context.Context) (command []string, dir string, err error) {
	g := l.Job.Program
	dir = g.Workdir
	if g.Code != "" {
		dir = filepath.Join(l.dir, "workdir")
		if err := fetch.Unpack(g.Code, g.CodeSHA256, dir); err != nil {
			return nil, "", err
		}
		l.Log.Info("Unpacked the code", "from", g.Code, "to", dir)
	}
	from, err := source.Parse(g.Command, g.SHA256)
	if err != nil {
		return nil, "", err
	}
	if from.Kind == source.Local && from.SHA256 == "" {
		return g.Command, dir, nil
	}
	if from.Kind == source.Local && !filepath.IsAbs(from.Location) {
		from.Location = filepath.Join(dir, from.Location)
	}
	ctx, cancel := l.untilLeave(ctx)
	defer cancel()
	l.Log.Info("Fetching the program", "from", from)
	script, err := fetch.Fetch(ctx, from, filepath.Join(l.dir, "code"), fetch.Options{Open: l.Open})
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, membership.ErrLeft) {
		return nil, "", cause
	}
	if err != nil {
		return nil, "", err
	}
	l.Log.Info("Fetched the program", "script", script)
	return append([]string{script}, from.Args...), dir, nil
}

// untilLeave returns a context for the work before the program starts. It ends with ctx, and, with
// the cause [membership.ErrLeft], when the worker is asked to leave: no process has state to save
// yet.
func (c Config) untilLeave(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-c.Leave:
			cancel(membership.ErrLeft)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// withRoom calls write, and repeats it while the disk is full, as [outage.WithRoom] does, until the
// worker is asked to leave.
func (c Config) withRoom(ctx context.Context, write func() error) error {
	ctx, cancel := c.untilLeave(ctx)
	defer cancel()
	err := outage.WithRoom(ctx, c.Log, write)
	if cause := context.Cause(ctx); err != nil && errors.Is(cause, membership.ErrLeft) {
		return cause
	}
	return err
}
