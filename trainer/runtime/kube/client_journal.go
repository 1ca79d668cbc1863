package kube

import (
	"context"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// Journal returns the journal of a job, as its master wrote it last: some seconds ago at most.
func (c *Client) Journal(ctx context.Context, name string) (journal.Snapshot, error) {
	w, err := c.written(ctx, name)
	if err != nil {
		return journal.Snapshot{}, err
	}
	s, err := role.JournalOf(w.record, w.before)
	if err != nil || !w.ended {
		return s, err
	}
	// a master that could not begin, or was deleted, has not written the end
	last, err := c.Status(ctx, name)
	if err != nil {
		return s, nil
	}
	return role.Concluded(s, last), nil
}

// curve returns the curves of a job, as its master wrote them last.
func (c *Client) curve(ctx context.Context, name string) (curve.Snapshot, error) {
	w, err := c.written(ctx, name)
	if err != nil {
		return curve.Snapshot{}, err
	}
	return role.CurveOf(w.record, w.before)
}

// View returns a job as its page shows it, as its master and the cluster wrote it last: some
// seconds ago at most. A [Channel] has the present state.
func (c *Client) View(ctx context.Context, name string) (v role.View, err error) {
	if v.Status, err = c.Status(ctx, name); err != nil {
		return v, err
	}
	w, err := c.written(ctx, name)
	if err != nil {
		return v, err
	}
	if v.Journal, err = role.JournalOf(w.record, w.before); err != nil {
		return v, err
	}
	v.Journal = role.Concluded(v.Journal, v.Status)
	v.Curve, err = role.CurveOf(w.record, w.before)
	return v, err
}

// written has the records of the masters of a job.
type written struct {
	record []byte // of the last one; nil: none
	// the past of a resumed job; nil: it was not resumed
	before []byte
	ended  bool // the Job has ended
}

// written reads what the masters of a job have written. It returns [ErrNotFound] if there is no
// such job.
func (c *Client) written(ctx context.Context, name string) (w written, err error) {
	root, err := c.job(ctx, name)
	if err != nil {
		return w, err
	}
	state, err := c.configMap(ctx, manifest.StateName(name))
	if err != nil {
		return w, err
	}
	spec, err := c.configMap(ctx, manifest.SpecName(name))
	if err != nil {
		return w, err
	}
	if root == nil && state == nil {
		return w, c.notFound(name)
	}
	w.ended = root != nil && ended(root)
	if state != nil && (root == nil || !observe.OfAnotherJob(state, string(root.UID))) {
		w.record = []byte(state.Data[manifest.KeyRecord])
	}
	if spec != nil && root != nil && spec.Data[manifest.KeyResume] == string(root.UID) {
		w.before = []byte(spec.Data[manifest.KeyJournal])
	}
	return w, nil
}
