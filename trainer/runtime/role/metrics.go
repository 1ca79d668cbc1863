package role

import (
	"context"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"

	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/metrics"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Measure has the metrics of a job served at an address, host:port; "": it does nothing. It adds to
// the functions of a master's configuration that is complete otherwise. The returned function ends
// the server; it is called when the master has returned. On the loopback interface the server also
// names the addresses of the other pods.
func Measure(c *master.Config, address string) (end func()) {
	if address == "" {
		return func() {}
	}
	all := new(metrics.Master)
	config := metrics.Config{Job: c.Job.Name, Address: address, Log: c.Log}
	if host, _, err := net.SplitHostPort(address); err == nil && net.ParseIP(host).IsLoopback() {
		config.Targets = all.Targets
	}
	s := metrics.Serve(config, all.Source())
	onMeasures, problems := c.OnMeasures, c.Problems
	c.OnMeasures = func(status *wire.JobStatus, more master.Measures) {
		all.Publish(status, more)
		if onMeasures != nil {
			onMeasures(status, more)
		}
	}
	c.Problems = func() (found []string) {
		if problems != nil {
			found = problems()
		}
		if why := s.Problem(); why != "" {
			found = append(found, why)
		}
		return found
	}
	return s.Close
}

// measured serves the metrics of a server or worker; nil: they are not asked for.
type measured struct {
	beats  metrics.Beats
	server *metrics.Server
}

// measure begins to serve the metrics of a role that has joined a job, if --metrics_address asks
// for them. The caller ends it.
func (r Role) measure(jobName string, log *slog.Logger, source func(*metrics.Beats) metrics.Source) *measured {
	if r.Metrics == "" {
		return nil
	}
	m := new(measured)
	m.server = metrics.Serve(metrics.Config{Job: jobName, Address: r.Metrics, Log: log}, source(&m.beats))
	return m
}

// through returns a client of the master with whose heartbeats the metrics and their address are
// known.
func (m *measured) through(c wire.MasterClient) wire.MasterClient {
	if m == nil {
		return c
	}
	return observer{c, m}
}

func (m *measured) end() {
	if m != nil {
		m.server.Close()
	}
}

// observer is a client of the master that observes heartbeats.
type observer struct {
	wire.MasterClient
	*measured
}

// Heartbeat implements [wire.MasterClient].
func (o observer) Heartbeat(ctx context.Context, r *wire.HeartbeatRequest,
	options ...grpc.CallOption) (*wire.HeartbeatReply, error) {
	r.Metrics = o.server.Address()
	o.beats.Beat(r, time.Now())
	return o.MasterClient.Heartbeat(ctx, r, options...)
}
