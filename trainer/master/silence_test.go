package master

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The silence of a worker of a ring is noticed even if nothing happens after its first heartbeat.
func TestFirstWordIsTheLast(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := start(t, ringJob(func(c *Config) { c.Job.NumWorkers = 1 }))
		only := w.stranger(0)
		w.task(0)
		time.Sleep(time.Minute) // of --task_timeout=5m
		synctest.Wait()
		only.arrive(&wire.Arrival{Round: -1, Process: 7})
		time.Sleep(6 * time.Second) // --heartbeat_timeout is 5s
		synctest.Wait()
		if w.pods.isRunning(worker(0)) {
			t.Error("it is not replaced")
		}
	})
}
