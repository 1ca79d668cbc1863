package agent

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The time of a worker is the mean of its processes, and never decreases.
func TestSpents(t *testing.T) {
	var s spents
	if got := s.report(2); got != nil {
		t.Errorf("%v", got)
	}
	s.add(1, spentMessage{Compute: 100, Data: 20})
	s.add(2, spentMessage{Compute: 300, Peers: 10, Checkpoint: 4})
	s.add(1, spentMessage{Compute: 200, Data: 40, Forming: 8})
	if got, want := s.report(2), (&wire.Spent{ComputeMs: 250, DataMs: 20, PeersMs: 5, CheckpointMs: 2,
		FormingMs: 4}); !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	s.free(1)
	s.add(3, spentMessage{Compute: 100})
	s.add(2, spentMessage{Compute: 1})
	if got, want := s.report(1), (&wire.Spent{ComputeMs: 600, DataMs: 40, PeersMs: 10, CheckpointMs: 4,
		FormingMs: 8}); !proto.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
