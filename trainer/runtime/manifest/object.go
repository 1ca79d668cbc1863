package manifest

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	network "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// Submission has all objects that the user's side creates for a job.
type Submission struct {
	Job *batch.Job
	// the pod of the master as the Job's launcher creates it, without an owner: it is not among the
	// objects that the user's side creates
	Master      *core.Pod
	Spec, State *core.ConfigMap
	// empty: the master fills it, see [KeyAuthority]
	Identity *core.Secret
	// nil with --service_account, as are Role and RoleBinding
	ServiceAccount *core.ServiceAccount
	Role           *rbac.Role
	RoleBinding    *rbac.RoleBinding
	// the master's, then one for each server
	Services   []*core.Service
	Disruption *policy.PodDisruptionBudget
	Isolation  *network.NetworkPolicy
}

// Submit returns the objects of a job. The Job among them is suspended if the job is. None has an
// owner yet: see [Submission.OwnedBy].
//
// Two jobs that differ only in the number of workers differ only in the data of the spec, which the
// master of a running job follows. Whether a job is suspended, how long it may run and how long it
// stays are fields of the Job. Any other difference changes the Job's template, and needs a new
// Job.
//
// Submit returns every problem that [job.Job.Validate], [job.Job.ValidateCluster] and
// --cluster_spec_json have, including those of the pods that the master will create.
func Submit(j *job.Job) (*Submission, error) {
	if err := errors.Join(j.Validate(), j.ValidateCluster(), checkHooks(j)); err != nil {
		return nil, err
	}
	root, err := masterJob(j)
	if err != nil {
		return nil, err
	}
	master, err := Master(j, meta.OwnerReference{})
	if err != nil {
		return nil, err
	}
	spec, err := spec(j)
	if err != nil {
		return nil, err
	}
	s := &Submission{Job: root, Master: master, Spec: spec, Disruption: disruption(j), Isolation: isolation(j),
		State: &core.ConfigMap{TypeMeta: kind("v1", "ConfigMap"), ObjectMeta: object(j, StateName(j.Name))},
		Identity: &core.Secret{TypeMeta: kind("v1", "Secret"),
			ObjectMeta: object(j, IdentityName(j.Name)), Type: core.SecretTypeOpaque},
	}
	if j.ServiceAccount == "" {
		s.ServiceAccount, s.Role, s.RoleBinding = ownPermissions(j)
	}
	ids := []pod.ID{{Role: pod.Master}}
	for i := range j.NumPS {
		ids = append(ids, pod.ID{Role: pod.PS, Index: i})
	}
	for _, id := range ids {
		service, err := service(j, id)
		if err != nil {
			return nil, err
		}
		s.Services = append(s.Services, service)
	}
	for _, id := range ids[1:min(2, len(ids))] {
		_, err := Pod(j, PodSpec{ID: id, Incarnation: 1}, meta.OwnerReference{})
		if err != nil {
			return nil, err
		}
	}
	_, err = Pod(j, PodSpec{ID: pod.ID{Role: pod.Worker}, Incarnation: 1}, meta.OwnerReference{})
	return s, err
}

// Objects returns all objects in the order in which to create them: first the Job, which owns the
// others.
func (s *Submission) Objects() []runtime.Object {
	objects := []runtime.Object{s.Job, s.Spec, s.State, s.Identity}
	if s.ServiceAccount != nil {
		objects = append(objects, s.ServiceAccount, s.Role, s.RoleBinding)
	}
	for _, service := range s.Services {
		objects = append(objects, service)
	}
	return append(objects, s.Disruption, s.Isolation)
}

// OwnedBy makes the Job, which was created with that uid, the owner of all other objects.
func (s *Submission) OwnedBy(uid types.UID) {
	owner := []meta.OwnerReference{Owner(s.Job.Name, uid)}
	for _, o := range s.Objects()[1:] {
		o.(meta.Object).SetOwnerReferences(owner)
	}
}

// Owner returns an owner reference to a job's Job. It is not a controller reference, because a
// Job releases pods that it controls and did not make.
func Owner(jobObject string, uid types.UID) meta.OwnerReference {
	return meta.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: jobObject, UID: uid}
}

func kind(version, name string) meta.TypeMeta {
	return meta.TypeMeta{APIVersion: version, Kind: name}
}

// masterJob returns the Job that runs the launcher and owns all other objects. Whatever ends the
// master, its launcher replaces it; whatever ends the launcher, the Job does. Only the master makes
// the Job fail, by setting the backoff limit to 0. There is no pod failure policy: with one, a pod
// on a dead node, which never ends, would not be replaced.
func masterJob(j *job.Job) (*batch.Job, error) {
	template, err := launcherTemplate(j)
	if err != nil {
		return nil, err
	}
	o := &batch.Job{TypeMeta: kind("batch/v1", "Job"), ObjectMeta: podObject(j, pod.ID{Role: pod.Master})}
	o.Spec = batch.JobSpec{
		Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(math.MaxInt32)),
		Suspend:  new(j.Suspend),
		Template: *template,
	}
	if j.TTL != nil {
		o.Spec.TTLSecondsAfterFinished = new(int32(j.TTL.Duration / time.Second))
	}
	if j.Deadline.Duration > 0 {
		o.Spec.ActiveDeadlineSeconds = new(int64(j.Deadline.Duration / time.Second))
	}
	return o, applyToJob(j, o)
}

// spec returns the ConfigMap with the job's specification. It leaves out whether the job is
// suspended, which is a field of the Job that others change.
func spec(j *job.Job) (*core.ConfigMap, error) {
	is := *j
	is.Suspend = false
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	// Users read the text, and edit what --yaml writes: URLs have "&" in them, and placeholders
	// "<".
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(is); err != nil {
		return nil, fmt.Errorf("write job %s: %w", j.Name, err)
	}
	data := map[string]string{KeyJob: strings.TrimSuffix(text.String(), "\n"),
		KeyNumWorkers: strconv.Itoa(j.NumWorkers)}
	return &core.ConfigMap{TypeMeta: kind("v1", "ConfigMap"), ObjectMeta: object(j, SpecName(j.Name)), Data: data}, nil
}

// hash returns the hash of the settings that cannot change in a running job, because its master
// reads them once.
func hash(j *job.Job) (string, error) {
	is := *j
	is.NumWorkers, is.Suspend, is.TTL, is.Deadline = 0, false, nil, job.Duration{}
	text, err := json.Marshal(is)
	if err != nil {
		return "", fmt.Errorf("write job %s: %w", j.Name, err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text)), nil
}

// service returns the Service of a master or server. It has a cluster IP, so that a replaced pod is
// reached at once, and not only after another name lookup. A server is reachable also before it is
// ready, and its callers wait. A master is reachable only when it is ready, because its
// predecessor's pod may stay for long on a dead node.
func service(j *job.Job, id pod.ID) (*core.Service, error) {
	name, port := "grpc", int32(PSPort)
	if id.Role == pod.Master {
		port = MasterPort
	}
	o := &core.Service{TypeMeta: kind("v1", "Service"), ObjectMeta: podObject(j, id), Spec: core.ServiceSpec{
		Selector: PodLabels(j.Name, id),
		Ports: []core.ServicePort{
			{Name: name, Port: port, TargetPort: intstr.FromInt32(port), Protocol: core.ProtocolTCP}},
		PublishNotReadyAddresses: id.Role != pod.Master,
	}}
	return o, applyToService(j, o)
}
