package metrics

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Type is the type of a metric: counter, gauge or histogram.
type Type string

// Types of metrics.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
)

// Roles that have metrics.
const (
	ofMaster = "master"
	ofServer = "ps"
	ofWorker = "worker"
)

// JobLabel is the label that all metrics have: the name of the job.
const JobLabel = "job_name"

// Metric is a row of the table of metrics.
type Metric struct {
	Name string
	Help string
	Type Type
	// Labels are those besides [JobLabel].
	Labels []string
	// Role is the role whose pods have it: master, ps or worker.
	Role string

	desc *prometheus.Desc
}

var table []*Metric

// All returns all metrics, in the order of the table. Those that the client library has of each
// process, go_... and process_..., are not among them.
func All() []*Metric { return table }

func define(role string, t Type, name, help string, labels ...string) *Metric {
	m := &Metric{Name: name, Help: help, Type: t, Labels: labels, Role: role,
		desc: prometheus.NewDesc(name, help, labels, nil)}
	table = append(table, m)
	return m
}

// adder adds a sample of a metric, with the values of its labels.
type adder func(m *Metric, value float64, labels ...string)

// Source makes the samples of a process when it is asked.
type Source struct {
	role    string
	samples func(adder)
	// of histograms, which are no single values; nil: there are none
	histograms func(chan<- prometheus.Metric)
}

// Describe implements [prometheus.Collector].
func (s Source) Describe(to chan<- *prometheus.Desc) {
	for _, m := range table {
		if m.Role == s.role {
			to <- m.desc
		}
	}
}

// Collect implements [prometheus.Collector].
func (s Source) Collect(to chan<- prometheus.Metric) {
	s.samples(func(m *Metric, value float64, labels ...string) {
		kind := prometheus.GaugeValue
		if m.Type == Counter {
			kind = prometheus.CounterValue
		}
		for i, l := range labels {
			labels[i] = strings.ToValidUTF8(l, "�")
		}
		to <- prometheus.MustNewConstMetric(m.desc, kind, value, labels...)
	})
	if s.histograms != nil {
		s.histograms(to)
	}
}

// boolean returns the value of a gauge that is 1 or 0.
func boolean(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

// seconds returns a time in seconds since 1970, from milliseconds.
func seconds(unixMs int64) float64 { return float64(unixMs) / 1000 }
