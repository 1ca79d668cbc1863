package manifest

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/pod"
)

// Labels of what belongs to a job. The first three are on everything, the others on pods and their Services.
const (
	LabelApp    = "app" // always [App]
	LabelJob    = "elasticdl-job-name"
	LabelJobOld = "elasticdl_job_name" // ElasticDL's early one, which its first tutorial selects by
	LabelRole   = "elasticdl-replica-type"
	LabelIndex  = "elasticdl-replica-index"
	LabelLaunch = "elasticdl-launch" // of a server's or worker's pod: which one of its name it is, from 1
)

// AnnotationSpec, on the master's pod, is a hash of what the job is. Of a job of another substance the Job's template is
// another, which Kubernetes takes for a new Job only; what changes in place is not in it: see [Submit].
const AnnotationSpec = "elasticdl-spec-hash"

// App is the value of [LabelApp], and what all names begin with.
const App = "elasticdl"

// Ports that pods listen on; a worker's is any that is free.
const (
	MasterPort = 50001
	PSPort     = 50002
)

// Keys of the two ConfigMaps and of the Secret.
const (
	KeyJob        = "job.json"      // of the spec: the job.Job
	KeyNumWorkers = "numWorkers"    // of the spec: workers wanted now; goes before the job's own
	KeyResume     = "resume"        // of the spec: UID of the master's Job that goes on from the checkpoints in the job's own directory
	KeyUID        = "uid"           // of the state: of the Job. What was made with kubectl apply is there still when another Job of that name is
	KeyStatus     = "status.json"   // of the state: the wire.JobStatus
	KeyAuthority  = "authority.pem" // of the identity: what signs the certificates of the job, with its key
)

// Variables that a pod finds in its environment, beside the job's own and those of its identity: [job.EnvUID], which is the
// UID of the master's Job, and, of servers and workers, [job.EnvAuthority] and [job.EnvToken].
const (
	EnvPodName      = "POD_NAME"
	EnvPodIP        = "POD_IP"
	EnvPodNamespace = "POD_NAMESPACE"
	EnvNodeName     = "NODE_NAME"
)

// SpecName is the name of the ConfigMap that says what the job is. Its ServiceAccount, Role and RoleBinding have it, too.
func SpecName(jobName string) string { return App + "-" + jobName }

// AccountName is the name of the ServiceAccount that the job's pods run under.
func AccountName(j *job.Job) string { return cmp.Or(j.ServiceAccount, SpecName(j.Name)) }

// StateName is the name of the ConfigMap that says how far the job is.
func StateName(jobName string) string { return SpecName(jobName) + stateSuffix }

// IdentityName is the name of the Secret that the master fills with the job's secret.
func IdentityName(jobName string) string { return SpecName(jobName) + "-identity" }

const stateSuffix = "-state"

// MasterName is the name of the master's Job, and of its Service.
func MasterName(jobName string) string { return PodName(jobName, pod.ID{Role: pod.Master}) }

// PodName is the name of a server or worker, and of a server's Service: "elasticdl-test-mnist-worker-0".
func PodName(jobName string, id pod.ID) string { return SpecName(jobName) + "-" + id.String() }

// ParsePodName is the pod of the job that has that name; ok is false if none can have it. The master's pod
// is named by its Job, "elasticdl-test-mnist-master-x7k2p".
func ParsePodName(jobName, name string) (id pod.ID, ok bool) {
	rest, ok := strings.CutPrefix(name, SpecName(jobName)+"-")
	if !ok {
		return pod.ID{}, false
	}
	role, index, found := strings.Cut(rest, "-")
	if role == pod.Master.String() {
		return pod.ID{Role: pod.Master}, true
	}
	if !found {
		return pod.ID{}, false
	}
	return parseID(role, index)
}

// parseID reads a role and an index as they are written, and not "07" or "+7".
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

// Labels are on all that belongs to a job.
func Labels(jobName string) map[string]string {
	return map[string]string{LabelApp: App, LabelJob: jobName, LabelJobOld: jobName}
}

// PodLabels are on a pod, but for [LabelLaunch], and select it for its Service.
func PodLabels(jobName string, id pod.ID) map[string]string {
	labels := Labels(jobName)
	labels[LabelRole] = id.Role.String()
	labels[LabelIndex] = strconv.Itoa(id.Index)
	return labels
}

// ParseLabels is whose pod it is by its labels. launch is 0 if they do not say; ok is false if it is no pod of a job.
func ParseLabels(labels map[string]string) (jobName string, id pod.ID, launch int, ok bool) {
	id, ok = parseID(labels[LabelRole], labels[LabelIndex])
	if labels[LabelApp] != App || labels[LabelJob] == "" || !ok {
		return "", pod.ID{}, 0, false
	}
	launch, err := strconv.Atoi(labels[LabelLaunch])
	if err != nil || launch < 0 {
		launch = 0
	}
	return labels[LabelJob], id, launch, true
}

// Selector is the label selector of what belongs to a job; of all jobs if jobName is "".
func Selector(jobName string) string {
	if jobName == "" {
		return LabelApp + "=" + App + "," + LabelJob
	}
	return LabelJob + "=" + jobName
}

// MasterAddress is where the master of a job is dialed from within the cluster.
func MasterAddress(j *job.Job) string { return address(j, pod.ID{Role: pod.Master}, MasterPort) }

// PSAddress is where server i of a job is.
func PSAddress(j *job.Job, i int) string {
	return address(j, pod.ID{Role: pod.PS, Index: i}, PSPort)
}

func address(j *job.Job, id pod.ID, port int) string {
	return fmt.Sprintf("%s.%s:%d", PodName(j.Name, id), j.Namespace, port)
}

// object is the metadata of what is the job's.
func object(j *job.Job, name string) meta.ObjectMeta {
	return meta.ObjectMeta{Name: name, Namespace: j.Namespace, Labels: Labels(j.Name)}
}

// podObject is the metadata of what is one pod's.
func podObject(j *job.Job, id pod.ID) meta.ObjectMeta {
	return meta.ObjectMeta{Name: PodName(j.Name, id), Namespace: j.Namespace, Labels: PodLabels(j.Name, id)}
}

// describe is how errors name a pod.
func describe(j *job.Job, id pod.ID) string {
	return fmt.Sprintf("pod %s of job %s", id, j.Name)
}
