package ps

import "testing"

// Gradients are counted by their results on each server, and bytes at both ends.
func TestMeter(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var m Meter
		var traffic Traffic
		f := newFleet(t, 2, ServerConfig{Meter: &m, SyncVersionTolerance: new(0)})
		f.of(dense(100, 0))
		config := f.clientConfig(0, dense(100, 0))
		config.Traffic = &traffic
		c, err := Dial(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f.init(c, filled(100, 3))
		before := traffic.Pulled.Load()
		_, v := f.pull(c, PullOptions{})
		for _, records := range [][2]int64{{0, 1}, {0, 1}, {5, 6}, {1, 2}} { // the last one is stale
			f.push(c, filled(100, 1), Gradient{Versions: v, Epoch: 1, Task: 1, From: records[0], To: records[1],
				Of: 1000})
		}
		if m.Accepted.Load() != 2 || m.Repeated.Load() != 2 || m.Cut.Load() != 2 || m.Stale.Load() != 2 {
			t.Errorf("%d accepted, %d repeated, %d cut, %d stale", m.Accepted.Load(), m.Repeated.Load(), m.Cut.Load(),
				m.Stale.Load())
		}
		if m.Received.Load() != 1600 || traffic.Pushed.Load() != 1600 {
			t.Errorf("%d bytes received, %d pushed", m.Received.Load(), traffic.Pushed.Load())
		}
		if traffic.Pulled.Load()-before != 400 || m.Sent.Load() != traffic.Pulled.Load() {
			t.Errorf("%d bytes sent, %d pulled", m.Sent.Load(), traffic.Pulled.Load()-before)
		}
	})
}
