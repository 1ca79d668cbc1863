package incluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// left stores the state that an earlier master has left, and creates a pod of the job.
func (c *nodes) left(incarnation string, s *wire.JobStatus) {
	c.Helper()
	text, err := protojson.Marshal(s)
	if err != nil {
		c.Fatal(err)
	}
	c.edit("elasticdl-test-state", map[string]string{
		manifest.KeyUID: "the-job", keyIncarnation: incarnation, keyMaster: "master-a on node-0",
		manifest.KeyRecord: `{"a":1}`, manifest.KeyStatus: string(text),
	})
	p := &core.Pod{ObjectMeta: meta.ObjectMeta{
		Name: "elasticdl-test-worker-7", Namespace: "default", Labels: manifest.PodLabels("test", worker0),
		OwnerReferences: []meta.OwnerReference{manifest.Owner("elasticdl-test-master", "the-job")},
	}}
	p.Status.Phase = core.PodRunning
	c.put(p)
}

// swept reports whether the pod of left was deleted, or is being deleted.
func (c *nodes) swept() bool {
	p := c.get("elasticdl-test-worker-7")
	return p == nil || p.DeletionTimestamp != nil
}

// never is a run that fails the test: the job must not be trained again.
func (c *nodes) never(context.Context, master.Config) (*wire.JobStatus, error) {
	c.Error("the job is trained again")
	return &wire.JobStatus{}, errors.New("trained again")
}

// A master that moves to another node finds its pods running, and the job succeeds without a loss.
func TestMasterComesBackToItsPods(t *testing.T) {
	const epochs = 20
	slow, hurry := patient(t, epochs)
	c := newNodes(t, slow)
	ctx, cancel := context.WithCancel(t.Context())
	end := c.begin(ctx, "master-a")
	c.await("its workers run", func() bool {
		for _, name := range []string{"elasticdl-test-worker-0", "elasticdl-test-worker-1"} {
			if c.pods[name] == nil || c.pods[name].Status.Phase != core.PodRunning {
				return false
			}
		}
		return true
	})
	before := c.get("elasticdl-test-worker-0").UID
	cancel()
	if err := <-end; !errors.Is(err, master.ErrLeft) {
		t.Fatal(err)
	}
	if s := c.status(); job.State(s.State).Ended() {
		t.Errorf("it leaves a job that is %s", s.State)
	}
	hurry()
	if err := <-c.begin(t.Context(), "master-b"); err != nil {
		t.Fatal(err)
	}
	s := c.status()
	if s.State != "Succeeded" || s.RecordsDone != epochs*512 || s.Relaunched != 0 || s.ModelGeneration != 1 ||
		c.state()[keyIncarnation] != "2" {
		t.Errorf("%v", s)
	}
	if p := c.get("elasticdl-test-worker-0"); p == nil || p.UID != before {
		t.Errorf("a worker was replaced: %v", p)
	}
}

// A job that is over is not trained again, even if its master was lost while it ended the job.
func TestEndedJobIsNotTrainedAgain(t *testing.T) {
	for name, tt := range map[string]struct {
		left, reason string // status that the first master wrote last
		err          string
		retries      int32
	}{
		"when it was stopped": {"Stopped", "stopped: terminated", "stopped: terminated", 0},
		"when it failed":      {"Failed", "no data", "no data", 0},
		"when it was done":    {"Succeeded", "", "", 1<<31 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			c := newNodes(t, nil)
			c.left("3", &wire.JobStatus{Name: "test", State: tt.left, Reason: tt.reason})
			err := <-c.beginWith(t.Context(), "master-b", c.never)
			if got := fmt.Sprint(err); got != tt.err && (err != nil || tt.err != "") {
				t.Errorf("error %q, expected %q", got, tt.err)
			}
			if s := c.status(); s.State != tt.left || s.Reason != tt.reason || c.state()[keyIncarnation] != "4" {
				t.Errorf("state %s: %s, incarnation %s", s.State, s.Reason, c.state()[keyIncarnation])
			}
			if !c.swept() || c.retries() != tt.retries {
				t.Errorf("its pod is asked to go: %t; the Job may start %d masters more", c.swept(), c.retries())
			}
		})
	}
}

// A master continues from the record of the earlier one, also in the same pod, and does not take
// the job's checkpoints for those of an earlier job.
func TestMasterGoesOnAfterAnother(t *testing.T) {
	mount := t.TempDir()
	c := newNodes(t, func(j *job.Job) {
		j.Volumes = []job.Volume{{ClaimName: "c", MountPath: mount}}
		j.CheckpointDir, j.CheckpointSteps = j.ClaimDir(), 10
	})
	var dir string
	there := func() bool {
		_, err := os.Stat(filepath.Join(dir, "commit"))
		return err == nil
	}
	begun := 0
	crash := errors.New("killed")
	run := func(ctx context.Context, config master.Config) (*wire.JobStatus, error) {
		begun++
		dir = config.Job.CheckpointDir
		if got := config.Self.Header().Incarnation; got != begun || config.Grace != 45*time.Second {
			t.Errorf("incarnation %d, expected %d; %v for a checkpoint", got, begun, config.Grace)
		}
		switch begun {
		case 1:
			if config.Former != nil {
				t.Errorf("the first master continues from %s", config.Former)
			}
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "commit"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			if err := config.Memory.Write(ctx, []byte(`{"next":5}`)); err != nil {
				t.Fatal(err)
			}
			config.OnStatus(&wire.JobStatus{Name: "test", State: "Running", RecordsDone: 99})
			c.await("the status", func() bool { return c.statusLocked().RecordsDone == 99 })
			return &wire.JobStatus{State: "Running"}, master.ErrLeft
		case 2:
			if string(config.Former) != `{"next":5}` || !there() {
				t.Errorf("it continues from %q; its checkpoints are there: %t", config.Former, there())
			}
			if s := c.status(); s.State != "Running" || s.RecordsDone != 99 {
				t.Errorf("nobody knows how far it is: %v", s)
			}
		}
		return &wire.JobStatus{State: "Failed", Reason: crash.Error(), EndedUnixMs: 1}, crash
	}
	if err := <-c.beginWith(t.Context(), "master-a", run); !errors.Is(err, master.ErrLeft) {
		t.Fatal(err)
	}
	if err := <-c.beginWith(t.Context(), "master-a", run); !errors.Is(err, crash) {
		t.Fatal(err)
	}
	if err := <-c.beginWith(t.Context(), "master-b", c.never); err == nil || err.Error() != "killed" {
		t.Errorf("%v", err)
	}
}

// noticed is a run that ends with the next notice, or with its context.
func noticed(ctx context.Context, config master.Config) (*wire.JobStatus, error) {
	s := &wire.JobStatus{Name: "test", State: "Running", RecordsDone: 1, RecordsPerSecond: 5}
	config.OnStatus(s)
	select {
	case n := <-config.Notices:
		return s, map[master.Notice]error{master.Leave: master.ErrLeft, master.Suspend: master.ErrSuspended}[n]
	case <-ctx.Done():
		s = proto.CloneOf(s)
		s.State, s.Reason, s.EndedUnixMs = "Stopped", context.Cause(ctx).Error(), 1
		return s, context.Cause(ctx)
	}
}

// When the pod of a master is asked to end, the state of its Job decides what the master does.
func TestMasterIsToldToGo(t *testing.T) {
	later, long := meta.NewTime(time.Now().Add(-time.Hour)), int64(60)
	for name, tt := range map[string]struct {
		root  func(*batch.Job)
		err   error
		state string
		swept bool
	}{
		"moved": {func(*batch.Job) {}, master.ErrLeft, "Running", false},
		"suspended": {func(o *batch.Job) {
			o.Spec.Suspend = new(true)
		}, master.ErrSuspended, "Suspended", true},
		"deleted": {func(o *batch.Job) {
			o.DeletionTimestamp = new(meta.Now())
		}, errDeleted, "Stopped", true},
		"deleted and again": {func(o *batch.Job) { o.UID = "another" }, errDeleted, "Stopped", true},
		"late": {func(o *batch.Job) {
			o.Status.Conditions = []batch.JobCondition{{Type: batch.JobFailureTarget,
				Status: core.ConditionTrue, Reason: batch.JobReasonDeadlineExceeded}}
		}, errLate, "Stopped", true},
		"late, and nothing said yet": {func(o *batch.Job) {
			o.Spec.ActiveDeadlineSeconds, o.Status.StartTime = &long, &later
		}, errLate, "Stopped", true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newNodes(t, nil)
			c.left("1", &wire.JobStatus{Name: "test", State: "Running"})
			ctx, cancel := context.WithCancel(t.Context())
			end := c.beginWith(ctx, "master-b", noticed)
			c.await("it runs", func() bool {
				return c.statusLocked().RecordsDone > 0
			})
			c.root(tt.root)
			cancel()
			if err := <-end; !errors.Is(err, tt.err) {
				t.Errorf("%v, expected %v", err, tt.err)
			}
			if s := c.status(); s.State != tt.state || c.swept() != tt.swept ||
				s.State == "Suspended" && s.RecordsPerSecond > 0 {
				t.Errorf("%v; its pods are asked to go: %t", s, c.swept())
			}
			if n := c.retries(); n == 0 {
				t.Error("the Job may start no master any more")
			}
		})
	}
}

// A master that is asked to end deletes the pods also if its Job is suspended or deleted only after
// the master has first read it.
func TestMasterLooksTwice(t *testing.T) {
	for state, root := range map[string]func(*batch.Job){
		"Suspended": func(o *batch.Job) { o.Spec.Suspend = new(true) },
		"Stopped":   func(o *batch.Job) { o.DeletionTimestamp = new(meta.Now()) },
	} {
		c := newNodes(t, nil)
		c.left("1", &wire.JobStatus{Name: "test", State: "Running"})
		ctx, cancel := context.WithCancel(t.Context())
		err := <-c.beginWith(ctx, "master-b", func(ctx context.Context, config master.Config) (*wire.JobStatus, error) {
			cancel()
			s, err := noticed(ctx, config)
			c.root(root)
			return s, err
		})
		if s := c.status(); err == nil || errors.Is(err, master.ErrLeft) || s.State != state || !c.swept() {
			t.Errorf("%v, %s, expected %s; its pods are asked to go: %t", err, s.State, state, c.swept())
		}
		cancel()
	}
}

// A job fails in this order: the failure is stored, so that no later master trains it; its pods are
// deleted; the Job gets a backoff limit of 0, so that it fails with the process of the master.
func TestOrderOfAFailure(t *testing.T) {
	c := newNodes(t, nil)
	c.left("1", &wire.JobStatus{Name: "test", State: "Running"})
	patched := false
	c.refuse = func(method, path string) error {
		switch {
		case method == http.MethodDelete && strings.HasSuffix(path, "elasticdl-test-worker-7"):
			if s := c.status(); s.State != "Failed" {
				t.Errorf("pods are deleted of a job that is %s", s.State)
			}
		case method == http.MethodPatch && strings.HasSuffix(path, "/jobs/elasticdl-test-master") && !patched &&
			c.status().State == "Failed": // not its conditions
			patched = true
			if !c.swept() {
				t.Error("the Job is to fail, and its pods work on")
			}
		}
		return nil
	}
	err := <-c.beginWith(t.Context(), "master-b", func(context.Context, master.Config) (*wire.JobStatus, error) {
		return &wire.JobStatus{Name: "test", State: "Failed", Reason: "bad data", EndedUnixMs: 1},
			errors.New("bad data")
	})
	if err == nil || err.Error() != "bad data" || !patched || c.retries() != 0 {
		t.Errorf("%v; the Job is reported: %t, and may start %d masters more", err, patched, c.retries())
	}
}

// A master whose Role does not allow it to end its Job fails with the reason of the job and that of
// the refusal. Later masters only try to end the Job again, until one is allowed to.
func TestJobThatCannotBeEnded(t *testing.T) {
	c := newNodes(t, nil)
	c.left("1", &wire.JobStatus{Name: "test", State: "Running"})
	allowed := false
	c.refuse = func(method, path string) error {
		switch {
		case method == http.MethodPatch && strings.HasSuffix(path, "/jobs/elasticdl-test-master") &&
			!allowed && c.status().State == "Failed":
			return kubetest.Forbidden("patch", "jobs")
		case method == http.MethodPost && strings.HasSuffix(path, "/pods"):
			t.Error("a pod is made of a job that is over")
		}
		return nil
	}
	run := func(context.Context, master.Config) (*wire.JobStatus, error) {
		return &wire.JobStatus{Name: "test", State: "Failed", Reason: "bad data", EndedUnixMs: 1},
			errors.New("bad data")
	}
	for _, name := range []string{"master-b", "master-b", "master-c"} {
		err := <-c.beginWith(t.Context(), name, run)
		if got := fmt.Sprint(err); !strings.HasPrefix(got,
			"bad data; Job elasticdl-test-master could not be ended: ") || !strings.Contains(got, "patch") {
			t.Errorf("error %q", got)
		}
		if s := c.status(); s.State != "Failed" || s.Reason != "bad data" || c.retries() == 0 {
			t.Errorf("%s: %s; the Job may start %d masters more", s.State, s.Reason, c.retries())
		}
		run = c.never
	}
	allowed = true
	if err := <-c.beginWith(t.Context(), "master-d", run); fmt.Sprint(err) != "bad data" || c.retries() != 0 {
		t.Errorf("%v; the Job may start %d masters more", err, c.retries())
	}
}

// If the end of a job cannot be stored, the job has not ended: the Job starts another master.
func TestEndThatCannotBeWritten(t *testing.T) {
	for _, failed := range []error{nil, errors.New("bad data")} {
		c := newNodes(t, nil)
		c.left("1", &wire.JobStatus{Name: "test", State: "Running"})
		err := <-c.beginWith(t.Context(), "master-b", func(context.Context, master.Config) (*wire.JobStatus, error) {
			c.apiServer.mu.Lock()
			defer c.apiServer.mu.Unlock()
			c.refuse = func(method, path string) error {
				if method == http.MethodPut {
					return kubetest.Forbidden("update", "configmaps")
				}
				return nil
			}
			if failed != nil {
				return &wire.JobStatus{Name: "test", State: "Failed", Reason: "bad data", EndedUnixMs: 1}, failed
			}
			return &wire.JobStatus{Name: "test", State: "Succeeded", EndedUnixMs: 1}, nil
		})
		if err == nil || c.retries() == 0 || c.status().State != "Running" || failed != nil && !errors.Is(err, failed) {
			t.Errorf("%v; the Job may start %d masters more; %s", err, c.retries(), c.status().State)
		}
	}
}

// A master of a suspended Job that is asked to end before it has begun deletes the pods, too.
func TestMasterIsToldToGoAtOnce(t *testing.T) {
	c := newNodes(t, nil)
	c.left("1", &wire.JobStatus{Name: "test", State: "Running"})
	c.root(func(o *batch.Job) { o.Spec.Suspend = new(true) })
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := <-c.beginWith(ctx, "master-b", c.never); !errors.Is(err, master.ErrSuspended) || !c.swept() {
		t.Errorf("%v; its pods are asked to go: %t", err, c.swept())
	}
}

// When another master has begun the job, the superseded one ends at once, and changes neither the
// pods nor the state.
func TestMasterGivesWay(t *testing.T) {
	c := newNodes(t, nil)
	c.left("1", &wire.JobStatus{Name: "test", State: "Running"})
	end := c.beginWith(t.Context(), "master-b",
		func(ctx context.Context, config master.Config) (*wire.JobStatus, error) {
			config.OnStatus(&wire.JobStatus{Name: "test", State: "Running", RecordsDone: 1})
			c.await("the status", func() bool { return c.statusLocked().RecordsDone == 1 })
			c.edit("elasticdl-test-state", map[string]string{keyIncarnation: "3", keyMaster: "master-c on node-1"})
			config.OnStatus(&wire.JobStatus{Name: "test", State: "Running", RecordsDone: 2})
			<-ctx.Done()
			return &wire.JobStatus{Name: "test", State: "Running"}, context.Cause(ctx)
		})
	if err := <-end; !errors.Is(err, master.ErrSuperseded) {
		t.Errorf("%v", err)
	}
	if s := c.status(); s.RecordsDone != 1 || c.swept() || c.retries() == 0 {
		t.Errorf("it wrote over what the other one wrote: %v; the pods are asked to go: %t; the Job "+
			"may start %d masters more", s, c.swept(), c.retries())
	}
}

// A master whose Job cannot be read leaves the job to the next one.
func TestJobThatCannotBeRead(t *testing.T) {
	c := newNodes(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	err := <-c.beginWith(ctx, "master-a", func(ctx context.Context, config master.Config) (*wire.JobStatus, error) {
		c.apiServer.mu.Lock()
		c.refuse = func(method, path string) error {
			if strings.Contains(path, "/jobs/") {
				return kubetest.Forbidden("get", "jobs")
			}
			return nil
		}
		c.apiServer.mu.Unlock()
		cancel()
		return noticed(ctx, config)
	})
	if !errors.Is(err, master.ErrLeft) {
		t.Error(err)
	}
}
