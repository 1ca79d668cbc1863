// Package metrics has the metrics of a job for Prometheus, and serves them over HTTP. No other
// package imports the client library of Prometheus.
//
//	master: OnMeasures, each second ──> Master.Publish ─┐
//	ps, worker: heartbeats, meters ──> Server, Worker ──┼─> Source ──> Serve: GET /metrics
//	agent: heartbeats, /proc ─────────> Ranks ──────────┘        └───> GET /targets
//
// Every metric is one row of a table ([All]), from which the page docs/metrics.md is made and
// against which the board and the alerts of examples/monitoring are checked. A [Source] makes the
// samples when it is asked, from values that its process has anyway: while nobody asks, metrics
// cost nothing.
//
// All metrics have the label job_name. Labels of the target (pod, instance, namespace) tell the
// pods of a job apart; Prometheus adds them.
//
// Laws:
//
//  1. A source has only metrics of the table, with their labels and no others.
//  2. A scrape takes no lock of a role. Those of a master are a view of its last status, which is a
//     second old at most.
//  3. The counters of a master are those of its journal or of its record: they do not fall when
//     another master takes over. Until a master knows what the earlier ones have counted, it has
//     only those of the journal.
//  4. The number of series of a master does not depend on the number of its workers.
//  5. A server of metrics that cannot listen is a problem in the status, and never ends a role.
package metrics
