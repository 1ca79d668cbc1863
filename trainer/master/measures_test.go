package master

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Only addresses of this machine are passed on: Prometheus is sent there.
func TestLoopback(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:9108": "127.0.0.1:9108", "[::1]:9108": "[::1]:9108", "127.9.9.9:1": "127.9.9.9:1",
		"": "", "10.0.0.1:80": "", "169.254.169.254:80": "", "localhost:80": "", "127.0.0.1": "", "127.0.0.1:0": "",
		"[::]:9108": "", "0.0.0.0:9108": "", "[::1%eth0]:80": "", "127.0.0.1:9108/x": "", "[::ffff:10.0.0.1]:80": "",
	} {
		if got := loopback(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

// The measures are published with the status of the same moment. A master that takes over knows at
// once what the journal has counted, and says whether it knows the rest.
func TestMeasures(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var all []Measures
		var statuses []*wire.JobStatus
		r := reign(t, func(c *Config) {
			c.OnMeasures = func(s *wire.JobStatus, more Measures) {
				all, statuses = append(all, more), append(statuses, s)
			}
		})
		r.join()
		r.task(0)
		r.pods.end(worker(1), pod.Exit{Signal: 9, Reason: "killed (signal 9)"})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		last, s := all[len(all)-1], statuses[len(statuses)-1]
		if !last.Restored || last.Leased != 1 || last.Pending == 0 || len(last.Totals.Lost) != 1 || s.Relaunched != 1 {
			t.Errorf("%+v with %v", last, s)
		}
		r.ends(Leave, ErrLeft)
		all, statuses = nil, nil
		r.follow()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for i, m := range all {
			if m.Totals.Kinds[journal.PodLost] != 1 || len(m.Totals.Lost) != 1 {
				t.Errorf("publication %d of the next master: %+v", i, m)
			}
			if m.Restored && statuses[i].Relaunched != 1 {
				t.Errorf("publication %d: %d pods were replaced, and all is known", i, statuses[i].Relaunched)
			}
		}
		if len(all) == 0 {
			t.Error("the next master publishes nothing")
		}
		r.ends(Leave, ErrLeft)
	})
}
