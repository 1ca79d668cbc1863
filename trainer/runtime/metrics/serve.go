package metrics

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// mostScrapes limits the scrapes that are answered at the same time.
	mostScrapes = 4
	// scrapeLimit limits the time of one answer.
	scrapeLimit = 10 * time.Second
	// listenPause is the pause between two attempts to listen.
	listenPause = time.Second
)

// Config holds the settings of a [Server].
type Config struct {
	// Job is the name of the job, the label that all metrics have.
	Job string
	// Address is host:port, where the server listens; port 0: any.
	Address string
	// Targets returns the addresses at which other pods serve their metrics, by the pods' names,
	// for the HTTP service discovery of Prometheus at /targets; nil: it is not served.
	Targets func() map[string]string
	// Log receives what goes wrong; nil: nothing does.
	Log *slog.Logger
}

// Server serves the metrics of one process, in the formats of Prometheus and OpenMetrics, to
// everybody who can connect. Its owner closes it.
type Server struct {
	config Config
	http   http.Server
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu sync.Mutex
	// "": it does not listen yet
	address string
	// why it does not listen; nil: it does
	err error
}

// Serve begins to serve metrics of a process, those of the Go runtime and of the process among
// them. If the address is in use, it listens as soon as that is free.
func Serve(c Config, of ...Source) *Server {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	s := &Server{config: c}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.http = http.Server{Handler: s.handler(registry(c.Job, of)), ReadHeaderTimeout: scrapeLimit,
		WriteTimeout: 2 * scrapeLimit, IdleTimeout: 3 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelDebug)}
	if l := s.listen(); l != nil {
		s.wg.Go(func() { s.http.Serve(l) })
		return s
	}
	c.Log.Warn("Metrics are not served yet", "address", c.Address, "error", s.err)
	s.wg.Go(s.insist)
	return s
}

// registry returns the registry of a process.
func registry(job string, of []Source) *prometheus.Registry {
	all := prometheus.NewRegistry()
	named := prometheus.WrapRegistererWith(prometheus.Labels{JobLabel: job}, all)
	named.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, source := range of {
		named.MustRegister(source)
	}
	return all
}

// handler returns the pages of the server.
func (s *Server) handler(all *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(all, promhttp.HandlerOpts{EnableOpenMetrics: true,
		MaxRequestsInFlight: mostScrapes, Timeout: scrapeLimit, ErrorHandling: promhttp.ContinueOnError,
		ErrorLog: slog.NewLogLogger(s.config.Log.Handler(), slog.LevelWarn)}))
	if s.config.Targets != nil {
		mux.HandleFunc("GET /targets", s.targets)
	}
	return mux
}

// listen returns a listener, or nil after it has noted the error.
func (s *Server) listen() net.Listener {
	l, err := new(net.ListenConfig).Listen(s.ctx, "tcp", s.config.Address)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err = err; err != nil {
		return nil
	}
	s.address = l.Addr().String()
	return l
}

// insist listens and serves as soon as it can, until the server is closed.
func (s *Server) insist() {
	tick := time.NewTicker(listenPause)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		if l := s.listen(); l != nil {
			s.config.Log.Info("Metrics are served", "address", l.Addr())
			s.http.Serve(l)
			return
		}
	}
}

// Address returns where the server listens, as host:port; "": it does not yet.
func (s *Server) Address() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.address
}

// Problem returns why the server does not listen; "": it does.
func (s *Server) Problem() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return ""
	}
	return fmt.Sprintf("metrics are not served (--metrics_port): %v", s.err)
}

// Close ends the server, and all its connections.
func (s *Server) Close() {
	s.cancel()
	s.http.Close()
	s.wg.Wait()
}

// targetGroup is a group of targets, as the HTTP service discovery of Prometheus reads it.
type targetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// targets answers with where all pods serve their metrics, each with the label pod.
func (s *Server) targets(w http.ResponseWriter, r *http.Request) {
	all := maps.Clone(s.config.Targets())
	if all == nil {
		all = make(map[string]string)
	}
	all["master"] = s.Address()
	groups := make([]targetGroup, 0, len(all))
	for _, pod := range slices.Sorted(maps.Keys(all)) {
		groups = append(groups, targetGroup{[]string{all[pod]}, map[string]string{"pod": pod}})
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(groups); err != nil {
		s.config.Log.Debug("Targets were not sent", "error", err)
	}
}
