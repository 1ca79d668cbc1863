package tensorboard

import (
	"maps"
	"slices"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Session tells whether other masters have written to the run before.
type Session int

const (
	// First is the first master of a new job: what other jobs have written to the run is dropped.
	First Session = iota + 1
	// Continued is the first master of a job that was resumed.
	Continued
	// Successor is a master that replaces another one. It learns the version of the model from the
	// holders of the model, so that its first statuses may have too low a version.
	Successor
)

// Past holds what earlier masters have written to the files of a run.
type Past struct {
	// Step is the highest step of the points that TensorBoard shows, -1 if there are none.
	Step int64
	// Rollbacks is the last value of [TagRollbacks], -1 if there is none.
	Rollbacks int64
}

// PastOf returns what the events of a run show.
func PastOf(events []Event) Past {
	p := Past{Step: -1, Rollbacks: -1}
	for _, e := range events {
		if e.Start {
			p.Step = min(p.Step, e.Step-1)
		}
		if len(e.Scalars) > 0 {
			p.Step = max(p.Step, e.Step)
		}
		for _, s := range e.Scalars {
			if s.Tag == TagRollbacks {
				p.Rollbacks = int64(s.Value)
			}
		}
	}
	return p
}

// Fact is an event of a job that its status does not show exactly: a [Rollback], a [World] or an
// [Evaluation].
type Fact interface {
	events(*Sampler, time.Time) []Event
}

// Rollback tells that the training returns to a version of the model, 0 for the initial values, or
// that a resumed job begins with it.
type Rollback struct {
	Version int64
	// ModelGeneration is the model generation that begins; 0: it is not known.
	ModelGeneration int64
}

// World tells that the workers of a ring have a new world, with the version of the model that the
// world begins with. The version falls if the workers that had the newest state are lost.
type World struct {
	// ID is the number of the world, which rises.
	ID      int64
	Version int64
}

// Evaluation tells the metrics of a version of the model.
type Evaluation struct {
	Version int64
	Metrics map[string]float64
}

// TagRollbacks is the tag of the number of rollbacks.
const TagRollbacks = "faults/rollbacks"

// Sampler decides which points are written. Its methods get the statuses and facts of a job in
// their order, and return the events to write.
type Sampler struct {
	session Session
	past    Past
	// model generation of the last rollback, and number of the last world: statuses of earlier ones
	// are out of date
	generation, world int64
	// highest step that is shown, -1 if none is
	step int64
	// heard reports whether a rollback was announced in this session.
	heard bool
	// started reports whether the curves of other jobs are dropped.
	started bool
	// time of the first status, of the last points, and of the last points of all tags
	first, last, whole time.Time
	// values that were written last
	values map[string]float32
	ended  bool
}

// NewSampler returns the sampler of a master, which knows what earlier masters have written.
func NewSampler(session Session, past Past) *Sampler {
	if session == First {
		past = Past{Step: -1, Rollbacks: -1}
	}
	return &Sampler{session: session, past: past, step: past.Step, started: session != First,
		values: make(map[string]float32)}
}

const (
	// soonest is the least time between two points of a tag, and between two statuses.
	soonest = time.Second
	// seldom is the longest time between two points of a tag, while the step changes.
	seldom = time.Minute
	// jitter is the time by which a status may come too early.
	jitter = soonest / 2
	// density divides the time that a job has run into the time between two points: TensorBoard
	// shows a thousand points of a tag by default.
	density = 500
)

// interval returns the time between two points of a tag whose value does not matter more than
// others, in a job that has run for some time.
func interval(ran time.Duration) time.Duration { return min(max(ran/density, soonest), seldom) }

// Status takes a status of the job.
func (s *Sampler) Status(status *wire.JobStatus, now time.Time) []Event {
	if status.ModelGeneration < s.generation || status.World < s.world || s.ended {
		return nil
	}
	if s.first.IsZero() {
		s.first = now
	}
	ended := job.State(status.State).Ended() || job.State(status.State) == job.Suspended
	if !s.last.IsZero() && now.Sub(s.last) < soonest-jitter && !ended {
		return nil
	}
	all, step, ok := s.place(status, now)
	if !ok {
		return nil
	}
	scalars := s.choose(status, step, now, ended)
	if len(scalars) == 0 {
		return all
	}
	s.ended = ended
	s.step, s.last = max(s.step, step), now
	return append(all, Event{WallTime: seconds(now), Step: step, Scalars: scalars})
}

// place returns the step of a status, with the start that precedes it. It is not ok if the status
// has no points, because its version may be wrong.
func (s *Sampler) place(status *wire.JobStatus, now time.Time) (all []Event, step int64, ok bool) {
	if !s.started {
		s.started = true
		all = append(all, s.start(0, now))
	}
	if job.Type(status.Type) != job.Train {
		return all, s.past.Step + 1 + int64(now.Sub(s.first)/time.Second), true
	}
	step = status.Version
	unannounced := s.session == Successor && !s.heard && s.past.Rollbacks >= 0 &&
		int64(status.Rollbacks) != s.past.Rollbacks
	switch {
	case !unannounced && step >= s.step:
	case step == 0: // it is not known yet
		return all, 0, false
	case unannounced:
		// The master before has rolled the model back, and was lost before it could write that.
		s.heard = true
		all = append(all, s.start(step, now))
	case s.session == Continued && s.last.IsZero(): // from an older state
		all = append(all, s.start(step, now))
	default: // holders of the model are missing
		return all, 0, false
	}
	return all, step, true
}

// start returns the event that drops all points from a step on.
func (s *Sampler) start(step int64, now time.Time) Event {
	s.step = min(s.step, step-1)
	clear(s.values)
	return Event{WallTime: seconds(now), Step: step, Start: true}
}

// choose returns the values to write: all of them if the time has come or the job has ended, else
// those that have changed and do not change all the time.
func (s *Sampler) choose(status *wire.JobStatus, step int64, now time.Time, ended bool) (chosen []Scalar) {
	ran := now.Sub(time.UnixMilli(status.StartedUnixMs))
	moves := step > s.step
	due := ended || moves && (s.whole.IsZero() || now.Sub(s.whole) >= interval(ran)-jitter)
	if due {
		s.whole = now
	}
	for _, v := range values(status, now) {
		before, known := s.values[v.Tag]
		if due && (moves || !v.moves) || !v.moves && (!known || before != v.Value) {
			chosen = append(chosen, v.Scalar)
			s.values[v.Tag] = v.Value
		}
	}
	return chosen
}

// value is a scalar of a status.
type value struct {
	Scalar
	// moves reports whether the value changes with each step or all the time.
	moves bool
}

// values returns the scalars of a status.
func values(s *wire.JobStatus, now time.Time) (all []value) {
	steady := func(tag string, v float64) { all = append(all, value{Scalar{tag, float32(v)}, false}) }
	moving := func(tag string, v float64) { all = append(all, value{Scalar{tag, float32(v)}, true}) }
	kind := s.Type
	if job.Type(kind) == job.Run {
		kind = string(job.Train)
	}
	if s.Loss != 0 {
		moving(kind+"/loss", float64(s.Loss))
	}
	if s.Epochs > 0 {
		steady(kind+"/epoch", float64(s.Epoch))
	}
	if s.RecordsTotal > 0 {
		moving(kind+"/records", float64(s.RecordsDone))
		moving(kind+"/records_per_second", s.RecordsPerSecond)
	}
	running := make(map[wire.Role]int)
	for _, p := range s.Pods {
		if p.State == pod.Running.String() {
			running[p.Role]++
		}
	}
	steady("cluster/workers", float64(running[wire.Role(pod.Worker)]))
	steady("cluster/workers_wanted", float64(s.Workers))
	if job.Strategy(s.Strategy) == job.AllReduce || s.World > 0 {
		steady("cluster/world_size", float64(s.WorldSize))
	} else if s.Strategy != "" {
		steady("cluster/parameter_servers", float64(running[wire.Role(pod.PS)]))
	}
	steady("faults/replaced_pods", float64(s.Relaunched))
	steady("faults/returned_leases", float64(s.Requeued))
	steady(TagRollbacks, float64(s.Rollbacks))
	if job.Type(s.Type) == job.Run {
		steady("faults/program_failures", float64(s.Failures))
	}
	written := s.Checkpoint.GetUnixMs()
	if c := s.Checkpoint; c.GetNumber() > 0 {
		steady("checkpoint/version", float64(c.Version))
	}
	if s.Saved != nil {
		written = s.Saved.UnixMs
	}
	if written > 0 {
		moving("checkpoint/age_seconds", max(0, now.Sub(time.UnixMilli(written)).Seconds()))
	}
	return all
}

func (r Rollback) events(s *Sampler, now time.Time) []Event {
	if s.ended {
		return nil
	}
	s.generation = max(s.generation, r.ModelGeneration)
	s.heard = true
	from := r.Version + 1
	if r.Version == 0 {
		from = 0
	}
	if !s.started {
		s.started, from = true, 0
	}
	e := s.start(from, now)
	s.step, s.whole = max(s.step, r.Version), time.Time{}
	return []Event{e}
}

func (w World) events(s *Sampler, now time.Time) []Event {
	s.world = max(s.world, w.ID)
	if w.Version <= 0 || w.Version >= s.step || s.ended {
		return nil
	}
	return []Event{s.start(w.Version+1, now)}
}

func (e Evaluation) events(s *Sampler, now time.Time) (all []Event) {
	if len(e.Metrics) == 0 {
		return nil
	}
	if !s.started {
		s.started = true
		all = append(all, s.start(0, now))
	}
	return append(all, Event{WallTime: seconds(now), Step: e.Version, Scalars: metrics(e.Metrics)})
}

// Fact takes a fact of the job.
func (s *Sampler) Fact(f Fact, now time.Time) []Event { return f.events(s, now) }

// metrics returns the metrics of an evaluation as scalars, by their names.
func metrics(values map[string]float64) (all []Scalar) {
	for _, name := range slices.Sorted(maps.Keys(values)) {
		all = append(all, Scalar{"eval/" + name, float32(values[name])})
	}
	return all
}

// seconds returns a time in seconds since 1970.
func seconds(now time.Time) float64 { return float64(now.UnixNano()) / float64(time.Second) }
