//go:build e2e

package scale

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"

	auth "k8s.io/api/authentication/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	scheduling "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
	clientapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/incluster"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/train/recordio"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/credential"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// theatre is a namespace with simulated jobs.
type theatre struct {
	*testing.T
	set       kubernetes.Interface
	namespace string
	dir       string                    // directory of this machine
	informer  cache.SharedIndexInformer // informer of pods
	pods      listers.PodNamespaceLister
	jobs      batchlisters.JobNamespaceLister

	mu    sync.Mutex
	plays map[string]*play // jobs by name
}

// play is a simulated job.
type play struct {
	name        string
	minibatches int
	// number of records of a minibatch
	batch int
	// number of minibatches of a task
	perTask int
	// time of a minibatch
	each time.Duration
	// closed: minibatches take no time; nil: they take theirs
	hurry chan struct{}
	// directory of its checkpoints; "" = none
	checkpoints string

	// address of this machine for its master
	address string
	ledger  *Ledger
	// kubeconfig of its master
	config string
	// API server for its launcher and its master; nil: that of the cluster
	server  *counter
	resumed bool

	// number of pods to which the master has issued a certificate
	certified atomic.Int32

	// held while a master runs, which may outlive its pod
	leads sync.Mutex

	mu      sync.Mutex
	master  *exec.Cmd
	started time.Time
	ended   time.Time
	// peak memory of the master in bytes
	peak int64
}

func (j *play) records() int { return j.minibatches * j.batch }

// masters counts the masters: each listens on an address of its own.
var masters atomic.Int32

// open creates a namespace and watches it.
func open(t *testing.T) *theatre {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.QPS, config.Burst = 5000, 5000 // enough for many simulated pods
	set, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	space, err := set.CoreV1().Namespaces().Create(t.Context(),
		&core.Namespace{ObjectMeta: meta.ObjectMeta{GenerateName: "scale-"}}, meta.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	factory := informers.NewSharedInformerFactoryWithOptions(set, 0, informers.WithNamespace(space.Name))
	s := &theatre{
		T: t, set: set, namespace: space.Name, dir: t.ArtifactDir(), plays: make(map[string]*play),
		informer: factory.Core().V1().Pods().Informer(), pods: factory.Core().V1().Pods().Lister().Pods(space.Name),
		jobs: factory.Batch().V1().Jobs().Lister().Jobs(space.Name),
	}
	kubelet := &Kubelet{Client: set, Pods: s.informer, Main: s.perform,
		Log:   slog.New(slog.NewTextHandler(t.Output(), nil)),
		Plays: func(p *core.Pod) bool { return p.Labels[manifest.LabelRole] != "" }}
	var background sync.WaitGroup
	background.Go(func() { kubelet.Run(ctx) })
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		if err := set.CoreV1().Namespaces().Delete(ctx, space.Name, meta.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		patient, enough := context.WithTimeout(ctx, time.Minute)
		defer enough()
		for len(s.informer.GetStore().ListKeys()) > 0 { // also the pods of failed tests
			if sleep(patient, 100*time.Millisecond) != nil {
				t.Errorf("pods of %s are left", space.Name)
				break
			}
		}
		cancel()
		background.Wait()
		factory.Shutdown()
	})
	if !cache.WaitForCacheSync(t.Context().Done(), s.informer.HasSynced,
		factory.Batch().V1().Jobs().Informer().HasSynced) {
		t.Fatal("the namespace cannot be watched")
	}
	for name, value := range map[string]int32{"high": 1_000_000, "low": 1000} {
		class := &scheduling.PriorityClass{ObjectMeta: meta.ObjectMeta{Name: name}, Value: value}
		if _, err := set.SchedulingV1().PriorityClasses().Create(t.Context(), class,
			meta.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	return s
}

// Names of the variables by which a pod knows its job, and the authority of the job's master.
const envUID, envAuthority = job.EnvUID, job.EnvAuthority

// perform runs the process of a job's pod.
func (s *theatre) perform(ctx context.Context, p *core.Pod) error {
	_, id, incarnation, _ := manifest.ParseLabels(p.Labels)
	s.mu.Lock()
	job := s.plays[p.Labels[manifest.LabelJob]]
	s.mu.Unlock()
	if job == nil {
		return fmt.Errorf("%s is of no simulated job", p.Name)
	}
	switch {
	case p.Labels[manifest.LabelRole] == manifest.RoleLauncher:
		return s.launch(ctx, job, p)
	case id.Role == pod.Master:
		return s.lead(ctx, job, p)
	}
	env := environment(p, job.address)
	c, err := s.certify(ctx, p, env[envAuthority], job.address)
	if err != nil {
		return err
	}
	job.certified.Add(1)
	self := rpc.NewSelf(identity.Header{Job: env[envUID], Role: id.Role, Index: id.Index, Incarnation: incarnation}, c)
	conn, err := rpc.Connect(job.address, nil, self, rpc.Callee{ID: pod.ID{Role: pod.Master}})
	if err != nil {
		return err
	}
	defer conn.Close()
	client := wire.NewMasterClient(conn)
	if id.Role == pod.Worker {
		w := Worker{Self: self, Master: client, Ledger: job.ledger, Batch: int64(job.batch), Minibatch: job.each,
			Hurry: job.hurry}
		return w.Run(ctx)
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := Server{Self: self, Master: client, Ledger: job.ledger, Listener: lis, Checkpoints: job.checkpoints}
	return server.Run(ctx)
}

// certify requests a certificate for a pod from the master, with a token that the API server issues
// for the pod as it does for a kubelet.
func (s *theatre) certify(ctx context.Context, p *core.Pod, authority, master string) (*credential.Credential, error) {
	root, err := credential.ParseRoot(authority)
	if err != nil {
		return nil, err
	}
	c, err := credential.New(root)
	if err != nil {
		return nil, err
	}
	var request auth.TokenRequest
	for _, v := range p.Spec.Volumes {
		if v.Projected != nil {
			its := v.Projected.Sources[0].ServiceAccountToken
			request.Spec = auth.TokenRequestSpec{Audiences: []string{its.Audience},
				ExpirationSeconds: its.ExpirationSeconds}
		}
	}
	request.Spec.BoundObjectRef = &auth.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID}
	token, err := s.set.CoreV1().ServiceAccounts(s.namespace).CreateToken(ctx,
		p.Spec.ServiceAccountName, &request, meta.CreateOptions{})
	if err != nil {
		return nil, err
	}
	for {
		err := rpc.Certify(ctx, master, nil, c, token.Status.Token)
		if err == nil || status.Code(err) == codes.Unauthenticated {
			return c, err
		}
		if e := sleep(ctx, 100*time.Millisecond); e != nil {
			return nil, errors.Join(e, err)
		}
	}
}

// launch runs the real launcher, with the permissions of its pod.
func (s *theatre) launch(ctx context.Context, job *play, p *core.Pod) error {
	if err := s.authorize(ctx, job, p.Spec.ServiceAccountName); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(s.dir, p.Name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	config, err := clientcmd.BuildConfigFromFlags("", job.config)
	if err != nil {
		return err
	}
	config.QPS = -1
	set, err := clientset.New(config)
	if err != nil {
		return err
	}
	c := incluster.MasterConfig{Job: job.name, Namespace: s.namespace, Client: set, Output: log}
	for name, value := range environment(p, job.address) {
		c.Environ = append(c.Environ, name+"="+value)
	}
	return incluster.RunLauncher(ctx, c)
}

// leaveLimit is the time for which a master runs at most after its pod is deleted.
const leaveLimit = 20 * time.Second

// lead runs the real master in a process of its own, with the pod's environment and permissions.
// The master of a deleted pod is asked to leave, as by a kubelet.
func (s *theatre) lead(ctx context.Context, job *play, p *core.Pod) error {
	job.leads.Lock()
	defer job.leads.Unlock()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	log, err := os.OpenFile(filepath.Join(s.dir, p.Name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Stdout, cmd.Stderr = log, log
	for name, value := range environment(p, job.address) {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, "KUBECONFIG="+job.config, envMaster+"="+job.name, envListen+"="+job.address)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	job.mu.Lock()
	job.master, job.started = cmd, time.Now()
	err = cmd.Start()
	job.mu.Unlock()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		cmd.Process.Signal(syscall.SIGTERM)
		time.AfterFunc(leaveLimit, func() { cmd.Process.Kill() })
	})
	defer stop()
	watched, unwatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { job.watch(watched, cmd.Process.Pid) })
	err = cmd.Wait()
	unwatch()
	watching.Wait()
	job.mu.Lock()
	job.ended = time.Now()
	job.mu.Unlock()
	if err != nil {
		return Exit(cmd.ProcessState.ExitCode())
	}
	return nil
}

// watch records the peak memory of the running master. (The value that the system reports at its
// end is at least that of this process.)
func (j *play) watch(ctx context.Context, pid int) {
	for {
		j.peak = max(j.peak, resident(pid))
		if sleep(ctx, 250*time.Millisecond) != nil {
			return
		}
	}
}

// resident returns the peak memory of a running process in bytes, or 0 if it has ended.
func resident(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	words := strings.Fields(rest)
	if len(words) == 0 {
		return 0
	}
	kilobytes, _ := strconv.ParseInt(words[0], 10, 64)
	return kilobytes << 10
}

// environment returns the variables of a pod's container, resolved as by a kubelet; the pod's
// address is one of this machine.
func environment(p *core.Pod, address string) map[string]string {
	host, _, _ := net.SplitHostPort(address)
	fields := map[string]string{
		"metadata.name": p.Name, "metadata.namespace": p.Namespace, "spec.nodeName": p.Spec.NodeName,
		"status.podIP": host,
	}
	env := make(map[string]string)
	for _, v := range p.Spec.Containers[0].Env {
		env[v.Name] = v.Value
		if from := v.ValueFrom; from != nil {
			path := from.FieldRef.FieldPath
			env[v.Name] = fields[path]
			if label, ok := strings.CutPrefix(path, "metadata.labels['"); ok {
				env[v.Name] = p.Labels[strings.TrimSuffix(label, "']")]
			}
		}
	}
	return env
}

// authorize writes a kubeconfig with only the rights of a ServiceAccount.
func (s *theatre) authorize(ctx context.Context, job *play, account string) error {
	token, err := s.set.CoreV1().ServiceAccounts(s.namespace).CreateToken(ctx, account,
		&auth.TokenRequest{}, meta.CreateOptions{})
	if err != nil {
		return err
	}
	config, err := clientcmd.LoadFromFile(kubeconfig())
	if err != nil {
		return err
	}
	config.AuthInfos = map[string]*clientapi.AuthInfo{"job": {Token: token.Status.Token}}
	for _, c := range config.Contexts {
		c.AuthInfo, c.Namespace = "job", s.namespace
	}
	if job.server != nil {
		for _, c := range config.Clusters {
			c.Server, c.CertificateAuthority, c.CertificateAuthorityData = job.server.url, "", job.server.certificate
		}
	}
	return clientcmd.WriteToFile(*config, job.config)
}

// submit submits a job as a user does.
func (s *theatre) submit(job *play, flags ...string) {
	s.Helper()
	job.address = fmt.Sprintf("127.80.0.%d:50001", masters.Add(1))
	job.ledger, job.config = NewLedger(), filepath.Join(s.dir, job.name+".kubeconfig")
	s.mu.Lock()
	s.plays[job.name] = job
	s.mu.Unlock()
	data := filepath.Join(s.dir, job.name+".recordio")
	if err := write(data, job.records()); err != nil {
		s.Fatal(err)
	}
	args := append([]string{
		"train", "--kubeconfig=" + kubeconfig(), "--namespace=" + s.namespace, "--job_name=" + job.name,
		"--image_name=elasticdl:none", "--model_def=mnist.mnist_functional_api.custom_model", "--training_data=" + data,
		"--distribution_strategy=ParameterServerStrategy", "--num_epochs=1",
		fmt.Sprintf("--minibatch_size=%d", job.batch), fmt.Sprintf("--num_minibatches_per_task=%d", job.perTask),
		"--master_resource_request=cpu=1,memory=64Mi", "--ps_resource_request=cpu=1,memory=64Mi",
		"--worker_resource_request=cpu=1,memory=64Mi",
		"--master_pod_priority=high", "--ps_pod_priority=high", "--worker_pod_priority=low",
	}, flags...)
	if job.checkpoints == "" {
		args = append(args, "--num_ps_pods=2")
	} else {
		args = append(args, "--num_ps_pods=1", "--checkpoint_dir="+job.checkpoints, "--checkpoint_interval=1h",
			"--volume=host_path="+s.dir+",mount_path="+s.dir)
	}
	cmd := exec.CommandContext(s.Context(), *elasticdl, args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// write creates a file of n records, whose content is never read.
func write(path string, n int) error {
	var b bytes.Buffer
	w, err := recordio.NewWriter(&b, recordio.Snappy, 0)
	if err != nil {
		return err
	}
	for range n {
		if err := w.Write([]byte{0}); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

// until polls a condition every few milliseconds, and fails the test at the time limit.
func (s *theatre) until(what string, limit time.Duration, ask func() bool) {
	s.Helper()
	ctx, cancel := context.WithTimeoutCause(s.Context(), limit, fmt.Errorf("%s: not within %v", what, limit))
	defer cancel()
	for !ask() {
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			s.Fatal(err)
		}
	}
}

// count returns the number of pods of a job's role for which is returns true.
func (s *theatre) count(job string, role pod.Role, is func(*core.Pod) bool) int {
	all, err := s.pods.List(
		labels.SelectorFromSet(labels.Set{manifest.LabelJob: job, manifest.LabelRole: role.String()}))
	if err != nil {
		s.Fatal(err)
	}
	n := 0
	for _, p := range all {
		if is(p) {
			n++
		}
	}
	return n
}

func running(p *core.Pod) bool { return p.Status.Phase == core.PodRunning }

// done reports whether a job has succeeded, by its Job's conditions. It fails the test if the job
// has failed.
func (s *theatre) done(job *play) bool {
	s.Helper()
	root, err := s.jobs.Get(manifest.MasterName(job.name))
	if apierrors.IsNotFound(err) {
		return false // not observed yet
	} else if err != nil {
		s.Fatal(err)
	}
	for _, c := range root.Status.Conditions {
		switch {
		case c.Status != core.ConditionTrue:
		case c.Type == batch.JobFailed:
			s.Fatalf("job %s failed: %s\n%s", job.name, c.Message, s.last(job))
		case c.Type == batch.JobComplete:
			return true
		}
	}
	return false
}

// last returns the end of the master's log.
func (s *theatre) last(job *play) string {
	logs, _ := filepath.Glob(filepath.Join(s.dir, manifest.MasterName(job.name)+"*.log")) // and of its launcher
	var all []string
	for _, path := range logs {
		text, _ := os.ReadFile(path)
		lines := strings.Split(string(text), "\n")
		all = append(all, lines[max(0, len(lines)-15):]...)
	}
	return strings.Join(all, "\n")
}

// await waits until a job succeeds, and checks its records.
func (s *theatre) await(job *play, limit time.Duration) *wire.JobStatus {
	s.Helper()
	s.until("end of "+job.name, limit, func() bool { return s.done(job) })
	return s.audit(job)
}

// audit checks that the master has credited each record once, and that each was trained on once.
func (s *theatre) audit(job *play) *wire.JobStatus {
	s.Helper()
	state, err := s.set.CoreV1().ConfigMaps(s.namespace).Get(s.Context(), manifest.StateName(job.name),
		meta.GetOptions{})
	if err != nil {
		s.Fatal(err)
	}
	status := new(wire.JobStatus)
	if err := protojson.Unmarshal([]byte(state.Data[manifest.KeyStatus]), status); err != nil {
		s.Fatal(err)
	}
	if status.State != "Succeeded" || status.RecordsDone != int64(job.records()) {
		s.Errorf("%s %s with %d of %d records: %s", job.name, status.State, status.RecordsDone,
			job.records(), status.Reason)
	}
	if err := job.ledger.Check(job.records(), 1); err != nil {
		s.Errorf("%s: %v", job.name, err)
	}
	return status
}

// spec returns a patch of an object's spec.
func spec(fields map[string]any) []byte {
	text, err := json.Marshal(map[string]any{"spec": fields})
	if err != nil {
		panic(err)
	}
	return text
}

// resume starts a suspended job.
func (s *theatre) resume(job *play) {
	s.Helper()
	job.resumed = true
	s.setSuspend(job, false)
}

// setSuspend suspends or resumes a job, as the commands of that name do.
func (s *theatre) setSuspend(job *play, suspend bool) {
	s.Helper()
	_, err := s.set.BatchV1().Jobs(s.namespace).Patch(s.Context(), manifest.MasterName(job.name),
		types.MergePatchType, spec(map[string]any{"suspend": suspend}), meta.PatchOptions{})
	if err != nil {
		s.Fatal(err)
	}
}
