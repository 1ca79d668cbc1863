// Package tensorboard writes the scalars of a job to event files, which TensorBoard reads.
//
//	wire.JobStatus, each second ─┐
//	Rollback, Evaluation ────────┴─> Recorder ──> Sampler ──> []Event ──> Encode ──> file
//
// A [Sampler] decides what is written when, and reads no clock. A [Recorder] performs it, in a
// goroutine of its own: its callers never wait. All files of a job are in one directory, which is
// one run of TensorBoard.
//
// # Steps
//
// The step of a job that trains a model is the version of the model: the number of its updates. The
// step of any other job is the number of seconds that it has run.
//
// # Laws
//
//  1. Of a state that was rolled back nothing is shown: the event that starts the curves again
//     precedes the first point after the rollback. ([Event].Start)
//  2. The steps of a tag never fall, except after such an event.
//  3. A file is only appended to, or replaced by one that begins with the same bytes. A failure
//     leaves no part of an event, or another file continues.
//  4. Memory is bounded: while nothing can be written, the oldest points are dropped.
//
// The format of a file is that of TensorFlow's records: for each event the length of its protocol
// buffer, a checksum of the length, the buffer, and a checksum of the buffer. The checksums are
// CRC-32C, rotated and offset.
package tensorboard
