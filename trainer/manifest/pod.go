package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/elasticdl/elasticdl/trainer/job"
	"github.com/elasticdl/elasticdl/trainer/pod"
)

// PodSpec is what the master decides about a server or worker.
type PodSpec struct {
	ID      pod.ID
	Launch  int      // from 1
	Slot    int      // the index of the first pod of its line, which priorities go by
	OOMs    int      // how often its line ran out of memory: so often its memory is doubled
	Environ []string // the master's environment, as NAME=value, of which --populate_env_names takes over
	// Authority is the certificate of the job's authority, in one line.
	Authority string
}

// lostAfter is how many seconds a pod outlives the word of its node.
const lostAfter = 5

// grace is how many seconds a pod has to hand back its work once it is asked to go, and masterGrace those that a
// master has: half of them for a checkpoint, see [Grace], and then as many as the pods have, in case they are to end.
const (
	grace       = 30
	masterGrace = 90
)

// EnvMemory is how much memory a Go program uses before it collects garbage at any cost.
const EnvMemory = "GOMEMLIMIT"

// memoryShare is how many hundredths of its limit a Go program may count on. The kernel charges a container with more than that: pages
// of files, stacks of threads, sockets.
const memoryShare = 90

// masterCPU is the least limit of a master whose limits the job does not name. A thousand workers keep it busy with a fifth of a
// processor; while it begins, and comes back, it needs more.
const masterCPU = "1"

func graceOf(r pod.Role) int64 {
	if r == pod.Master {
		return masterGrace
	}
	return grace
}

// safeToEvict is read by cluster autoscalers: a node with a pod that says "false" is kept, and one whose
// pods have no controller is kept as well unless they say "true".
const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// Pod makes the pod of a server or worker of a job that is valid, owned by the Job of its master.
func Pod(j *job.Job, p PodSpec, owner meta.OwnerReference) (*core.Pod, error) {
	var of job.Pod
	var priority string
	args := []string{p.ID.Role.String(), "--master_address=" + MasterAddress(j), "--index=" + strconv.Itoa(p.ID.Index), "--launch=" + strconv.Itoa(p.Launch), "--log_level=" + cmp.Or(j.LogLevel, "INFO")}
	switch p.ID.Role {
	case pod.Worker:
		of, priority = j.Worker, j.Worker.Priority.Of(p.Slot, j.NumWorkers)
		args = append(args, "--listen=[$("+EnvPodIP+")]:0", "--threads=0") // as many as the container has processors
	case pod.PS:
		of, priority = j.PS, j.PS.Priority.Class
		args = append(args, "--address=:"+strconv.Itoa(PSPort), "--advertise="+PSAddress(j, p.ID.Index))
	default:
		return nil, fmt.Errorf("make %s: it is made by its Job", describe(j, p.ID))
	}
	t, err := template(j, p.ID, of, p.OOMs, args)
	if err != nil {
		return nil, err
	}
	t.Labels[LabelLaunch] = strconv.Itoa(p.Launch)
	t.Annotations = map[string]string{safeToEvict: strconv.FormatBool(p.ID.Role == pod.Worker)}
	if p.ID.Role != pod.Worker {
		t.Annotations[doNotDisrupt] = "true"
	}
	t.Spec.PriorityClassName = priority
	t.Spec.RestartPolicy = core.RestartPolicy(cmp.Or(j.RestartPolicy, "Never"))
	t.Spec.AutomountServiceAccountToken = new(false) // it is the account's name that they need
	t.Spec.Tolerations = append(lossTolerations(j.Tolerations), t.Spec.Tolerations...)
	c := &t.Spec.Containers[0]
	proves(&t.Spec, p, owner)
	inherits, err := inherited(j, p.Environ)
	if err != nil {
		return nil, err
	}
	c.Env = append(c.Env, inherits...)
	c.Env = append(append(c.Env, given(j.Envs)...), ofSecrets(j.EnvSecrets)...)
	if p.ID.Role == pod.PS {
		listens(c, PSPort)
	}
	if !runsProgram(j, p.ID.Role) {
		sealRoot(j, &t.Spec)
	}
	if err := applyToPod(j, p.ID.Role, t); err != nil {
		return nil, err
	}
	if runsProgram(j, p.ID.Role) {
		runProgram(j, t, p.ID.Role.String()) // its memory is the program's
	} else {
		limitMemory(t, p.ID.Role)
	}
	t.OwnerReferences = []meta.OwnerReference{owner}
	return &core.Pod{TypeMeta: kind("v1", "Pod"), ObjectMeta: t.ObjectMeta, Spec: t.Spec}, nil
}

// masterTemplate is the master's pod.
func masterTemplate(j *job.Job) (*core.PodTemplateSpec, error) {
	id := pod.ID{Role: pod.Master}
	t, err := template(j, id, roomy(j.Master), 0, []string{"master", "--job_name=" + j.Name, "--namespace=" + j.Namespace})
	if err != nil {
		return nil, err
	}
	t.Name, t.Namespace = "", "" // the Job gives them
	sum, err := hash(j)
	if err != nil {
		return nil, err
	}
	t.Annotations = map[string]string{safeToEvict: "false", doNotDisrupt: "true", AnnotationSpec: sum}
	t.Spec.PriorityClassName = j.Master.Priority.Class
	t.Spec.RestartPolicy = core.RestartPolicyOnFailure
	t.Spec.Tolerations = append(lossTolerations(j.Tolerations), t.Spec.Tolerations...)
	c := &t.Spec.Containers[0]
	c.Env = append(c.Env, field(job.EnvUID, "metadata.labels['batch.kubernetes.io/controller-uid']"))
	c.Env = append(c.Env, given(j.Envs)...)
	if !j.Runs() { // of a program's job, the program is who needs them
		c.Env = append(c.Env, ofSecrets(j.EnvSecrets)...)
	}
	listens(c, MasterPort)
	sealRoot(j, &t.Spec)
	if err := applyToPod(j, id.Role, t); err != nil {
		return nil, err
	}
	limitMemory(t, id.Role)
	return t, nil
}

// Grace returns how long the master of a job may take to have a checkpoint made once it is told to go.
func Grace(j *job.Job) (time.Duration, error) {
	t, err := masterTemplate(j)
	if err != nil {
		return 0, err
	}
	whole := int64(core.DefaultTerminationGracePeriodSeconds)
	if own := t.Spec.TerminationGracePeriodSeconds; own != nil {
		whole = *own
	}
	return time.Duration(whole) * time.Second / 2, nil
}

// limitMemory tells the container of a role how much of its limit it may use, unless the job says so itself.
func limitMemory(t *core.PodTemplateSpec, role pod.Role) {
	for i := range t.Spec.Containers {
		c := &t.Spec.Containers[i]
		limit, limited := c.Resources.Limits[core.ResourceMemory]
		given := slices.ContainsFunc(c.Env, func(v core.EnvVar) bool { return v.Name == EnvMemory })
		if c.Name == role.String() && limited && !given {
			c.Env = append(c.Env, core.EnvVar{Name: EnvMemory, Value: strconv.FormatInt(limit.Value()/100*memoryShare, 10)})
		}
	}
}

// template is what the pods of all roles have in common.
func template(j *job.Job, id pod.ID, of job.Pod, ooms int, args []string) (*core.PodTemplateSpec, error) {
	resources, err := requirements(of, ooms, j.MaxMemory)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", describe(j, id), err)
	}
	volumes, mounts := storage(j.Volumes)
	t := &core.PodTemplateSpec{ObjectMeta: podObject(j, id)}
	t.Spec = core.PodSpec{
		ServiceAccountName:            AccountName(j), // of servers and workers, too: an identity of the cloud is bound to it
		TerminationGracePeriodSeconds: new(graceOf(id.Role)),
		EnableServiceLinks:            new(false), // a variable of each Service of the namespace is nobody's need
		NodeSelector:                  maps.Clone(j.NodeSelector),
		Tolerations:                   append(tolerations(j.Tolerations), deviceTolerations(of, j.Tolerations)...),
		SecurityContext:               userOf(j),
		Volumes:                       volumes,
		ImagePullSecrets:              pullSecrets(j),
	}
	t.Spec.Containers = []core.Container{{
		Name: id.Role.String(), Image: image(j, id.Role, of), ImagePullPolicy: core.PullPolicy(j.ImagePullPolicy),
		Args: args, Env: append(downward(), homeOf(j)...), Resources: resources, VolumeMounts: mounts,
		SecurityContext:          Confined(),
		TerminationMessagePolicy: core.TerminationMessageFallbackToLogsOnError, // so that its last line is why it failed
	}}
	return t, nil
}

// Confined is what no container of ours can do, whoever its user is.
func Confined() *core.SecurityContext {
	return &core.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &core.Capabilities{Drop: []core.Capability{"ALL"}}}
}

// sealRoot makes the image of a pod's first container read-only. What writes, writes to the job's volumes, or to a /tmp that goes with
// the pod. A job whose --output is on no volume, but in a pod, writes it there. A --cluster_spec_json can change both.
func sealRoot(j *job.Job, spec *core.PodSpec) {
	const volume, dir = "elasticdl-tmp", "/tmp"
	c := &spec.Containers[0]
	c.SecurityContext.ReadOnlyRootFilesystem = new(!j.OutputInPod())
	if !mounted(c, dir) { // by the job itself
		spec.Volumes = append(spec.Volumes, core.Volume{Name: volume, VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{}}})
		c.VolumeMounts = append(c.VolumeMounts, core.VolumeMount{Name: volume, MountPath: dir})
	}
}

// mounted reports whether a container has a volume at a path.
func mounted(c *core.Container, at string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return path.Clean(m.MountPath) == at })
}

// userOf is whom a pod's containers run as: the user of --run_as_user, whose group its volumes are given to where their kind
// allows that, or who the images say.
func userOf(j *job.Job) *core.PodSecurityContext {
	c := &core.PodSecurityContext{SeccompProfile: &core.SeccompProfile{Type: core.SeccompProfileTypeRuntimeDefault}}
	if id := int64(j.RunAsUser); id > 0 {
		c.RunAsNonRoot, c.RunAsUser, c.RunAsGroup, c.FSGroup = new(true), new(id), new(id), new(id)
		c.FSGroupChangePolicy = new(core.FSGroupChangeOnRootMismatch) // and not each file of a data set
	}
	return c
}

// homeOf is where a user that the image does not know may write: caches of libraries are at home.
func homeOf(j *job.Job) []core.EnvVar {
	_, given := j.Envs["HOME"]
	if _, secret := j.EnvSecrets["HOME"]; given || secret || j.RunAsUser == 0 {
		return nil
	}
	return []core.EnvVar{{Name: "HOME", Value: "/tmp"}}
}

// image is that of a role's container: the master of a program is not in the program's image.
func image(j *job.Job, role pod.Role, of job.Pod) string {
	if role == pod.Master {
		return cmp.Or(of.Image, j.Program.AgentImage, j.Image)
	}
	return cmp.Or(of.Image, j.Image)
}

// listens gives a container a port of gRPC, with probes: whether it has started, and whether others are to find it. It is ready as soon
// as it accepts connections, which a kubelet, that has no certificate, makes and says nothing on: a master that has taken the job over
// from the one before, a server that has the master's certificate. There is no probe of its being alive: its silence is the master's to judge,
// and a machine under load, or a master that reads its data or a checkpoint, is no reason to be killed.
func listens(c *core.Container, port int32) {
	probe := func(period, failures int32) *core.Probe {
		return &core.Probe{
			ProbeHandler:  core.ProbeHandler{TCPSocket: &core.TCPSocketAction{Port: intstr.FromInt32(port)}},
			PeriodSeconds: period, TimeoutSeconds: 5, FailureThreshold: failures, SuccessThreshold: 1,
		}
	}
	c.Ports = []core.ContainerPort{{Name: "grpc", ContainerPort: port, Protocol: core.ProtocolTCP}}
	c.StartupProbe, c.ReadinessProbe = probe(1, 600), probe(5, 3)
}

// downward is what a pod is told about itself.
func downward() []core.EnvVar {
	return []core.EnvVar{
		field(EnvPodName, "metadata.name"), field(EnvPodNamespace, "metadata.namespace"),
		field(EnvPodIP, "status.podIP"), field(EnvNodeName, "spec.nodeName"),
	}
}

func field(name, path string) core.EnvVar {
	source := &core.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}
	return core.EnvVar{Name: name, ValueFrom: &core.EnvVarSource{FieldRef: source}}
}

const (
	tokenVolume = "elasticdl-identity"
	tokenDir    = "/var/run/secrets/elasticdl"
	// tokenSeconds is how long a token is valid; the kubelet renews it before.
	tokenSeconds = 3600
)

// proves gives the first container of a pod what it proves with which pod it is: a token that only the master of this job takes. By the
// authority's certificate it knows the master. Neither is a key.
func proves(spec *core.PodSpec, p PodSpec, owner meta.OwnerReference) {
	spec.Volumes = append(spec.Volumes, core.Volume{Name: tokenVolume, VolumeSource: core.VolumeSource{
		Projected: &core.ProjectedVolumeSource{Sources: []core.VolumeProjection{{
			ServiceAccountToken: &core.ServiceAccountTokenProjection{Audience: string(owner.UID), ExpirationSeconds: new(int64(tokenSeconds)), Path: "token"},
		}}},
	}})
	c := &spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, core.VolumeMount{Name: tokenVolume, MountPath: tokenDir, ReadOnly: true})
	c.Env = append(c.Env,
		core.EnvVar{Name: job.EnvUID, Value: string(owner.UID)},
		core.EnvVar{Name: job.EnvAuthority, Value: p.Authority},
		core.EnvVar{Name: job.EnvToken, Value: tokenDir + "/token"})
}

// given is the job's own variables.
func given(envs map[string]string) []core.EnvVar {
	var vars []core.EnvVar
	for _, name := range slices.Sorted(maps.Keys(envs)) {
		vars = append(vars, core.EnvVar{Name: name, Value: envs[name]})
	}
	return vars
}

// ofSecrets is the job's variables whose values are in Secrets.
func ofSecrets(refs map[string]job.SecretRef) []core.EnvVar {
	var vars []core.EnvVar
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		from := &core.SecretKeySelector{LocalObjectReference: core.LocalObjectReference{Name: refs[name].Secret}, Key: refs[name].Key}
		vars = append(vars, core.EnvVar{Name: name, ValueFrom: &core.EnvVarSource{SecretKeyRef: from}})
	}
	return vars
}

// pullSecrets are the Secrets by which a pod's images are pulled.
func pullSecrets(j *job.Job) []core.LocalObjectReference {
	var all []core.LocalObjectReference
	for _, name := range j.ImagePullSecrets {
		all = append(all, core.LocalObjectReference{Name: name})
	}
	return all
}

// inherited is what --populate_env_names takes over from the master: variables whose whole name matches, but for those that
// differ from pod to pod and those that the job gives anyway. What the master has of a Secret by --cluster_spec_json, others have of
// it too: the value is in no pod's spec.
func inherited(j *job.Job, environ []string) ([]core.EnvVar, error) {
	if j.PopulateEnvNames == "" {
		return nil, nil
	}
	spec := new(clusterSpec)
	if j.ClusterSpecJSON != "" {
		var err error
		if spec, err = parseClusterSpec(j.ClusterSpecJSON); err != nil {
			return nil, refused(err)
		}
	}
	matches := regexp.MustCompile("^(?:" + j.PopulateEnvNames + ")$").MatchString
	envs := make(map[string]string)
	var referred []core.EnvVar
	for _, text := range environ {
		name, value, _ := strings.Cut(text, "=")
		_, mine := j.Envs[name]
		_, secret := j.EnvSecrets[name]
		if mine || secret || job.ReservedEnv(name) || name == EnvMemory || !matches(name) {
			continue
		}
		if v := spec.masterEnv(name); v != nil && v.ValueFrom != nil {
			referred = append(referred, *v)
			continue
		}
		envs[name] = strings.ReplaceAll(value, "$", "$$") // it was expanded once
	}
	slices.SortFunc(referred, func(a, b core.EnvVar) int { return strings.Compare(a.Name, b.Name) })
	return append(given(envs), referred...), nil
}
