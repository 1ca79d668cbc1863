// Package curve keeps how a job has progressed over time: records, speed, loss, workers and the
// results of evaluations, in a bounded number of points.
//
//	one Sample a second ──> Curve.Observe ──> slots of equal length:  |  4 s |  4 s |  4 s |
//	evaluations ──────────> Curve.Measure                             full: each two become one
//
// A curve begins with slots of one second. When it has more than [Most] points, their length
// doubles, and each two neighbours become one point. So it always has the whole life of a job, with
// at least half of [Most] points once the job has run that long. Slots in which nothing was
// observed, as while a job is suspended, have no point.
//
// # How one drives it
//
//	var c curve.Curve
//	c.Observe(curve.Sample{Records: 640, Rate: 64, Loss: 0.7, Workers: 2}, now)
//	c.Measure(map[string]float64{"accuracy": 0.9}, now)
//	saved := c.Snapshot()
//	c = curve.Restore(saved)
//	for _, p := range c.Points() { … }
//
// The caller gives the time. A [Curve] does no I/O and holds no lock.
//
// Laws:
//
//  1. A curve has at most [Most] points, and at most [MostNames] metrics of at most [MostMeasured]
//     values. Its snapshot as JSON has at most [MostBytes] bytes.
//  2. Times of points rise. A sample whose time is before that of the last point counts for that
//     point: clocks of two masters may differ.
//  3. A point has the newest number of records of its samples, the least number of workers, and the
//     mean of their speeds and of their losses. So a short loss of a worker is never averaged away.
//  4. A point has a loss if and only if one of its samples had one. No value is NaN or infinite.
//  5. The newest sample is in the last point, whatever happened before.
//  6. Restore of a Snapshot is the same curve: it answers all later calls as the saved one would.
package curve
