package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Keys of the state that name the master which writes it, as "POD on NODE", and its Job, by its UID: what was made with
// kubectl apply is there still when another Job of that name is.
const (
	keyMaster = "master"
	keyUID    = "uid"
)

const (
	stateEvery = 2 * time.Second // the state is not written more often,
	stateGrain = 64 << 10        // and a large one less often: a second more for so many bytes
	stateLimit = 768 << 10       // bytes, with which a ConfigMap is not too large
)

// errSuperseded ends a master that finds another one's name in the state.
var errSuperseded = errors.New("another master has begun this job")

// recorder writes the state ConfigMap of a job: the status, for whoever asks.
type recorder struct {
	maps      typed.ConfigMapInterface
	job       string
	namespace string
	uid       string // of the Job
	me        string
	log       *slog.Logger

	wrote *wire.JobStatus // what the state holds
	fresh chan struct{}   // there is a status that was not looked at

	mu     sync.Mutex
	status *wire.JobStatus // the newest
}

func newRecorder(maps typed.ConfigMapInterface, namespace, job, uid, me string, log *slog.Logger) *recorder {
	return &recorder{maps: maps, job: job, namespace: namespace, uid: uid, me: me, log: log, wrote: new(wire.JobStatus), fresh: make(chan struct{}, 1)}
}

// begin puts this master's name into the state. If another's is there already, that is returned with the status that it
// left behind, and nothing is changed. What the master of a Job before has left is nobody's.
func (r *recorder) begin(ctx context.Context, status *wire.JobStatus) (former string, left *wire.JobStatus, err error) {
	err = r.change(ctx, func(m *core.ConfigMap) error {
		if former = m.Data[keyMaster]; former != "" && former != r.me && !ofAnother(m, r.uid) {
			left = new(wire.JobStatus)
			if text := m.Data[manifest.KeyStatus]; text != "" {
				if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), left); err != nil {
					return fmt.Errorf("read the status that %s left: %w", former, err)
				}
			}
			return errSuperseded
		}
		former = ""
		return r.fill(m, status)
	})
	if errors.Is(err, errSuperseded) {
		return former, left, nil
	}
	return "", nil, err
}

// takeOver writes a status whatever master wrote the last one.
func (r *recorder) takeOver(ctx context.Context, status *wire.JobStatus) error {
	return r.change(ctx, func(m *core.ConfigMap) error { return r.fill(m, status) })
}

// note takes the newest status. It does not wait for it to be written.
func (r *recorder) note(status *wire.JobStatus) {
	r.mu.Lock()
	r.status = status
	r.mu.Unlock()
	select {
	case r.fresh <- struct{}{}:
	default:
	}
}

// run writes what is noted, at once when that is the end of the job, until ctx ends or another master
// has begun the job, which is its error.
func (r *recorder) run(ctx context.Context) error {
	for {
		select {
		case <-r.fresh:
		case <-ctx.Done():
			return nil
		}
		status := r.newest()
		if proto.Equal(status, r.wrote) {
			continue
		}
		err := r.write(ctx, status)
		if errors.Is(err, errSuperseded) {
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
				r.note(r.newest())
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

func (r *recorder) write(ctx context.Context, status *wire.JobStatus) error {
	err := r.change(ctx, func(m *core.ConfigMap) error {
		if m.Data[keyMaster] != r.me {
			return fmt.Errorf("%w: %s", errSuperseded, m.Data[keyMaster])
		}
		return r.fill(m, status)
	})
	if err == nil {
		r.wrote = status
	}
	return err
}

// change reads the state, changes it and writes it back, until nobody else has written meanwhile.
func (r *recorder) change(ctx context.Context, how func(*core.ConfigMap) error) error {
	return insist(ctx, r.log, "write the job's status", func(ctx context.Context) error {
		m, err := r.maps.Get(ctx, manifest.StateName(r.job), meta.GetOptions{})
		if err != nil {
			return err
		}
		m.Data = maps.Clone(m.Data)
		if m.Data == nil {
			m.Data = make(map[string]string)
		}
		if err := how(m); err != nil {
			return err
		}
		_, err = r.maps.Update(ctx, m, meta.UpdateOptions{})
		return err
	})
}

// fill puts a status into the state.
func (r *recorder) fill(m *core.ConfigMap, status *wire.JobStatus) error {
	text, err := encode(status, r.namespace)
	if err != nil {
		return err
	}
	m.Data[keyUID], m.Data[keyMaster], m.Data[manifest.KeyStatus] = r.uid, r.me, string(text)
	return nil
}

// ofAnother says that a state is of another Job than the one with that UID.
func ofAnother(state *core.ConfigMap, uid string) bool {
	of := state.Data[keyUID]
	return of != "" && of != uid
}

// encode is a status as text that a ConfigMap can hold. Of a job that is too large for that it has the living pods and the
// latest evaluations, as many as fit: what there are more of is cut first.
func encode(status *wire.JobStatus, namespace string) ([]byte, error) {
	status = proto.CloneOf(status)
	status.Namespace = namespace
	text, err := protojson.Marshal(status)
	if err != nil || len(text) <= stateLimit {
		return text, err
	}
	status.Pods = slices.DeleteFunc(status.Pods, func(p *wire.PodStatus) bool { return p.EndedUnixMs > 0 })
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

// absentYet says that an object, or the permission to read it, may still come: kubectl apply makes them one after the other.
func absentYet(err error) bool { return api.IsNotFound(err) || api.IsForbidden(err) }
