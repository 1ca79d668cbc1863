package kube

import (
	"context"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// Journal returns the journal of a job, as its master wrote it last: some seconds ago at most.
func (c *Client) Journal(ctx context.Context, name string) (journal.Snapshot, error) {
	root, err := c.job(ctx, name)
	if err != nil {
		return journal.Snapshot{}, err
	}
	state, err := c.configMap(ctx, manifest.StateName(name))
	if err != nil {
		return journal.Snapshot{}, err
	}
	spec, err := c.configMap(ctx, manifest.SpecName(name))
	if err != nil {
		return journal.Snapshot{}, err
	}
	if root == nil && state == nil {
		return journal.Snapshot{}, c.notFound(name)
	}
	var record, before string
	if state != nil && (root == nil || !observe.OfAnotherJob(state, string(root.UID))) {
		record = state.Data[manifest.KeyRecord]
	}
	if spec != nil && root != nil && spec.Data[manifest.KeyResume] == string(root.UID) {
		before = spec.Data[manifest.KeyJournal]
	}
	s, err := role.JournalOf([]byte(record), []byte(before))
	if err != nil || root == nil || !ended(root) {
		return s, err
	}
	// a master that could not begin, or was deleted, has not written the end
	last, err := c.Status(ctx, name)
	if err != nil {
		return s, nil
	}
	return role.Concluded(s, last), nil
}
