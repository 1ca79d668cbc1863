package master

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A worker of a ring that sends no heartbeats is replaced, even if nothing happens after its
// arrival.
func TestFirstWordIsTheLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, ringJob(func(c *Config) { c.Job.NumWorkers = 1 }))
		only := w.stranger(0)
		w.task(0)
		time.Sleep(time.Minute) // shorter than --task_timeout, 5m
		synctest.Wait()
		only.arrive(&wire.Arrival{Round: -1, Process: 7})
		time.Sleep(6 * time.Second) // --heartbeat_timeout is 5s
		synctest.Wait()
		if w.pods.isRunning(worker(0)) {
			t.Error("it is not replaced")
		}
	})
}
