package mesh

import "sync/atomic"

// Traffic counts the bytes that a worker has sent to other workers of its worlds, and received from
// them, by whichever way they came. Its zero value has counted nothing.
type Traffic struct {
	Sent, Received atomic.Int64
}
