package job

// State is the state of a job. Statuses carry its text.
type State string

// The states of a job. A master knows all but Stopping: a cluster reports it for a job whose master
// does not run.
const (
	Pending   State = "Pending"   // no worker has been given a task yet
	Running   State = "Running"   // a worker has
	Succeeded State = "Succeeded" // every record was done
	Failed    State = "Failed"    // it could not go on
	Stopped   State = "Stopped"   // a user ended it
	// it is to wait, before it begins or until it goes on; it has no pods
	Suspended State = "Suspended"
	Stopping  State = "Stopping" // it is being deleted
)

// Ended reports whether the job is over: nothing follows the state.
func (s State) Ended() bool { return s == Succeeded || s == Failed || s == Stopped }
