package incluster

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/test/pace"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// nodes is an API server whose pods run as goroutines.
type nodes struct {
	*apiServer
	roles sync.WaitGroup

	host string // host of all addresses; "": 127.0.0.1

	mu       sync.Mutex
	master   string // address of the master, once it
	listened bool
	leaves   map[types.UID]context.CancelFunc
}

// newNodes returns nodes with a submitted job of 2 workers and a server.
func newNodes(t *testing.T, change func(*job.Job)) *nodes {
	t.Helper()
	c := &nodes{apiServer: newAPIServer(t), master: "127.0.0.1:1", leaves: make(map[types.UID]context.CancelFunc)}
	j := kubetest.Job()
	j.TrainingData, j.ModelDef = filepath.Join(t.TempDir(), "train"), pace.Small.Def()
	j.MinibatchSize, j.NumMinibatchesPerTask, j.NumEpochs = 16, 2, 2
	if change != nil {
		change(j)
	}
	writeRecords(t, j.TrainingData, 512)
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	c.put(&core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test", Namespace: "default"},
		Data: map[string]string{
			manifest.KeyJob: string(text), manifest.KeyNumWorkers: strconv.Itoa(j.NumWorkers),
		}})
	c.put(&core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test-state", Namespace: "default"}})
	c.put(&core.Secret{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test-identity", Namespace: "default"}})
	c.root(func(o *batch.Job) { o.Spec.BackoffLimit = new(int32(math.MaxInt32)) })
	ctx, cancel := context.WithCancel(context.Background())
	c.roles.Go(func() { c.kubelet(ctx) })
	t.Cleanup(func() {
		cancel()
		c.roles.Wait()
	})
	return c
}

// kubelet runs all pods until ctx ends.
func (c *nodes) kubelet(ctx context.Context) {
	for {
		c.apiServer.mu.Lock()
		changed := c.changed
		var fresh []*core.Pod
		for _, p := range c.pods {
			c.mu.Lock()
			leave, known := c.leaves[p.UID]
			c.mu.Unlock()
			if !known && p.Status.Phase == core.PodPending {
				fresh = append(fresh, p)
			}
			if known && p.DeletionTimestamp != nil {
				leave()
			}
		}
		c.apiServer.mu.Unlock()
		for _, p := range fresh {
			role, cancel := context.WithCancel(ctx)
			c.mu.Lock()
			c.leaves[p.UID] = cancel
			c.mu.Unlock()
			c.change(p.Name, runs)
			c.roles.Go(func() { c.run(role, p) })
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// token writes a pod's token, for the audience of the pod's volume, as a kubelet does. It returns
// the file, and the path at which the pod's container sees it.
func (c *nodes) token(p *core.Pod) (file, seen string) {
	c.Helper()
	for _, v := range p.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		its := v.Projected.Sources[0].ServiceAccountToken
		says := bound(p.Name, p.UID)
		says["aud"], says["exp"] = []string{its.Audience},
			time.Now().Add(time.Duration(*its.ExpirationSeconds)*time.Second).Unix()
		file = filepath.Join(c.TempDir(), its.Path)
		if err := os.WriteFile(file, []byte(c.issuer.sign(says)), 0o600); err != nil {
			c.Error(err)
		}
		for _, m := range p.Spec.Containers[0].VolumeMounts {
			if m.Name == v.Name {
				return file, filepath.Join(m.MountPath, its.Path)
			}
		}
	}
	c.Errorf("pod %s has no token", p.Name)
	return "", ""
}

// environ returns the environment of a pod as a kubelet makes it, with the path of the token on
// this machine.
func (c *nodes) environ(p *core.Pod) func(name string) string {
	c.Helper()
	file, seen := c.token(p)
	return func(name string) string {
		for _, v := range p.Spec.Containers[0].Env {
			switch {
			case v.Name != name:
			case v.ValueFrom != nil:
				c.Errorf("%s of pod %s is not in the environment as it stands: %+v", name, p.Name, v.ValueFrom)
			case v.Value == seen:
				return file
			default:
				return v.Value
			}
		}
		return ""
	}
}

// run runs a pod until it ends.
func (c *nodes) run(ctx context.Context, p *core.Pod) {
	_, id, incarnation, _ := manifest.ParseLabels(p.Labels)
	c.mu.Lock()
	its := role.Role{Master: c.master, Index: id.Index, Incarnation: incarnation, Threads: 1, Log: c.Output()}
	c.mu.Unlock()
	its.Identify(c.environ(p), nil)
	if c.host != "" {
		its.Address = net.JoinHostPort(c.host, "0")
		its.Listen = its.Address
	}
	main := role.RunWorker
	if id.Role == pod.PS {
		main = role.RunPS
	}
	code := int32(0)
	if main(ctx, its) != nil {
		code = 1
	}
	// held for the end and the removal together: the API server removes an ended pod at its
	// deletion
	c.apiServer.mu.Lock()
	defer c.apiServer.mu.Unlock()
	now := c.pods[p.Name]
	if now == nil || now.UID != p.UID {
		return // it was removed
	}
	now = now.DeepCopy()
	exits(code)(now)
	c.pods[p.Name] = now
	c.note("pods", "MODIFIED", now)
	if now.DeletionTimestamp != nil {
		delete(c.pods, p.Name)
		c.note("pods", "DELETED", now.DeepCopy())
	}
}

// Write takes the log of the master, and reads from it the address of the master, which is there
// before any pod.
func (c *nodes) Write(line []byte) (int, error) {
	if found := listens.FindSubmatch(line); found != nil {
		c.mu.Lock()
		c.master, c.listened = string(found[1]), true
		c.mu.Unlock()
	}
	return c.Output().Write(line)
}

var listens = regexp.MustCompile(`Master started .*address=(\S+)`)

// root changes the master's Job, and creates it if there is none.
func (c *nodes) root(how func(*batch.Job)) {
	c.apiServer.mu.Lock()
	defer c.apiServer.mu.Unlock()
	o := c.jobs["elasticdl-test-master"].DeepCopy()
	if o == nil {
		o = &batch.Job{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test-master", Namespace: "default", UID: "the-job"}}
	}
	how(o)
	c.jobs[o.Name] = o
	c.wake()
}

// retries returns the backoff limit of the Job: how many more masters it may start.
func (c *nodes) retries() int32 {
	c.apiServer.mu.Lock()
	defer c.apiServer.mu.Unlock()
	return *c.jobs["elasticdl-test-master"].Spec.BackoffLimit
}

// begin starts a master, and returns a channel with its error.
func (c *nodes) begin(ctx context.Context, name string) <-chan error {
	c.Helper()
	return c.beginWith(ctx, name, master.Run)
}

// beginWith starts a master that runs the job by run, and returns a channel with its error.
func (c *nodes) beginWith(ctx context.Context, name string,
	run func(context.Context, master.Config) (*wire.JobStatus, error)) <-chan error {
	c.Helper()
	listen := net.JoinHostPort(cmp.Or(c.host, "127.0.0.1"), "0")
	c.mu.Lock()
	if c.listened {
		listen = c.master // the address that the pods know
	}
	c.mu.Unlock()
	m, err := newKubeMaster(MasterConfig{
		Job: "test", Namespace: "default", Client: c.client(), Listen: listen, Output: c,
		Environ: []string{"POD_NAME=" + name, job.EnvUID + "=the-job", "NODE_NAME=node-1"},
	})
	if err != nil {
		c.Fatal(err)
	}
	m.runs = run
	ended := make(chan error, 1)
	go func() { ended <- m.run(ctx) }()
	c.Cleanup(func() {
		select {
		case <-ended:
		case <-time.After(time.Minute):
			c.Error("the master does not end")
		}
		close(ended)
	})
	end := make(chan error, 1)
	go func() {
		err := <-ended
		end <- err
		ended <- err
	}()
	return end
}

// status returns the status in the stored state.
func (c *nodes) status() *wire.JobStatus {
	c.Helper()
	c.apiServer.mu.Lock()
	defer c.apiServer.mu.Unlock()
	return c.statusLocked()
}

func (c *nodes) statusLocked() *wire.JobStatus {
	s := new(wire.JobStatus)
	if text := c.maps["elasticdl-test-state"].Data[manifest.KeyStatus]; text != "" {
		if err := protojson.Unmarshal([]byte(text), s); err != nil {
			c.Error(err)
		}
	}
	return s
}

// state returns all data of the stored state.
func (c *nodes) state() map[string]string {
	c.apiServer.mu.Lock()
	defer c.apiServer.mu.Unlock()
	return c.maps["elasticdl-test-state"].Data
}

// edit changes a ConfigMap as the command line does.
func (c *nodes) edit(name string, data map[string]string) {
	c.apiServer.mu.Lock()
	defer c.apiServer.mu.Unlock()
	m := c.maps[name].DeepCopy()
	if m.Data == nil {
		m.Data = make(map[string]string)
	}
	maps.Copy(m.Data, data)
	c.maps[name] = m
	c.note("configmaps", "MODIFIED", m)
}

// A job succeeds although it is scaled, loses a worker, and the API server does not answer at
// times.
func TestMasterRunsAJob(t *testing.T) {
	const epochs = 20
	slow, hurry := patient(t, epochs)
	c := newNodes(t, slow)
	end := c.begin(t.Context(), "master-a")
	there := func(name string) func() bool {
		return func() bool { return c.pods[name] != nil && c.pods[name].Status.Phase == core.PodRunning }
	}
	c.await("a worker runs", there("elasticdl-test-worker-1"))
	c.edit("elasticdl-test", map[string]string{manifest.KeyNumWorkers: "3"})
	c.await("a third worker runs", there("elasticdl-test-worker-2"))
	c.change("elasticdl-test-worker-0", preempted)
	c.await("another worker runs in its place", there("elasticdl-test-worker-3"))
	c.away(true)
	c.await("the outage is noticed", func() bool { return len(c.missed) > 0 })
	c.away(false)
	hurry()
	if err := <-end; err != nil {
		t.Fatal(err)
	}
	s := c.status()
	if s.State != "Succeeded" || s.RecordsDone != epochs*512 || s.RecordsTotal != epochs*512 ||
		s.Relaunched != 1 || s.Namespace != "default" || s.Workers != 0 && s.Workers != 3 {
		t.Errorf("%v", s)
	}
	c.apiServer.mu.Lock()
	defer c.apiServer.mu.Unlock()
	for name, p := range c.pods {
		if p.Status.Phase != core.PodSucceeded {
			t.Errorf("%s is left, %s", name, p.Status.Phase)
		}
	}
}

// On a cluster with only IPv6, all processes listen and are reached at IPv6 addresses.
func TestJobOnIPv6(t *testing.T) {
	switch l, err := net.Listen("tcp", "[::1]:0"); {
	case err == nil:
		l.Close()
	case os.Getenv("CI") != "":
		// where a skipped test would not be noticed
		t.Fatal("this machine has no IPv6: ", err)
	default:
		t.Skip("this machine has no IPv6: ", err)
	}
	for _, strategy := range []job.Strategy{job.ParameterServer, job.AllReduce} {
		c := newNodes(t, func(j *job.Job) {
			if j.Strategy = strategy; strategy == job.AllReduce {
				j.NumPS = 0
			}
		})
		c.host = "::1"
		if err := <-c.begin(t.Context(), "master-a"); err != nil {
			t.Fatal(err)
		}
		if s := c.status(); s.State != "Succeeded" || s.RecordsDone != 2*512 {
			t.Errorf("%s: %s, %d records", strategy, s.State, s.RecordsDone)
		}
		for _, p := range c.status().Pods {
			if p.Address != "" && !strings.HasPrefix(p.Address, "[::1]:") {
				t.Errorf("%s: a pod at %s", strategy, p.Address)
			}
		}
	}
}

// Objects that kubectl apply has created outlive their Job. The next Job of the same name does not
// use their state.
func TestMasterOfAnotherJobOfTheName(t *testing.T) {
	for _, left := range []string{"Running", "Succeeded"} {
		c := newNodes(t, nil)
		text, err := protojson.Marshal(&wire.JobStatus{Name: "test", State: left})
		if err != nil {
			t.Fatal(err)
		}
		c.edit("elasticdl-test-state", map[string]string{
			manifest.KeyUID: "the-job-before", keyIncarnation: "7", keyMaster: "master-a on node-0",
			manifest.KeyRecord: "{}", manifest.KeyStatus: string(text),
		})
		if err := <-c.begin(t.Context(), "master-b"); err != nil {
			t.Errorf("left %s: %v", left, err)
		}
		if s := c.status(); s.State != "Succeeded" || s.RecordsDone != 2*512 {
			t.Errorf("left %s: %s, %d records", left, s.State, s.RecordsDone)
		}
		if data := c.state(); data[keyIncarnation] != "1" || data[manifest.KeyUID] != "the-job" ||
			data[manifest.KeyRecord] == "{}" {
			t.Errorf("left %s: it took over %v", left, data)
		}
	}
}

// A master creates no pods while a worker of an earlier job of the same name runs: that worker
// knows the same address, and would take this master for its own.
func TestMasterWaitsForThePodsOfTheFormerJob(t *testing.T) {
	c := newNodes(t, nil)
	former := &core.Pod{
		ObjectMeta: meta.ObjectMeta{
			Name: "elasticdl-test-worker-0", Namespace: "default", Labels: manifest.PodLabels("test", worker0),
			OwnerReferences: []meta.OwnerReference{manifest.Owner("elasticdl-test-master", "the-job-before")},
		},
		Status: core.PodStatus{Phase: core.PodRunning},
	}
	c.put(former)
	done := former.DeepCopy()
	// a pod that has ended is not waited for
	done.Name, done.Status.Phase = "elasticdl-test-worker-7", core.PodSucceeded
	c.put(done)
	end := c.begin(t.Context(), "master-b")
	c.await("the job is begun", func() bool { return c.maps["elasticdl-test-state"].Data[keyMaster] != "" })
	time.AfterFunc(300*time.Millisecond, func() {
		c.apiServer.mu.Lock()
		n := len(c.pods)
		c.apiServer.mu.Unlock()
		if n != 2 {
			t.Errorf("%d pods while that of the former job lives", n)
		}
		c.change("elasticdl-test-worker-0", nil)
	})
	if err := <-end; err != nil {
		t.Error(err)
	}
	if s := c.status(); s.State != "Succeeded" || s.RecordsDone != 2*512 {
		t.Errorf("%s, %d records", s.State, s.RecordsDone)
	}
}

// Deleting the Job stops the job.
func TestMasterStops(t *testing.T) {
	c := newNodes(t, func(j *job.Job) { j.NumEpochs = 1000 })
	ctx, cancel := context.WithCancel(t.Context())
	end := c.begin(ctx, "master-a")
	c.await("it trains", func() bool { return c.statusLocked().RecordsDone > 0 })
	c.root(func(o *batch.Job) { o.DeletionTimestamp = new(meta.Now()) })
	cancel()
	if err := <-end; !errors.Is(err, errDeleted) {
		t.Errorf("%v", err)
	}
	if s := c.status(); s.State != "Stopped" || !strings.HasPrefix(s.Reason, "stopped: the job was deleted") {
		t.Errorf("%s: %s", s.State, s.Reason)
	}
	c.await("its pods are deleted", func() bool { return len(c.pods) == 0 })
}

// A job that cannot begin fails with the reason.
func TestMasterFailsWithAReason(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*job.Job)
		reason string
	}{
		"no model": {func(j *job.Job) { j.ModelDef = "none.none.none" }, "none.none.none"},
		"no data":  {func(j *job.Job) { j.ValidationData = "/none" }, "--validation_data: "},
	} {
		t.Run(name, func(t *testing.T) {
			c := newNodes(t, tt.change)
			if err := <-c.begin(t.Context(), "master-a"); err == nil || !strings.Contains(err.Error(), tt.reason) {
				t.Errorf("%v", err)
			}
			if s := c.status(); s.State != "Failed" || !strings.Contains(s.Reason, tt.reason) ||
				s.EndedUnixMs == 0 || s.Strategy == "" {
				t.Errorf("%v", s)
			}
			if n := c.retries(); n != 0 {
				t.Errorf("the Job may start %d masters more", n)
			}
		})
	}
}

// kubectl apply creates the Job before the objects that its pod needs. The master waits for them.
func TestMasterWaitsForItsSpec(t *testing.T) {
	c := newNodes(t, nil)
	c.apiServer.mu.Lock()
	spec := c.maps["elasticdl-test"]
	delete(c.maps, "elasticdl-test")
	c.apiServer.mu.Unlock()
	end := c.begin(t.Context(), "master-a")
	c.put(spec)
	if err := <-end; err != nil {
		t.Error(err)
	}
}

func TestStateIsNotTooLarge(t *testing.T) {
	s := &wire.JobStatus{Name: "test", State: "Running"}
	for i := range master.KeptEvaluations {
		s.Evaluations = append(s.Evaluations,
			&wire.Evaluation{Version: int64(i), Metrics: map[string]float64{"accuracy": 0.12345678,
				"loss": 0.12345678}})
	}
	for i := range 5_000 {
		p := &wire.PodStatus{Role: wire.Role_WORKER, Index: int32(i), State: "Failed",
			Reason: strings.Repeat("x", 200), EndedUnixMs: 1}
		if i%5 == 0 {
			p.State, p.Reason, p.EndedUnixMs = "Running", "", 0
		}
		s.Pods = append(s.Pods, p)
	}
	text, err := encode(s, "default")
	if err != nil || len(text) > 1<<20 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	got := new(wire.JobStatus)
	if err := protojson.Unmarshal(text, got); err != nil {
		t.Fatal(err)
	}
	if n := len(got.Evaluations); n != master.KeptEvaluations || len(got.Pods) != 1000 || len(s.Pods) != 5000 {
		t.Errorf("%d evaluations, %d pods of %d", n, len(got.Pods), len(s.Pods))
	}
}

// Evaluations of many metrics may be too large for the state even without pods. Then only the
// latest are kept.
func TestStateOfManyMetrics(t *testing.T) {
	s := &wire.JobStatus{Name: "test", State: "Running",
		Pods: []*wire.PodStatus{{Role: wire.Role_WORKER, State: "Running"}}}
	for i := range master.KeptEvaluations {
		e := &wire.Evaluation{Version: int64(i), Metrics: make(map[string]float64)}
		for k := range 20 {
			e.Metrics[fmt.Sprintf("accuracy of class %d among many others", k)] = 0.12345678
		}
		s.Evaluations = append(s.Evaluations, e)
	}
	text, err := encode(s, "default")
	got := new(wire.JobStatus)
	if err := errors.Join(err, protojson.Unmarshal(text, got)); err != nil {
		t.Fatal(err)
	}
	if n := len(got.Evaluations); len(text) > stateLimit || n < 100 ||
		got.Evaluations[n-1].Version != master.KeptEvaluations-1 || len(got.Pods) != 1 {
		t.Errorf("%d bytes, %d evaluations, %d pods", len(text), n, len(got.Pods))
	}
}

// The state is bounded also if many pods wait, with long reasons.
func TestStateOfMuchThatWaits(t *testing.T) {
	s := &wire.JobStatus{Name: "test", State: "Running"}
	for i := range 3000 {
		s.Pods = append(s.Pods, &wire.PodStatus{Role: wire.Role_WORKER, Index: int32(i),
			State: "Pending", Reason: strings.Repeat("é", 240)})
	}
	text, err := encode(s, "default")
	got := new(wire.JobStatus)
	if err := errors.Join(err, protojson.Unmarshal(text, got)); err != nil {
		t.Fatal(err)
	}
	if len(text) > stateLimit || len(got.Pods) < 900 || len(s.Pods) != 3000 {
		t.Errorf("%d bytes, %d pods of %d", len(text), len(got.Pods), len(s.Pods))
	}
}

// The memory of a pod can be doubled up to --max_memory.
func TestGrowth(t *testing.T) {
	j := kubetest.Job()
	j.Worker.Request["memory"], j.PS.Request["memory"], j.MaxMemory = "1Gi", "3Gi", "5Gi"
	got, err := growth(j)
	if err != nil || got[pod.Worker] != 3 || got[pod.PS] != 1 {
		// a worker grows by 1, 2, 4, 5 Gi, a server by 3, 5 Gi
		t.Errorf("%v, %v", got, err)
	}
	j.MaxMemory = ""
	if got, err = growth(j); err != nil || got[pod.Worker] != 0 || got[pod.PS] != 0 {
		t.Errorf("without a limit to it: %v, %v", got, err)
	}
}

// A watch may begin with an older version of the spec. The job is not scaled back to it.
func TestSpecOfThePast(t *testing.T) {
	spec := func(version, workers string) *core.ConfigMap {
		return &core.ConfigMap{
			ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test", ResourceVersion: version},
			Data:       map[string]string{manifest.KeyNumWorkers: workers},
		}
	}
	w := &wish{now: 2, scale: make(chan int, 1), log: slog.New(slog.DiscardHandler)}
	if err := w.Replace([]any{spec("10", "3")}, "0"); err != nil || <-w.scale != 3 {
		t.Fatal("not scaled", err)
	}
	if err := w.Add(spec("9", "2")); err != nil || w.now != 3 || len(w.scale) > 0 {
		t.Errorf("scaled back to %d, %v", w.now, err)
	}
	if err := w.Update(spec("11", "4")); err != nil || <-w.scale != 4 {
		t.Error("not scaled again", err)
	}
}
