package master

import (
	"context"
	"time"

	"github.com/elasticdl/elasticdl/trainer/custody"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// strategy is where the model is, and how the master knows what is in it: in servers, or in the workers of
// a ring. The mutex is held in every call but takeBack. What concerns the members of a ring alone the master asks of [ring].
type strategy interface {
	// version is the newest that is known.
	version() int64
	// applied says whether all that was trained on in the epoch is in the model, as far as an epoch's end
	// needs it; whole says so at the end of the training.
	applied(epoch int) bool
	whole() bool
	// there says that somebody has the model, and can be told to copy it. copy tells a checkpoint's order, which is
	// of a level where update tells it too; kept tells what the next life of the model begins with.
	there() bool
	copy(o custody.CutOrder)
	kept(base custody.Base)
	// heard takes a pod's word of the model, of which it is in that life, and adds to the answer.
	heard(id pod.ID, life int64, r *wire.HeartbeatRequest, reply *wire.HeartbeatReply)
	// gone tells that a launch of a pod has ended.
	gone(id pod.ID, launch int, reason string)
	// takeBack takes the leases of a worker that has ended, when it is known what of them is in the model.
	takeBack(ctx context.Context, worker int, charge string)
	// away says that what workers wait for is not there: a server, or the storage that they begin from. Nobody is a straggler meanwhile.
	away() bool
	// stragglers is those of the workers without progress who may be the cause of it.
	stragglers(overdue []int) []int
	// silence is how long a pod of a role may be silent; 0: without end.
	silence(pod.Role) time.Duration
	// update is called when something has changed.
	update()
}
