package incluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Further keys of the state, in addition to the status.
const (
	// of the newest master, from 1: masters with another number are locked out
	keyIncarnation = "incarnation"
	keyMaster      = "master" // the newest master, as "POD on NODE"
)

const (
	stateEvery = 2 * time.Second // the status is not written more often,
	// and a large one less often: a second more for that many bytes
	stateGrain = 64 << 10
	// nor more often than this if only signs of life have changed
	signsEvery = 10 * time.Second
	// bytes of it, which leave room for a record in a ConfigMap
	stateLimit = 512 << 10
)

// recorder writes the state ConfigMap of a job, as one incarnation of its master: the status, for
// commands, and the record, for the next master. It implements [master.Memory].
type recorder struct {
	maps      clientset.ConfigMaps
	job       string
	namespace string
	// of the Job
	uid string
	me  string
	// 0: not begun
	incarnation int
	log         *slog.Logger

	// of the writer
	turn chan struct{}
	// the state as this master wrote it last; nil: it is to be read. The holder of the turn has it
	last *core.ConfigMap
	// the status that the state holds
	wrote *wire.JobStatus
	// when it was written
	at time.Time
	// there is a status that was not looked at
	fresh chan struct{}

	mu sync.Mutex
	// the newest
	status *wire.JobStatus
}

var _ master.Memory = (*recorder)(nil)

func newRecorder(maps clientset.ConfigMaps, namespace, job, uid, me string, log *slog.Logger) *recorder {
	return &recorder{
		maps: maps, job: job, namespace: namespace, uid: uid, me: me, log: log,
		turn: make(chan struct{}, 1), wrote: new(wire.JobStatus), fresh: make(chan struct{}, 1),
	}
}

// past is the part of a Job's state that earlier masters wrote. The zero value stands for none.
type past struct {
	// incarnation of the last of them
	incarnation int
	// the last of them, as "POD on NODE"
	master string
	// nil: none was written, so that nothing of the job is begun
	record []byte
	// nil: none was written
	status *wire.JobStatus
}

// ended reports whether the job is over.
func (p past) ended() bool { return p.status != nil && job.State(p.status.State).Ended() }

// pastOf reads a state. That of another Job than the one with that UID says nothing.
func pastOf(state *core.ConfigMap, uid string) (p past, err error) {
	data := state.Data
	if observe.OfAnotherJob(state, uid) {
		return p, nil
	}
	if text := data[keyIncarnation]; text != "" {
		if p.incarnation, err = strconv.Atoi(text); err != nil || p.incarnation < 0 ||
			p.incarnation >= mostIncarnations {
			return past{}, fmt.Errorf("%s=%q of ConfigMap %s: expected a number, as a master writes "+
				"it: stop the job, and submit it again", keyIncarnation, role.Brief(text), state.Name)
		}
	}
	p.master = data[keyMaster]
	if text := data[manifest.KeyRecord]; text != "" {
		p.record = []byte(text)
	}
	if text := data[manifest.KeyStatus]; text != "" {
		p.status = new(wire.JobStatus)
		if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), p.status); err != nil {
			return past{}, fmt.Errorf("%s of ConfigMap %s: %w: expected a status, as a master "+
				"writes it: stop the job, and submit it again", manifest.KeyStatus, state.Name, err)
		}
	}
	return p, nil
}

// mostIncarnations is more than there can be: a number must fit into a header.
const mostIncarnations = 1 << 30

// begin raises the incarnation of the job's master, which locks out the master before, and returns
// what was left of those before. The status is written if there is none.
func (r *recorder) begin(ctx context.Context, status *wire.JobStatus) (p past, err error) {
	err = r.update(ctx, func(m *core.ConfigMap) error {
		if p, err = pastOf(m, r.uid); err != nil {
			return err
		}
		if observe.OfAnotherJob(m, r.uid) {
			delete(m.Data, manifest.KeyRecord)
		}
		delete(m.Data, manifest.KeyRest)
		m.Data[manifest.KeyUID], m.Data[keyMaster], m.Data[keyIncarnation] = r.uid, r.me, strconv.Itoa(p.incarnation+1)
		if p.status == nil {
			return r.fill(m, status)
		}
		return nil
	})
	if err != nil {
		return past{}, err
	}
	r.incarnation = p.incarnation + 1
	return p, nil
}

// Write implements [master.Memory].
func (r *recorder) Write(ctx context.Context, record []byte) error {
	if len(record) > master.MostRecord {
		return fmt.Errorf("write what the next master has to know: %d bytes, at most %d fit into "+
			"ConfigMap %s", len(record), master.MostRecord, manifest.StateName(r.job))
	}
	return r.change(ctx, func(m *core.ConfigMap) error {
		m.Data[manifest.KeyRecord] = string(record)
		return nil
	})
}

// setStatus takes the newest status. It does not wait for it to be written.
func (r *recorder) setStatus(status *wire.JobStatus) {
	r.mu.Lock()
	r.status = status
	r.mu.Unlock()
	select {
	case r.fresh <- struct{}{}:
	default:
	}
}

// run writes the statuses that are set, at once when that is the end of the job, until ctx ends or
// another master has begun, which is its error.
func (r *recorder) run(ctx context.Context) error {
	for {
		select {
		case <-r.fresh:
		case <-ctx.Done():
			return nil
		}
		status := r.newest()
		if !worthWriting(status, r.wrote, time.Since(r.at)) {
			continue // the next status comes in a moment
		}
		err := r.write(ctx, status)
		if errors.Is(err, master.ErrSuperseded) {
			return err
		} else if err != nil && ctx.Err() == nil {
			r.log.Warn("The job's status could not be written", "error", err)
		}
		r.pause(ctx, stateEvery+time.Second*time.Duration(proto.Size(status)/stateGrain))
	}
}

// pause waits, but not with the end of the job.
func (r *recorder) pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
			select { // what came meanwhile is looked at
			case r.fresh <- struct{}{}:
			default:
			}
			return
		case <-ctx.Done():
			return
		case <-r.fresh:
			if job.State(r.newest().State).Ended() && !job.State(r.wrote.State).Ended() {
				r.setStatus(r.newest())
				return
			}
		}
	}
}

func (r *recorder) newest() *wire.JobStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.status
}

// finish writes the last status. run has returned.
func (r *recorder) finish(ctx context.Context, status *wire.JobStatus) error {
	if proto.Equal(status, r.wrote) {
		return nil
	}
	return r.write(ctx, status)
}

// rest writes the last status of a master whose job has given back its quota, and until when no
// other one begins.
func (r *recorder) rest(ctx context.Context, status *wire.JobStatus, until time.Time) error {
	return r.change(ctx, func(m *core.ConfigMap) error {
		m.Data[manifest.KeyRest] = until.UTC().Format(time.RFC3339)
		return r.fill(m, status)
	})
}

func (r *recorder) write(ctx context.Context, status *wire.JobStatus) error {
	err := r.change(ctx, func(m *core.ConfigMap) error { return r.fill(m, status) })
	if err == nil {
		r.wrote, r.at = status, time.Now()
	}
	return err
}

// worthWriting reports whether a status differs from the one that was written some time ago. Signs
// of life change all the time: those of the processes of a program alone are written every
// signsEvery.
func worthWriting(status, wrote *wire.JobStatus, ago time.Duration) bool {
	if proto.Equal(status, wrote) {
		return false
	}
	return ago >= signsEvery || !proto.Equal(withoutSigns(status), withoutSigns(wrote))
}

// withoutSigns returns a status without what its processes do: which there are is kept.
func withoutSigns(s *wire.JobStatus) *wire.JobStatus {
	s = proto.CloneOf(s)
	for _, p := range s.Pods {
		for _, process := range p.Processes {
			process.Cores, process.Output, process.OutputUnixMs = 0, "", 0
		}
	}
	return s
}

// change changes the state. It returns [master.ErrSuperseded] if another master has begun.
func (r *recorder) change(ctx context.Context, how func(*core.ConfigMap) error) error {
	return r.update(ctx, func(m *core.ConfigMap) error {
		if m.Data[manifest.KeyUID] != r.uid || m.Data[keyIncarnation] != strconv.Itoa(r.incarnation) {
			return fmt.Errorf("%w: %s", master.ErrSuperseded, m.Data[keyMaster])
		}
		return how(m)
	})
}

// update reads the state, changes it and writes it back, and repeats that after a conflict. It does
// not read again what this master has written last: if another has written since, the API server
// refuses the update.
func (r *recorder) update(ctx context.Context, how func(*core.ConfigMap) error) error {
	return insist(ctx, r.log, "write the job's state", func(ctx context.Context) (err error) {
		select {
		case r.turn <- struct{}{}:
			defer func() { <-r.turn }()
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		m := r.last
		r.last = nil
		if m == nil {
			if m, err = r.maps.Get(ctx, manifest.StateName(r.job), meta.GetOptions{}); err != nil {
				return err
			}
		}
		m = &core.ConfigMap{TypeMeta: m.TypeMeta, ObjectMeta: m.ObjectMeta, Data: maps.Clone(m.Data),
			BinaryData: m.BinaryData, Immutable: m.Immutable}
		if m.Data == nil {
			m.Data = make(map[string]string)
		}
		if err := how(m); err != nil {
			return err
		}
		if m, err = r.maps.Update(ctx, m, meta.UpdateOptions{}); err != nil {
			return err
		}
		r.last = m
		return nil
	})
}

// fill puts a status into the state.
func (r *recorder) fill(m *core.ConfigMap, status *wire.JobStatus) error {
	text, err := encode(status, r.namespace)
	if err != nil {
		return err
	}
	m.Data[manifest.KeyStatus] = string(text)
	return nil
}

// encode returns a status as a text that fits into a ConfigMap. For a larger job the text has only
// the living pods, without their processes, and the latest evaluations, as many as fit.
func encode(status *wire.JobStatus, namespace string) ([]byte, error) {
	status = proto.CloneOf(status)
	status.Namespace = namespace
	text, err := protojson.Marshal(status)
	if err != nil || len(text) <= stateLimit {
		return text, err
	}
	status.Pods = slices.DeleteFunc(status.Pods, func(p *wire.PodStatus) bool { return p.EndedUnixMs > 0 })
	if text, err = protojson.Marshal(status); err != nil || len(text) <= stateLimit {
		return text, err
	}
	for _, p := range status.Pods {
		p.Processes = nil
	}
	for {
		text, err = protojson.Marshal(status)
		pods, evaluations := len(status.Pods), len(status.Evaluations)
		switch {
		case err != nil || len(text) <= stateLimit || pods+evaluations == 0:
			return text, err
		case pods >= evaluations:
			status.Pods = status.Pods[:pods*3/4]
		default:
			status.Evaluations = status.Evaluations[evaluations-evaluations*3/4:]
		}
	}
}

// absentYet reports whether an object, or the permission to read it, is missing and may still come:
// kubectl apply creates them one after the other.
func absentYet(err error) bool { return api.IsNotFound(err) || api.IsForbidden(err) }
