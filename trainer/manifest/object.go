package manifest

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
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

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/pod"
)

// Submission is everything that the user's side creates for a job.
type Submission struct {
	Job            *batch.Job
	Spec, State    *core.ConfigMap
	Identity       *core.Secret         // empty: the master fills it, see [KeyAuthority]
	ServiceAccount *core.ServiceAccount // these three are nil with --service_account
	Role           *rbac.Role
	RoleBinding    *rbac.RoleBinding
	Services       []*core.Service // the master's, then one of each server
	Disruption     *policy.PodDisruptionBudget
	Isolation      *network.NetworkPolicy
}

// Submit makes the objects of a job. The Job among them is suspended if the job is, and nothing is owned yet: see
// [Submission.OwnedBy]. Jobs that differ in the number of workers only differ in the data of the spec only, which their
// masters follow; in whether they are suspended, for how long they may run and how long they stay, in the Job's own fields.
// Any other difference is in the Job's template: it takes another Job. Submit reports every problem that [job.Job.ValidateCluster] and --cluster_spec_json have, the
// pods' included that the master will make.
func Submit(j *job.Job) (*Submission, error) {
	if err := errors.Join(j.Validate(), j.ValidateCluster(), checkHooks(j)); err != nil {
		return nil, err
	}
	root, err := masterJob(j)
	if err != nil {
		return nil, err
	}
	spec, err := spec(j)
	if err != nil {
		return nil, err
	}
	s := &Submission{Job: root, Spec: spec, Disruption: disruption(j), Isolation: isolation(j),
		State:    &core.ConfigMap{TypeMeta: kind("v1", "ConfigMap"), ObjectMeta: object(j, StateName(j.Name))},
		Identity: &core.Secret{TypeMeta: kind("v1", "Secret"), ObjectMeta: object(j, IdentityName(j.Name)), Type: core.SecretTypeOpaque},
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
		_, err := Pod(j, PodSpec{ID: id, Launch: 1}, meta.OwnerReference{})
		if err != nil {
			return nil, err
		}
	}
	_, err = Pod(j, PodSpec{ID: pod.ID{Role: pod.Worker}, Launch: 1}, meta.OwnerReference{})
	return s, err
}

// Objects is all of it, in the order in which it is created: the Job first, which owns the others.
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

// OwnedBy makes the Job, created by now under that uid, the owner of all else.
func (s *Submission) OwnedBy(uid types.UID) {
	owner := []meta.OwnerReference{Owner(s.Job.Name, uid)}
	for _, o := range s.Objects()[1:] {
		o.(meta.Object).SetOwnerReferences(owner)
	}
}

// Owner is the reference to a master's Job. It does not control: what a Job controls and did not make itself, it lets go.
func Owner(jobObject string, uid types.UID) meta.OwnerReference {
	return meta.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: jobObject, UID: uid}
}

func kind(version, name string) meta.TypeMeta {
	return meta.TypeMeta{APIVersion: version, Kind: name}
}

// masterJob is the root. Whatever ends the master, it comes back, in its pod or in another one, and a job fails by its own
// word only: its master sets the backoff limit to 0 then. There is no pod failure policy, as with one a pod on a dead node, which
// never ends, is not replaced.
func masterJob(j *job.Job) (*batch.Job, error) {
	template, err := masterTemplate(j)
	if err != nil {
		return nil, err
	}
	o := &batch.Job{TypeMeta: kind("batch/v1", "Job"), ObjectMeta: podObject(j, pod.ID{Role: pod.Master})}
	o.Spec = batch.JobSpec{
		Parallelism: new(int32(1)), Completions: new(int32(1)), BackoffLimit: new(int32(math.MaxInt32)), Suspend: new(j.Suspend),
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

// spec says what the job is. Whether it is suspended is its Job's to say, which others change.
func spec(j *job.Job) (*core.ConfigMap, error) {
	is := *j
	is.Suspend = false
	text, err := json.MarshalIndent(is, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write job %s: %w", j.Name, err)
	}
	data := map[string]string{KeyJob: string(text), KeyNumWorkers: strconv.Itoa(j.NumWorkers)}
	return &core.ConfigMap{TypeMeta: kind("v1", "ConfigMap"), ObjectMeta: object(j, SpecName(j.Name)), Data: data}, nil
}

// hash is that of a job's substance: of all that its master reads once, and its pods never.
func hash(j *job.Job) (string, error) {
	is := *j
	is.NumWorkers, is.Suspend, is.TTL, is.Deadline = 0, false, nil, job.Duration{}
	text, err := json.Marshal(is)
	if err != nil {
		return "", fmt.Errorf("write job %s: %w", j.Name, err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(text)), nil
}

// service is how a master or server is found. It has an address of its own, so that one that is launched anew is found at once, and
// not when a name is looked up again. A server is found also while it is not ready: who asks waits for it then. Of a master only
// the one that is ready is: its predecessor's pod may stay for long on a node that is dead.
func service(j *job.Job, id pod.ID) (*core.Service, error) {
	name, port := "grpc", int32(PSPort)
	if id.Role == pod.Master {
		port = MasterPort
	}
	o := &core.Service{TypeMeta: kind("v1", "Service"), ObjectMeta: podObject(j, id), Spec: core.ServiceSpec{
		Selector:                 PodLabels(j.Name, id),
		Ports:                    []core.ServicePort{{Name: name, Port: port, TargetPort: intstr.FromInt32(port), Protocol: core.ProtocolTCP}},
		PublishNotReadyAddresses: id.Role != pod.Master,
	}}
	return o, applyToService(j, o)
}
