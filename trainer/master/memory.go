package master

import (
	"context"
	"errors"
)

// Memory is where a master writes what the next one has to know.
type Memory interface {
	// Write puts a record in the place of the last one, and returns when the next master will find it, whatever happens to this one.
	// [ErrSuperseded]: another master has begun since, and nothing was written. Any other error: it may have been written or not, and
	// is tried again.
	Write(ctx context.Context, record []byte) error
}

// ErrSuperseded ends a master after which another has begun.
var ErrSuperseded = errors.New("another master of this job has begun")

// MostRecord is how many bytes a record has at most.
const MostRecord = 384 << 10

// Notice tells a master that it has to go before the job is over. In both cases it has a checkpoint made, where the job has any, as far as
// [Config].Grace allows.
type Notice int

const (
	// Leave: another master follows. The pods work on. Run returns [ErrLeft].
	Leave Notice = iota + 1
	// Suspend: the job is to rest until another master begins. The pods are ended. Run returns [ErrSuspended].
	Suspend
)

// What Run returns when it was given a notice, and the job is not over.
var (
	ErrLeft      = errors.New("the master was asked to leave, and the job goes on with the next one")
	ErrSuspended = errors.New("the job is suspended")
)
