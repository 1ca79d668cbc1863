package mesh

import (
	"testing"

	"github.com/elasticdl/elasticdl/trainer/train/ring"
)

// A message counts by its size, whether it goes through the connection or is read from memory.
func TestTraffic(t *testing.T) {
	meshes := loopback(t, 2)
	defer closeAll(meshes)
	sent := int64(0)
	for _, size := range []int{10, 2 * ring.Whole} {
		if err := meshes[0].Send(1, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		if err := meshes[1].Recv(0, make([]byte, size)); err != nil {
			t.Fatal(err)
		}
		sent += int64(size)
	}
	if got, back := meshes[0].traffic.Sent.Load(), meshes[1].traffic.Sent.Load(); got != sent || back != 0 {
		t.Errorf("%d and %d bytes sent, want %d and none", got, back, sent)
	}
	if got := meshes[1].traffic.Received.Load(); got != sent {
		t.Errorf("%d bytes received, want %d", got, sent)
	}
}
