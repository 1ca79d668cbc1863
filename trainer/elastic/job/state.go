package job

// State is the state of a job. Statuses carry its text.
type State string

// The states of a job. A master knows all but Stopping: a cluster reports it for a job whose master
// does not run.
const (
	Pending   State = "Pending"   // no worker has received a task yet
	Running   State = "Running"   // a worker has received a task
	Succeeded State = "Succeeded" // all records are done
	Failed    State = "Failed"    // it could not continue
	Stopped   State = "Stopped"   // a user has stopped it
	// it waits for its start or its continuation, and has no pods
	Suspended State = "Suspended"
	Stopping  State = "Stopping" // it is being deleted
)

// Ended reports whether the state is final.
func (s State) Ended() bool { return s == Succeeded || s == Failed || s == Stopped }
