package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/elasticdl/elasticdl/trainer/identity"
	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/manifest"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

const (
	applyLimit = 2 * time.Minute  // within which everything of a job is there
	lastLimit  = 5 * time.Minute  // what the last requests of a job may take,
	leaveLimit = 10 * time.Second // and those of a master that has to leave
)

// errTold ends the job of a master that is told to go.
var errTold = errors.New("the master's pod was told to go, and its state is not kept yet")

// lastly bounds what is done when the job is over, whether or not ctx is.
func lastly(ctx context.Context) (context.Context, context.CancelFunc) {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLimit)
	stop := context.AfterFunc(ctx, func() {
		time.AfterFunc(leaveLimit, cancel)
	})
	return last, func() { stop(); cancel() }
}

// MasterConfig is the place of a master in its cluster.
type MasterConfig struct {
	Job, Namespace string               // --job_name, --namespace
	Client         kubernetes.Interface // nil: the cluster that this process is in
	Environ        []string             // of the process, as NAME=value: who it is ([manifest.EnvPodName] …)
	Listen         string               // ":50001" if empty
	Output         io.Writer            // log
}

// RunMaster is the main of the pod of a job's master. It returns when every pod of the job has ended or was told to, nil
// if every record was done. The end of ctx stops the job.
func RunMaster(ctx context.Context, c MasterConfig) error {
	m, err := newKubeMaster(c)
	if err == nil {
		err = m.run(ctx)
	}
	role.LastWords(err)
	return err
}

// kubeMaster is a job in a cluster.
type kubeMaster struct {
	MasterConfig
	env    map[string]string
	log    *slog.Logger
	state  *recorder
	resume bool         // the job goes on from its own checkpoints
	events *eventWriter // once what the job is is known
}

func newKubeMaster(c MasterConfig) (*kubeMaster, error) {
	m := &kubeMaster{MasterConfig: c, env: make(map[string]string)}
	for _, text := range c.Environ {
		name, value, _ := strings.Cut(text, "=")
		m.env[name] = value
	}
	m.log = role.Logger(c.Output, "")
	for _, name := range []string{manifest.EnvPodName, job.EnvUID} {
		if m.env[name] == "" {
			return nil, fmt.Errorf("%s is not set: a master of a cluster is started by its Job", name)
		}
	}
	if m.Client == nil {
		config, err := rest.InClusterConfig()
		if err != nil {
			return nil, fmt.Errorf("find the cluster: %w", err)
		}
		config.QPS, config.UserAgent = -1, component // the runtime minds the rate
		config.WarningHandler = rest.NoWarnings{}
		if m.Client, err = kubernetes.NewForConfig(config); err != nil {
			return nil, fmt.Errorf("find the cluster: %w", err)
		}
	}
	me := m.env[manifest.EnvPodName] + " on " + cmp.Or(m.env[manifest.EnvNodeName], "an unknown node")
	m.state = newRecorder(m.Client.CoreV1().ConfigMaps(c.Namespace), c.Namespace, c.Job, m.env[job.EnvUID], me, m.log)
	return m, nil
}

func (m *kubeMaster) run(ctx context.Context) error {
	j, err := m.spec(ctx)
	if err != nil {
		return err
	}
	m.log = role.Logger(m.Output, j.LogLevel)
	status := &wire.JobStatus{
		Name: m.Job, State: string(job.Pending), Type: string(j.Type), Strategy: string(j.Strategy), Workers: int32(j.NumWorkers), StartedUnixMs: time.Now().UnixMilli(),
	}
	var former string
	var left *wire.JobStatus
	err = m.eventually(ctx, func() (err error) {
		former, left, err = m.state.begin(ctx, status)
		return err
	})
	if err != nil {
		return err
	}
	m.events = newEventWriter(m.Client.CoreV1().Events(m.Namespace), m.Namespace, m.Job, m.env[job.EnvUID], m.env[manifest.EnvPodName], m.env[manifest.EnvNodeName], m.log)
	m.events.start()
	defer m.events.end() // the state goes before them
	if former != "" {
		return m.bury(ctx, j, former, left)
	}
	final, err := m.train(ctx, j)
	if final == nil {
		final = status
	}
	if !job.State(final.State).Ended() {
		final.State, final.EndedUnixMs = string(job.Failed), time.Now().UnixMilli()
		if err != nil {
			final.Reason = err.Error()
		}
		m.events.hear(master.Ended{State: job.Failed, Err: err})
	}
	last, cancel := lastly(ctx)
	defer cancel()
	if unwritten := m.state.finish(last, final); unwritten != nil { // the exit code says it, too
		m.log.Error("The job's last status could not be written", "error", unwritten)
	}
	return err
}

// spec reads what the job is.
func (m *kubeMaster) spec(ctx context.Context) (*job.Job, error) {
	var spec *core.ConfigMap
	err := m.eventually(ctx, func() error {
		return insist(ctx, m.log, "read what the job is", func(ctx context.Context) (err error) {
			spec, err = m.Client.CoreV1().ConfigMaps(m.Namespace).Get(ctx, manifest.SpecName(m.Job), meta.GetOptions{})
			return err
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read job %s: %w", m.Job, err)
	}
	j := new(job.Job)
	if err := json.Unmarshal([]byte(spec.Data[manifest.KeyJob]), j); err != nil {
		return nil, fmt.Errorf("read job %s: %s of ConfigMap %s: %w", m.Job, manifest.KeyJob, spec.Name, err)
	}
	if j.Name != m.Job {
		return nil, fmt.Errorf("read job %s: %s of ConfigMap %s is of job %q", m.Job, manifest.KeyJob, spec.Name, j.Name)
	}
	j.Namespace, m.resume = m.Namespace, spec.Data[manifest.KeyResume] == "true"
	j.Output = cmp.Or(j.Output, j.ResultDir())
	if n, err := workers(spec); err == nil {
		j.NumWorkers = n
	} else {
		m.log.Warn("The number of workers is as the job was submitted", "error", err)
	}
	if err := j.Validate(); err != nil {
		return nil, fmt.Errorf("read job %s: %w", m.Job, err)
	}
	return j, nil
}

// workers is how many workers the spec wants.
func workers(spec *core.ConfigMap) (int, error) {
	text := strings.TrimSpace(spec.Data[manifest.KeyNumWorkers])
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > job.MostWorkers {
		return 0, fmt.Errorf("%s=%q of ConfigMap %s: expected a number of workers, at most %d", manifest.KeyNumWorkers, text, spec.Name, job.MostWorkers)
	}
	return n, nil
}

// eventually does what may come before the objects that it needs.
func (m *kubeMaster) eventually(ctx context.Context, do func() error) error {
	patient, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		err := do()
		if err == nil || !absentYet(err) {
			return err
		}
		select {
		case <-tick.C:
		case <-patient.Done():
			return err
		}
	}
}

// bury ends a job that another master began: it is lost, and with it what it knew. What it has left in the cluster is
// ended, whatever it has said last.
func (m *kubeMaster) bury(ctx context.Context, j *job.Job, former string, left *wire.JobStatus) error {
	pods := m.runtime(j)
	defer pods.Close()
	m.sweep(ctx, pods)
	switch job.State(left.State) {
	case job.Succeeded: // it was lost after that
		return nil
	case job.Failed:
		return errors.New(left.Reason)
	}
	err := fmt.Errorf("the master's pod was lost (%s), and its state is not kept yet", former)
	m.log.Error("Job Failed", "reason", err)
	m.events.hear(master.Ended{State: job.Failed, Err: err})
	left.Name, left.State, left.Reason, left.EndedUnixMs = m.Job, string(job.Failed), err.Error(), time.Now().UnixMilli()
	return errors.Join(err, m.state.takeOver(ctx, left))
}

func (m *kubeMaster) runtime(j *job.Job) *Runtime {
	return NewRuntime(RuntimeConfig{
		Client: m.Client, Job: j, Environ: m.Environ, Log: m.log,
		Owner: manifest.Owner(manifest.MasterName(m.Job), types.UID(m.env[job.EnvUID])),
	})
}

// sweep sees to it that no pod outlives the job.
func (m *kubeMaster) sweep(ctx context.Context, pods *Runtime) {
	ctx, cancel := lastly(ctx)
	defer cancel()
	if err := pods.Sweep(ctx); err != nil {
		m.log.Error("Pods are left", "error", err)
	}
}

// train runs the job.
func (m *kubeMaster) train(ctx context.Context, j *job.Job) (*wire.JobStatus, error) {
	if err := m.eventually(ctx, func() error { return m.allowed(ctx) }); err != nil {
		return nil, err
	}
	secret, err := m.secret(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.outlive(ctx); err != nil {
		return nil, err
	}
	if !m.resume {
		if err := setAside(j, m.log); err != nil { // no master of this Job was before this one
			return nil, err
		}
	}
	config, err := role.Plan(j, m.log)
	if err != nil {
		return nil, err
	}
	grown, err := growth(j)
	if err != nil {
		return nil, err
	}
	listen := cmp.Or(m.Listen, ":"+strconv.Itoa(manifest.MasterPort))
	if config.Listener, err = net.Listen("tcp", listen); err != nil {
		return nil, err
	}
	defer config.Listener.Close()
	pods := m.runtime(j)
	defer pods.Close()
	scale := make(chan int, 1)
	config.Self = wire.NewSelf(identity.Header{Job: m.env[job.EnvUID], Secret: secret, Role: pod.Master, Incarnation: 1, Life: 1})
	config.Resume = m.resume
	config.Pods, config.Scale, config.MaxOOMs, config.OnStatus = pods, scale, grown, m.state.note
	config.OnEvent = m.events.hear

	running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	defer context.AfterFunc(ctx, func() { cancel(errTold) })()
	lasting, end := context.WithCancel(klogTo(context.WithoutCancel(ctx), m.log))
	var aside sync.WaitGroup
	aside.Go(func() { m.followSpec(lasting, j.NumWorkers, scale) })
	aside.Go(func() {
		if err := m.state.run(lasting); err != nil {
			cancel(err)
		}
	})
	final, err := master.Run(running, config)
	end()
	aside.Wait()
	m.sweep(ctx, pods)
	return final, err
}

// growth is how often the memory of a server or worker can be doubled.
func growth(j *job.Job) (map[pod.Role]int, error) {
	times := make(map[pod.Role]int)
	for _, role := range []pod.Role{pod.PS, pod.Worker} {
		memory := func(ooms int) (int64, error) {
			p, err := manifest.Pod(j, manifest.PodSpec{ID: pod.ID{Role: role}, Launch: 1, OOMs: ooms}, meta.OwnerReference{})
			if err != nil {
				return 0, err
			}
			return p.Spec.Containers[0].Resources.Requests.Memory().Value(), nil
		}
		for had := int64(-1); ; times[role]++ {
			has, err := memory(times[role])
			if err != nil {
				return nil, err
			}
			if has <= had {
				times[role]--
				break
			}
			had = has
		}
	}
	return times, nil
}

// followSpec tells when the spec wants another number of workers, until ctx ends. Of several changes the last counts.
func (m *kubeMaster) followSpec(ctx context.Context, now int, scale chan int) {
	maps := m.Client.CoreV1().ConfigMaps(m.Namespace)
	name := manifest.SpecName(m.Job)
	follow(ctx, m.Client, &core.ConfigMap{}, &wish{now: now, scale: scale, log: m.log}, "spec of "+m.Job, &cache.ListWatch{
		// For servers that do not list what they watch: a list of one, which needs no permission to list.
		ListWithContextFunc: func(ctx context.Context, _ meta.ListOptions) (runtime.Object, error) {
			m, err := maps.Get(ctx, name, meta.GetOptions{})
			if err != nil {
				return nil, err
			}
			return &core.ConfigMapList{ListMeta: meta.ListMeta{ResourceVersion: "0"}, Items: []core.ConfigMap{*m}}, nil // watched from whenever the server can
		},
		WatchFuncWithContext: func(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
			o.FieldSelector = named(name)
			return maps.Watch(ctx, o)
		},
	})
}

// wish is the store of the spec: how many workers it wants.
type wish struct {
	now   int
	seen  string // the resource version that says so
	scale chan int
	log   *slog.Logger
}

func (w *wish) take(o any) error {
	spec := o.(*core.ConfigMap)
	if w.seen != "" && older(spec.ResourceVersion, w.seen) { // a watch begins with what its server happens to know
		return nil
	}
	w.seen = spec.ResourceVersion
	n, err := workers(spec)
	if err != nil {
		w.log.Warn("Not scaled", "error", err)
		return nil
	}
	if n == w.now {
		return nil
	}
	w.now = n
	select {
	case <-w.scale: // what was not taken yet does not count any more
	default:
	}
	w.scale <- n
	return nil
}

func (w *wish) Add(o any) error    { return w.take(o) }
func (w *wish) Update(o any) error { return w.take(o) }
func (w *wish) Delete(any) error   { return nil }
func (w *wish) Resync() error      { return nil }

func (w *wish) Replace(list []any, _ string) error {
	for _, o := range list {
		if err := w.take(o); err != nil {
			return err
		}
	}
	return nil
}
