package manifest

import (
	"cmp"
	"fmt"
	"strconv"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// Labels of a job's objects. The first three are on all of them, the others on pods and their
// Services.
const (
	LabelApp = "app" // always [App]
	LabelJob = "elasticdl-job-name"
	// ElasticDL's earlier name of the label, by which its first tutorial selects pods
	LabelJobOld = "elasticdl_job_name"
	LabelRole   = "elasticdl-replica-type"
	LabelIndex  = "elasticdl-replica-index"
	// incarnation of a server's or worker's pod, from 1
	LabelIncarnation = "elasticdl-launch"
)

// Labels of Kueue.
const (
	// of a pod or Job: the local queue that admits it
	LabelQueue = "kueue.x-k8s.io/queue-name"
	// of a pod that waits for its queue, or has: Kueue sets it
	LabelManaged = "kueue.x-k8s.io/managed"
	// of a pod: its WorkloadPriorityClass
	labelWorkloadPriority = "kueue.x-k8s.io/priority-class"
)

// LabelShare, of a pod of a job in a queue, is [ShareCore] or [ShareElastic].
const LabelShare = "elasticdl-share"

// Values of [LabelShare].
const (
	// master, servers and as many workers as the job needs at least
	ShareCore = "core"
	// the other workers, whose quota others take first
	ShareElastic = "elastic"
)

// AnnotationSpec, on the launcher's pod, is a hash of the job's settings. A change of these changes
// the Job's template, which Kubernetes accepts only for a new Job. Settings that can change in a
// running job are not in the hash: see [Submit].
const AnnotationSpec = "elasticdl-spec-hash"

// ConditionPrefix is the beginning of the types of those conditions of a Job that its master
// writes, as in elasticdl.dev/Running.
const ConditionPrefix = "elasticdl.dev/"

// App is the value of [LabelApp], and the prefix of all names.
const App = "elasticdl"

// Ports that pods listen on. A worker listens on any free port.
const (
	MasterPort = 50001
	PSPort     = 50002
	// ViewPort is a master's port for users who look at the job. It listens on the loopback
	// interface of its pod only, so that the API server has to forward connections to it.
	ViewPort = 50003
)

// Keys of the two ConfigMaps and of the Secret.
const (
	KeyJob = "job.json" // of the spec: the job.Job
	// of the spec: number of workers requested now, which overrides the job's own
	KeyNumWorkers = "numWorkers"
	// of the spec, with KeyResume: UIDs of the Jobs before, which own the checkpoints
	KeyLineage = "lineage"
	// of the spec, with KeyResume: the journal and the curves of the Jobs before
	KeyJournal = "journal.json"
	// of the spec: UID of the master's Job that continues from the checkpoints in the job's own
	// directory
	KeyResume = "resume"
	// of the state: UID of the Job that wrote it; a state made with kubectl apply may outlive its
	// Job
	KeyUID    = "uid"
	KeyStatus = "status.json" // of the state: the wire.JobStatus
	// of the state: what the next master has to know, with the journal
	KeyRecord = "record.json"
	// of the state: time (RFC 3339) before which a job that has given back the quota of its queue
	// gets no master
	KeyRest = "restUntil"
	// of the identity: certificate and key that sign the certificates of the job
	KeyAuthority = "authority.pem"
)

// Environment variables of a pod, in addition to the job's own and those of its identity:
// [job.EnvUID], which is the UID of the master's Job, and, for servers and workers,
// [job.EnvAuthority] and [job.EnvToken].
const (
	EnvPodName      = "POD_NAME"
	EnvPodIP        = "POD_IP"
	EnvPodNamespace = "POD_NAMESPACE"
	EnvNodeName     = "NODE_NAME"
)

// SpecName returns the name of the ConfigMap with the job's specification. Its ServiceAccount, Role
// and RoleBinding have the same name.
func SpecName(jobName string) string { return App + "-" + jobName }

// AccountName returns the name of the ServiceAccount under which the job's pods run.
func AccountName(j *job.Job) string { return cmp.Or(j.ServiceAccount, SpecName(j.Name)) }

// StateName returns the name of the ConfigMap with the job's state.
func StateName(jobName string) string { return SpecName(jobName) + stateSuffix }

// IdentityName returns the name of the Secret that the master fills with the job's authority.
func IdentityName(jobName string) string { return SpecName(jobName) + "-identity" }

const stateSuffix = "-state"

// MasterName returns the name of a job's Job, of its master's pod, and of the master's Service.
func MasterName(jobName string) string { return PodName(jobName, pod.ID{Role: pod.Master}) }

// PodName returns the name of a server or worker, and of a server's Service:
// "elasticdl-test-mnist-worker-0".
func PodName(jobName string, id pod.ID) string { return SpecName(jobName) + "-" + id.String() }

// parseID parses a role and an index. It refuses other ways to write an index, such as "07" or
// "+7".
func parseID(role, index string) (pod.ID, bool) {
	n, err := strconv.Atoi(index)
	if err != nil || n < 0 || strconv.Itoa(n) != index {
		return pod.ID{}, false
	}
	for _, r := range []pod.Role{pod.Master, pod.PS, pod.Worker} {
		if r.String() == role {
			return pod.ID{Role: r, Index: n}, r != pod.Master || n == 0
		}
	}
	return pod.ID{}, false
}

// Labels returns the labels of every object of a job.
func Labels(jobName string) map[string]string {
	return map[string]string{LabelApp: App, LabelJob: jobName, LabelJobOld: jobName}
}

// PodLabels returns the labels of a pod except [LabelIncarnation]. Its Service selects it by them.
func PodLabels(jobName string, id pod.ID) map[string]string {
	labels := Labels(jobName)
	labels[LabelRole] = id.Role.String()
	labels[LabelIndex] = strconv.Itoa(id.Index)
	return labels
}

// ParseLabels returns the job, role, index and incarnation of a pod from its labels. incarnation is
// 0 if they do not have it; ok is false if it is no pod of a job.
func ParseLabels(labels map[string]string) (jobName string, id pod.ID, incarnation int, ok bool) {
	id, ok = parseID(labels[LabelRole], labels[LabelIndex])
	if labels[LabelApp] != App || labels[LabelJob] == "" || !ok {
		return "", pod.ID{}, 0, false
	}
	incarnation, err := strconv.Atoi(labels[LabelIncarnation])
	if err != nil || incarnation < 0 {
		incarnation = 0
	}
	return labels[LabelJob], id, incarnation, true
}

// Selector returns the label selector for the objects of a job, or of all jobs if jobName is "".
func Selector(jobName string) string {
	if jobName == "" {
		return LabelApp + "=" + App + "," + LabelJob
	}
	return LabelJob + "=" + jobName
}

// MasterAddress returns the address of the master of a job within the cluster.
func MasterAddress(j *job.Job) string { return address(j, pod.ID{Role: pod.Master}, MasterPort) }

// PSAddress returns the address of server i of a job within the cluster.
func PSAddress(j *job.Job, i int) string {
	return address(j, pod.ID{Role: pod.PS, Index: i}, PSPort)
}

func address(j *job.Job, id pod.ID, port int) string {
	return fmt.Sprintf("%s.%s:%d", PodName(j.Name, id), j.Namespace, port)
}

// object returns the metadata of an object of the job.
func object(j *job.Job, name string) meta.ObjectMeta {
	return meta.ObjectMeta{Name: name, Namespace: j.Namespace, Labels: Labels(j.Name)}
}

// podObject returns the metadata of an object that belongs to one pod.
func podObject(j *job.Job, id pod.ID) meta.ObjectMeta {
	return meta.ObjectMeta{Name: PodName(j.Name, id), Namespace: j.Namespace, Labels: PodLabels(j.Name, id)}
}

// describe returns the name of a pod in errors.
func describe(j *job.Job, id pod.ID) string {
	return fmt.Sprintf("pod %s of job %s", id, j.Name)
}
