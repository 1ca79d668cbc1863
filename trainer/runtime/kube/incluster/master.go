package incluster

import (
	"cmp"
	"context"
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
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
)

const (
	// within which everything of a job is there
	applyLimit = 2 * time.Minute
	applyTries = 5 // before what is not there is worth a word
	// what the last requests of a job may take,
	lastLimit  = 5 * time.Minute
	leaveLimit = 10 * time.Second // and those of a master that has to leave
)

// MasterConfig is the place of a master in its cluster.
type MasterConfig struct {
	// --job_name, --namespace
	Job, Namespace string
	// nil: the cluster that this process is in
	Client clientset.Interface
	// of the process, as NAME=value: who it is ([manifest.EnvPodName] …)
	Environ []string
	// ":50001" if empty
	Listen string
	// --view_port: of the loopback interface, for users who look at the job; 0: none
	ViewPort int
	// log
	Output io.Writer
}

// RunMaster is the main of the pod of a job's master. It returns nil if every record was done, and
// that is written for every master after it; every pod of the job has ended then, or was asked to.
// At the end of ctx the Job says whether the job is stopped, suspended, or left to the next master.
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
	env map[string]string
	log *slog.Logger
	// certificate of the job's authority, in one line
	root string
	// of the cluster
	keys *keys
	// cluster is the identity of the cluster; "": it is not known.
	cluster string
	state   *recorder
	// the job continues from its own checkpoints
	resume bool
	// UIDs of the Jobs that it continues from
	before []string
	// what happened to them, and how they progressed
	past  journal.Snapshot
	drawn curve.Snapshot
	// until the training has one
	status *wire.JobStatus
	events *eventWriter
	// of the status of the Job
	conditions *conditionWriter
	// master.Run
	runs func(context.Context, master.Config) (*wire.JobStatus, error)
}

func newKubeMaster(c MasterConfig) (*kubeMaster, error) {
	m := &kubeMaster{MasterConfig: c, env: environOf(c.Environ), runs: master.Run}
	m.log = role.Logger(c.Output, "")
	for _, name := range []string{manifest.EnvPodName, job.EnvUID} {
		if m.env[name] == "" {
			return nil, fmt.Errorf("%s is not set: a master of a cluster is started by its launcher", name)
		}
	}
	var err error
	if m.Client, err = clientOf(m.Client); err != nil {
		return nil, err
	}
	m.keys, m.cluster = clusterKeys(m.Client, accountToken), clusterOf(accountToken)
	me := m.env[manifest.EnvPodName] + " on " + cmp.Or(m.env[manifest.EnvNodeName], "an unknown node")
	m.state = newRecorder(m.Client.CoreV1().ConfigMaps(c.Namespace), c.Namespace, c.Job, m.env[job.EnvUID], me, m.log)
	return m, nil
}

// environOf returns an environment by names.
func environOf(environ []string) map[string]string {
	env := make(map[string]string)
	for _, text := range environ {
		name, value, _ := strings.Cut(text, "=")
		env[name] = value
	}
	return env
}

// clientOf returns a client, or one of the cluster that this process is in if it is nil.
func clientOf(given clientset.Interface) (clientset.Interface, error) {
	if given != nil {
		return given, nil
	}
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	config.QPS, config.UserAgent = -1, observe.Component // the runtime minds the rate
	config.WarningHandler = rest.NoWarnings{}
	client, err := clientset.New(config)
	if err != nil {
		return nil, fmt.Errorf("find the cluster: %w", err)
	}
	return client, nil
}

func (m *kubeMaster) run(ctx context.Context) error {
	m.status = &wire.JobStatus{Name: m.Job, State: string(job.Pending), StartedUnixMs: time.Now().UnixMilli()}
	m.events = newEventWriter(m.Client.CoreV1().Events(m.Namespace), observe.Component, m.Namespace, m.Job,
		m.env[job.EnvUID], m.env[manifest.EnvPodName], m.env[manifest.EnvNodeName], m.log)
	m.events.start()
	defer m.events.end() // the state goes before them
	m.conditions = newConditionWriter(m.Client.BatchV1().Jobs(m.Namespace), m.Job, m.env[job.EnvUID], m.log)
	m.conditions.start()
	defer m.conditions.end()
	var before past
	err := m.eventually(ctx, func() (err error) {
		before, err = m.state.begin(ctx, m.status)
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil:
		return m.left(ctx, m.status)
	case err != nil:
		return fmt.Errorf("begin job %s: %w", m.Job, err)
	case before.ended():
		return m.conclude(ctx, before.status)
	}
	m.status = cmp.Or(before.status, m.status)
	if before.incarnation > 0 {
		m.log.Info("The master of this job comes back", "incarnation", m.state.incarnation, "before", before.master)
	}
	final, err := m.runJob(ctx, before)
	return m.settle(ctx, cmp.Or(final, m.status), err)
}

// spec reads the job's specification.
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
	j, err := described(spec, m.Job, m.Namespace)
	if err != nil {
		return nil, err
	}
	m.resume = spec.Data[manifest.KeyResume] == m.env[job.EnvUID]
	if m.resume {
		m.before = strings.Fields(spec.Data[manifest.KeyLineage])
		if m.past, err = role.DecodeJournal([]byte(spec.Data[manifest.KeyJournal])); err != nil {
			m.log.Warn("The journal does not show the time before the resume", "error", err)
		}
		if m.drawn, err = role.DecodeCurve([]byte(spec.Data[manifest.KeyJournal])); err != nil {
			m.log.Warn("The curves do not show the time before the resume", "error", err)
		}
	}
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

// workers returns the number of workers in the spec.
func workers(spec *core.ConfigMap) (int, error) {
	text := strings.TrimSpace(spec.Data[manifest.KeyNumWorkers])
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > job.MostWorkers {
		return 0, fmt.Errorf("%s=%q of ConfigMap %s: expected a number of workers, at most %d",
			manifest.KeyNumWorkers, text, spec.Name, job.MostWorkers)
	}
	return n, nil
}

// eventually repeats do while objects or permissions that it needs are missing, for applyLimit.
func (m *kubeMaster) eventually(ctx context.Context, do func() error) error {
	return eventually(ctx, m.log, do)
}

func eventually(ctx context.Context, log *slog.Logger, do func() error) error {
	patient, cancel := context.WithTimeout(ctx, applyLimit)
	defer cancel()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for tries := 1; ; tries++ {
		err := do()
		if err == nil || !absentYet(err) {
			return err
		}
		if tries == applyTries {
			log.Warn("Waiting for what is not there yet, or not allowed yet", "error", err)
		}
		select {
		case <-tick.C:
		case <-patient.Done():
			return err
		}
	}
}

func (m *kubeMaster) runtime(j *job.Job) *Runtime {
	return NewRuntime(RuntimeConfig{
		Client: m.Client, Job: j, Environ: m.Environ, Log: m.log, Authority: m.root,
		Owner: manifest.Owner(manifest.MasterName(m.Job), types.UID(m.env[job.EnvUID])),
	})
}

// runJob runs the job, from where the masters before have left it.
func (m *kubeMaster) runJob(ctx context.Context, before past) (*wire.JobStatus, error) {
	j, err := m.spec(ctx)
	if err != nil {
		return nil, err
	}
	m.log = role.Logger(m.Output, j.LogLevel)
	m.status.Type, m.status.Strategy, m.status.Workers = string(j.Type), string(j.Strategy), int32(j.NumWorkers)
	if err := m.eventually(ctx, func() error { return m.allowed(ctx) }); err != nil {
		return nil, err
	}
	authority, err := m.authority(ctx)
	if err != nil {
		return nil, err
	}
	m.root = authority.Root().String()
	// nothing of this Job is begun: what there is is of a Job before
	if before.record == nil {
		if err := m.outlive(ctx); err != nil {
			return nil, err
		}
		if !m.resume {
			err = setAside(j, m.log)
		}
		if err != nil {
			return nil, err
		}
	}
	config, err := role.Plan(j, m.log)
	if err != nil {
		return nil, err
	}
	if config.MaxOOMs, err = growth(j); err != nil {
		return nil, err
	}
	if config.Grace, err = manifest.Grace(j); err != nil {
		return nil, err
	}
	listen := cmp.Or(m.Listen, ":"+strconv.Itoa(manifest.MasterPort))
	if config.Listener, err = net.Listen("tcp", listen); err != nil {
		return nil, err
	}
	defer config.Listener.Close()
	if config.Viewers = m.viewers(); config.Viewers != nil {
		defer config.Viewers.Close()
	}
	h := identity.Header{Job: m.env[job.EnvUID], Role: pod.Master, Incarnation: m.state.incarnation, ModelGeneration: 1}
	if config.Self, err = self(authority, h); err != nil {
		return nil, err
	}
	config.Resume, config.Former, config.Memory = m.resume, before.record, m.state
	config.Journal, config.Curve = m.past, m.drawn
	config.Owner, config.Ancestors, config.Look = m.owner(), m.before, func(o checkpoint.Owner) checkpoint.Standing {
		return m.standing(ctx, o)
	}
	config.OnEntry = m.events.hear
	config.OnStatus = func(s *wire.JobStatus) {
		m.state.setStatus(s)
		m.conditions.hear(s)
	}
	return m.attend(ctx, config, authority)
}

// viewers returns the listener for users who look at the job; nil if there is none. The job runs
// without it, too.
func (m *kubeMaster) viewers() net.Listener {
	if m.ViewPort == 0 {
		return nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(m.ViewPort)))
	if err != nil {
		m.log.Warn("Users cannot look at the job through the API server", "error", err)
		return nil
	}
	return l
}

// attend runs the master, and tells it what comes from outside.
func (m *kubeMaster) attend(ctx context.Context, config master.Config,
	authority *credential.Authority) (*wire.JobStatus, error) {
	pods := m.runtime(config.Job)
	defer pods.Close()
	config.Certification = newCertifier(certifierConfig{
		Job: m.env[job.EnvUID], Namespace: m.Namespace, Pods: pods, Authority: authority, Keys: m.keys, Log: m.log,
		Once: cmp.Or(config.Job.RestartPolicy, string(core.RestartPolicyNever)) == string(core.RestartPolicyNever),
	})
	scale, notices := make(chan int, 1), make(chan master.Notice, 1)
	config.Pods, config.Scale, config.Notices, config.TakenAway = pods, scale, notices, pods.takenAway
	running, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	lasting, end := context.WithCancel(klogTo(context.WithoutCancel(ctx), m.log))
	var aside sync.WaitGroup
	aside.Go(func() { m.followSpec(lasting, config.Job.NumWorkers, scale) })
	aside.Go(func() {
		if err := m.state.run(lasting); err != nil {
			cancel(err)
		}
	})
	aside.Go(func() { m.oversee(ctx, lasting, notices, cancel) })
	recorded := role.Record(&config)
	measured := role.Measure(&config, metricsAddress(config.Job))
	final, err := m.runs(running, config)
	measured()
	recorded()
	end()
	aside.Wait()
	return final, err
}

// metricsAddress returns where the master of a job serves its metrics; "": nowhere.
func metricsAddress(j *job.Job) string {
	port := j.ServesMetrics()
	if port == 0 {
		return ""
	}
	return ":" + strconv.Itoa(port)
}

// growth returns how often the memory of a server or worker can be doubled.
func growth(j *job.Job) (map[pod.Role]int, error) {
	times := make(map[pod.Role]int)
	for _, role := range []pod.Role{pod.PS, pod.Worker} {
		memory := func(ooms int) (int64, error) {
			p, err := manifest.Pod(j, manifest.PodSpec{ID: pod.ID{Role: role}, Incarnation: 1, OOMs: ooms},
				meta.OwnerReference{})
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

// followSpec sends the number of workers in the spec when it changes, until ctx ends. Of several
// changes the last counts.
func (m *kubeMaster) followSpec(ctx context.Context, now int, scale chan int) {
	maps := m.Client.CoreV1().ConfigMaps(m.Namespace)
	name := manifest.SpecName(m.Job)
	follow(ctx, m.Client, &core.ConfigMap{}, &wish{now: now, scale: scale, log: m.log},
		"spec of "+m.Job, &cache.ListWatch{
			// For servers that do not list what they watch: a list of one, which needs no
			// permission to list.
			ListWithContextFunc: func(ctx context.Context, _ meta.ListOptions) (runtime.Object, error) {
				m, err := maps.Get(ctx, name, meta.GetOptions{})
				if err != nil {
					return nil, err
				}
				// watched from whenever the server can
				return &core.ConfigMapList{ListMeta: meta.ListMeta{ResourceVersion: "0"},
					Items: []core.ConfigMap{*m}}, nil
			},
			WatchFuncWithContext: func(ctx context.Context, o meta.ListOptions) (watch.Interface, error) {
				o.FieldSelector = named(name)
				return maps.Watch(ctx, o)
			},
		})
}

// wish is the store of the watched spec: its number of workers.
type wish struct {
	now   int
	seen  string // the resource version that reports it
	scale chan int
	log   *slog.Logger
}

func (w *wish) follow(o any) error {
	spec := o.(*core.ConfigMap)
	// a watch begins with what its server happens to know
	if w.seen != "" && older(spec.ResourceVersion, w.seen) {
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
	case <-w.scale:
		// what was not taken yet does not count any more
	default:
	}
	w.scale <- n
	return nil
}

func (w *wish) Add(o any) error    { return w.follow(o) }
func (w *wish) Update(o any) error { return w.follow(o) }
func (w *wish) Delete(any) error   { return nil }
func (w *wish) Resync() error      { return nil }

func (w *wish) Replace(list []any, _ string) error {
	for _, o := range list {
		if err := w.follow(o); err != nil {
			return err
		}
	}
	return nil
}
