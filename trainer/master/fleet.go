package master

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// fleet is the job's pods, and how many of them there should be.
type fleet struct {
	shared
	contacts *contacts
	table    *pod.Table
	// number of workers in the job's specification
	specified int
	// number of workers at the beginning
	workers int
}

func newFleet(s shared, c *contacts) *fleet {
	f := &fleet{shared: s, contacts: c, specified: s.Job.NumWorkers}
	f.begins(s.Job.NumWorkers)
	return f
}

// begins has the job begin with that many workers. No pod was started yet.
func (f *fleet) begins(workers int) {
	f.workers = workers
	f.table = pod.New(f.policy())
}

// policy returns how many pods of each role there are, and how those that end are replaced.
func (f *fleet) policy() pod.Policy {
	j := f.Job
	return pod.Policy{Servers: j.NumPS, Workers: f.workers, MinWorkers: j.MinWorkers,
		Relaunches: j.RelaunchOnWorkerFailure, MaxOOMs: f.MaxOOMs, Core: j.Core()}
}

// get returns a pod of the table, and false if it is unknown.
func (f *fleet) get(id pod.ID) (pod.Pod, bool) { return f.table.Get(id) }

// asked returns how many workers were asked for.
func (f *fleet) asked() int {
	if !f.stage.Planned() {
		return f.workers
	}
	return f.table.Asked()
}

// wanted returns how many workers there should be: those that were asked for, without those that
// were given up.
func (f *fleet) wanted() int {
	if !f.stage.Planned() {
		return f.workers
	}
	return f.table.Workers()
}

// known returns an error unless the caller is the living incarnation of one of the job's pods. The
// caller holds the mutex.
func (f *fleet) known(ctx context.Context) error {
	if err := f.early(); err != nil {
		return err
	}
	caller := rpc.Caller(ctx)
	id := caller.ID()
	p, ok := f.table.Get(id)
	if ok && p.Incarnation != caller.Incarnation {
		return status.Errorf(codes.NotFound, "incarnation %d of %v was replaced by incarnation %d",
			caller.Incarnation, id, p.Incarnation)
	}
	if !ok || p.Phase.Ended() || f.contacts.of(id).dismiss {
		return status.Errorf(codes.NotFound, "%v is not a pod of this job, or not any more", id)
	}
	return nil
}
