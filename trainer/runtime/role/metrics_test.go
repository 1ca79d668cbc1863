package role

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/metrics"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Without an address a master is configured as before, and a role serves nothing.
func TestNothingIsMeasured(t *testing.T) {
	c := master.Config{Job: job.Default()}
	Measure(&c, "")()
	if c.OnMeasures != nil || c.Problems != nil {
		t.Errorf("%+v", c)
	}
	m := Role{}.measure("j", nil, nil)
	client := new(heartbeats)
	if m != nil || m.through(client) != wire.MasterClient(client) {
		t.Error("a role without an address is measured")
	}
	m.end()
}

// body returns the page of a server at an address.
func body(t *testing.T, address, path string) string {
	t.Helper()
	r, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A master's measures are served, and reach the functions that were set before. A port that is in
// use is a problem of the job.
func TestMeasure(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	j := job.Default()
	j.Name = "test-mnist"
	heard := 0
	c := master.Config{Job: j, Log: slog.New(slog.DiscardHandler),
		OnMeasures: func(*wire.JobStatus, master.Measures) { heard++ },
		Problems:   func() []string { return []string{"another"} }}
	taken := c
	end := Measure(&taken, address)
	if got := taken.Problems(); len(got) != 2 || got[0] != "another" || !strings.Contains(got[1], "--metrics_port") {
		t.Errorf("problems %q", got)
	}
	end()
	l.Close()
	defer Measure(&c, address)()
	c.OnMeasures(&wire.JobStatus{RecordsDone: 150}, master.Measures{Restored: true})
	const want = `elasticdl_job_records_done{job_name="test-mnist"} 150`
	if got := body(t, address, "/metrics"); !strings.Contains(got, want) {
		t.Errorf("no %s in %s", want, got)
	}
	if got := body(t, address, "/targets"); !strings.Contains(got, address) {
		t.Errorf("targets %s", got)
	}
	if got := c.Problems(); heard != 1 || !slices.Equal(got, []string{"another"}) {
		t.Errorf("%d calls, problems %q", heard, got)
	}
}

// heartbeats is a client of a master that keeps heartbeats.
type heartbeats struct {
	wire.MasterClient
	last *wire.HeartbeatRequest
}

func (h *heartbeats) Heartbeat(_ context.Context, r *wire.HeartbeatRequest,
	_ ...grpc.CallOption) (*wire.HeartbeatReply, error) {
	h.last = r
	return &wire.HeartbeatReply{}, nil
}

// The heartbeats of a worker tell the master where its metrics are, which show them.
func TestHeartbeatsAreMeasured(t *testing.T) {
	m := Role{Metrics: "127.0.0.1:0"}.measure("j", nil,
		func(b *metrics.Beats) metrics.Source { return metrics.OfWorker(b, nil) })
	defer m.end()
	client := new(heartbeats)
	if _, err := m.through(client).Heartbeat(t.Context(), &wire.HeartbeatRequest{Steps: 8}); err != nil {
		t.Fatal(err)
	}
	address := client.last.Metrics
	if _, port, err := net.SplitHostPort(address); err != nil || port == "0" {
		t.Fatalf("the metrics are at %q", address)
	}
	if got := body(t, address, "/metrics"); !strings.Contains(got, `elasticdl_worker_steps_total{job_name="j"} 8`) {
		t.Errorf("%s", got)
	}
}
