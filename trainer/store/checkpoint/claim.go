package checkpoint

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"time"
)

// ErrOwned is the error of a job that may not use a directory of checkpoints: another job owns it.
var ErrOwned = errors.New("another job owns this checkpoint directory")

// Owner is a job that owns directories of checkpoints, and where it is found.
type Owner struct {
	Job  string `json:"job"`  // UID
	Name string `json:"name"` // of the job

	// Of a job on Kubernetes: an identity of its cluster, and its namespace.
	Cluster   string `json:"cluster,omitempty"`
	Namespace string `json:"namespace,omitempty"`

	// Of a job on a machine: the machine's name, the identity of its boot, the namespace of its
	// process IDs, the process that lives as long as the job, when that process started, and the
	// directory of the job's state.
	Host    string `json:"host,omitempty"`
	Boot    string `json:"boot,omitempty"`
	PIDs    string `json:"pids,omitempty"`
	PID     int    `json:"pid,omitempty"`
	Started string `json:"started,omitempty"`
	State   string `json:"state,omitempty"`
}

// String names the owner to users.
func (o Owner) String() string {
	switch {
	case o.Namespace != "":
		return fmt.Sprintf("job %s in namespace %s (UID %s)", o.Name, o.Namespace, o.Job)
	case o.Host != "":
		return fmt.Sprintf("job %s on %s (UID %s, process %d)", o.Name, o.Host, o.Job, o.PID)
	}
	return fmt.Sprintf("job %s (UID %s)", o.Name, o.Job)
}

// Claim is the record by which a job owns a directory: owner-00000002. Claims of a directory are
// numbered from 1; the one with the highest number counts.
type Claim struct {
	Format int   `json:"format"`
	Number int64 `json:"number"`
	// random: tells whose record it is that was created
	Nonce string    `json:"nonce"`
	Time  time.Time `json:"time"`
	Owner Owner     `json:"owner"`
}

// Tag returns what names of commits have of the claim: its number, and a hash of its owner's UID.
func (c Claim) Tag() string { return fmt.Sprintf("%d-%s", c.Number, hashOf(c.Owner.Job)) }

// hashOf returns what tags have of the UID of a job.
func hashOf(job string) string {
	h := fnv.New32a()
	h.Write([]byte(job))
	return fmt.Sprintf("%08x", h.Sum32())
}

// Standing tells whether an owner is alive, as far as is known.
type Standing int

const (
	Unknown   Standing = iota // nothing
	Alive                     // it runs, or may start
	Suspended                 // it rests, and continues later
	// it is proved that it does not run and will not
	Dead
)

// Permit states by what right a job claims a directory.
type Permit struct {
	// Ancestors has the UIDs of the jobs that this one continues from (elasticdl resume).
	Ancestors []string
	// TakeOver states that the user has confirmed that the owner no longer exists
	// (--checkpoint_dir_take_over).
	TakeOver bool
	// Look finds out whether an owner lives; nil: that cannot be found out.
	Look func(Owner) Standing
}

// Use is the permission of a job for a directory.
type Use int

const (
	Refuse Use = iota // nothing: another job owns the directory
	Keep              // use it: the job owns it already
	Take              // use it after a claim of its own
)

// MayUse decides whether a job may use a directory whose last claim is given, nil if there is none.
// standing is that of the claim's owner. why completes the sentence "the directory …".
//
//	last claim                                              the job
//	none                                                    takes it: it is new, or older than
//	                                                        claims
//	released: its owner has ended                           takes it
//	its own, made by the process that it is                 keeps it
//	its own, made by a process before; of an ancestor       takes it: it inherits
//	of a job that is dead, or that the user calls dead      takes it
//	of any other                                            is refused
func MayUse(me Owner, p Permit, last *Claim, released bool, standing Standing) (use Use, why string) {
	if last == nil {
		return Take, "has no owner"
	}
	owner := last.Owner
	switch {
	case released:
		return Take, fmt.Sprintf("was released by %v, which has ended", owner)
	case owner == me:
		return Keep, "is the job's own"
	case owner.Job == me.Job:
		return Take, "is the job's own, from an earlier start"
	case slices.Contains(p.Ancestors, owner.Job):
		return Take, fmt.Sprintf("is inherited from %v", owner)
	case standing == Dead:
		return Take, fmt.Sprintf("was left by %v, which no longer exists", owner)
	case p.TakeOver:
		return Take, fmt.Sprintf("is taken over from %v", owner)
	}
	state := map[Standing]string{Alive: "which runs", Suspended: "which is suspended",
		Unknown: "which may still run"}[standing]
	return Refuse, fmt.Sprintf("belongs to %v, %s", owner, state)
}
