package master

import (
	"context"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/custody"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// strategy is the holder of the model, servers or the workers of a ring, and the source of the
// master's knowledge of its content. The caller of every method but returnLeases holds the mutex.
// The master asks [ring] about its members.
type strategy interface {
	// version returns the newest known version.
	version() int64
	// applied reports whether all that was trained on in the epoch is in the model, as far as the
	// end of an epoch needs it. whole reports it for the end of the training.
	applied(epoch int) bool
	whole() bool
	// hasHolders reports whether there are holders of the model that can be asked to copy it. copy
	// sends them the order of a checkpoint; update repeats it if it is lost. kept notes what the
	// next model generation begins with.
	hasHolders() bool
	copy(o custody.CutOrder)
	kept(base custody.Base)
	// heard handles a pod's report of the model, in the generation that the pod is in, and adds to
	// the reply.
	heard(id pod.ID, modelGeneration int64, r *wire.HeartbeatRequest, reply *wire.HeartbeatReply)
	// lost notes that an incarnation of a pod has ended.
	lost(id pod.ID, incarnation int, reason string)
	// returnLeases takes back the leases of a worker that has ended, when it is known which of
	// their records are in the model.
	returnLeases(ctx context.Context, worker int, fault string)
	// blocked reports whether workers wait for something that is missing: a server, or the storage
	// that they begin from. Meanwhile no worker is a straggler.
	blocked() bool
	// stragglers returns those of the workers without progress that may be its cause.
	stragglers(overdue []int) []int
	// silence returns how long a pod of a role may be silent; 0: without limit.
	silence(pod.Role) time.Duration
	// update is called after every change.
	update()
}
