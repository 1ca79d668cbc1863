package manifest

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
)

// PodSpec has what the master decides about the pod of a server or worker.
type PodSpec struct {
	ID pod.ID
	// incarnation, from 1
	Incarnation int
	// index of the first pod of its line, which decides about its priority
	Slot int
	// it is a worker of the core of a job in a queue
	Core bool
	// how often its line ran out of memory; its memory is doubled as often
	OOMs int
	// the master's environment, as NAME=value, from which --populate_env_names selects
	Environ []string
	// Authority is the certificate of the job's authority, in one line.
	Authority string
}

// lostAfter is the number of seconds after which a pod on an unreachable or not ready node is
// evicted.
const lostAfter = 5

// masterGraces is the number of times that the grace period of the other pods that of a master is:
// half of it is for a checkpoint, see [Grace], and then the pods have theirs, in case they are to
// end.
const masterGraces = 3

// EnvMemory is the environment variable with the soft memory limit of a Go program.
const EnvMemory = "GOMEMLIMIT"

// memoryShare is the percentage of a container's limit that a Go program gets as its soft limit.
// The kernel charges the rest for pages of files, stacks of threads and sockets.
const memoryShare = 90

// masterCPU is the least CPU limit of a master for which the job sets no limits. With a thousand
// workers it uses a fifth of a processor; while it starts or restarts it needs more.
const masterCPU = "1"

// graceOf returns the number of seconds in which a pod that is asked to terminate hands back its
// work, and a program ends.
func graceOf(j *job.Job, r pod.Role) int64 {
	grace := int64(math.Ceil(j.TimeToEnd().Seconds()))
	if r == pod.Master {
		return masterGraces * grace
	}
	return grace
}

// tellGrace tells the process of a pod how long it has after SIGTERM, unless that is the default.
func tellGrace(t *core.PodTemplateSpec, role pod.Role) {
	own := t.Spec.TerminationGracePeriodSeconds // --cluster_spec_json may have changed it
	if own == nil || time.Duration(*own)*time.Second == timing.Grace {
		return
	}
	for i := range t.Spec.Containers {
		if c := &t.Spec.Containers[i]; c.Name == role.String() {
			c.Args = append(c.Args, fmt.Sprintf("--grace=%ds", *own))
		}
	}
}

// safeToEvict is an annotation for cluster autoscalers: they keep a node with a pod that has
// "false", and also a node whose pods have no controller, unless they have "true".
const safeToEvict = "cluster-autoscaler.kubernetes.io/safe-to-evict"

// Pod returns the pod of a server or worker of a valid job, owned by the Job of its master.
func Pod(j *job.Job, p PodSpec, owner meta.OwnerReference) (*core.Pod, error) {
	var of job.Pod
	var priority string
	args := []string{p.ID.Role.String(), "--master_address=" + MasterAddress(j), "--index=" +
		strconv.Itoa(p.ID.Index), "--launch=" + strconv.Itoa(p.Incarnation), "--log_level=" +
		cmp.Or(j.LogLevel, "INFO")}
	switch p.ID.Role {
	case pod.Worker:
		of, priority = j.Worker, j.Worker.Priority.Of(p.Slot, j.NumWorkers)
		// as many as the container has processors
		args = append(args, "--listen=[$("+EnvPodIP+")]:0", "--threads=0")
	case pod.PS:
		of, priority = j.PS, j.PS.Priority.Class
		args = append(args, "--address=:"+strconv.Itoa(PSPort), "--advertise="+PSAddress(j, p.ID.Index))
	default:
		return nil, fmt.Errorf("make %s: it is made by its launcher", describe(j, p.ID))
	}
	if port := j.ServesMetrics(); port != 0 {
		args = append(args, "--metrics_address=:"+strconv.Itoa(port))
	}
	if j.NoticeMetadata != "" {
		args = append(args, "--notice_metadata="+j.NoticeMetadata)
	}
	t, err := template(j, p.ID, of, p.OOMs, args)
	if err != nil {
		return nil, err
	}
	t.Labels[LabelIncarnation] = strconv.Itoa(p.Incarnation)
	t.Annotations = map[string]string{safeToEvict: strconv.FormatBool(p.ID.Role == pod.Worker)}
	if p.ID.Role != pod.Worker {
		t.Annotations[doNotDisrupt] = "true"
	}
	t.Spec.PriorityClassName = priority
	enqueue(j, t, p.Core || p.ID.Role == pod.PS)
	t.Spec.RestartPolicy = core.RestartPolicy(cmp.Or(j.RestartPolicy, "Never"))
	t.Spec.AutomountServiceAccountToken = new(false) // they need only the account's name
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
	exposesMetrics(j, c)
	if !runsProgram(j, p.ID.Role) {
		sealRoot(j, &t.Spec)
	}
	if err := applyToPod(j, p.ID.Role, t); err != nil {
		return nil, err
	}
	tellGrace(t, p.ID.Role)
	if runsProgram(j, p.ID.Role) {
		// without limitMemory: the memory is for the program
		runProgram(j, t, p.ID.Role.String())
	} else {
		limitMemory(t, p.ID.Role)
	}
	namesMain(t, p.ID.Role)
	t.OwnerReferences = []meta.OwnerReference{owner}
	return &core.Pod{TypeMeta: kind("v1", "Pod"), ObjectMeta: t.ObjectMeta, Spec: t.Spec}, nil
}

// masterTemplate returns the template of the master's pod, without the identity of its Job.
func masterTemplate(j *job.Job) (*core.PodTemplateSpec, error) {
	id := pod.ID{Role: pod.Master}
	t, err := template(j, id, roomy(j.Master), 0, []string{"master", "--job_name=" + j.Name,
		"--namespace=" + j.Namespace})
	if err != nil {
		return nil, err
	}
	t.Annotations = map[string]string{safeToEvict: "false", doNotDisrupt: "true"}
	t.Spec.PriorityClassName = j.Master.Priority.Class
	enqueue(j, t, true)
	t.Spec.RestartPolicy = core.RestartPolicyNever // its launcher replaces it
	t.Spec.Tolerations = append(lossTolerations(j.Tolerations), t.Spec.Tolerations...)
	c := &t.Spec.Containers[0]
	c.Env = append(c.Env, given(j.Envs)...)
	// in a program's job only the program needs them
	if !j.Runs() {
		c.Env = append(c.Env, ofSecrets(j.EnvSecrets)...)
	}
	listens(c, MasterPort)
	exposesMetrics(j, c)
	sealRoot(j, &t.Spec)
	if err := applyToPod(j, id.Role, t); err != nil {
		return nil, err
	}
	limitMemory(t, id.Role)
	namesMain(t, id.Role)
	letView(t)
	return t, nil
}

// letView makes the master listen on [ViewPort] of the loopback interface, unless its pod shares
// that interface with its node: everybody on the node could look at the job then.
func letView(t *core.PodTemplateSpec) {
	if c := mainOf(&t.Spec, pod.Master.String()); c != nil && !t.Spec.HostNetwork {
		c.Args = append(c.Args, "--view_port="+strconv.Itoa(ViewPort))
	}
}

// defaultContainer is the annotation with the container that kubectl logs, exec and attach choose
// by default.
const defaultContainer = "kubectl.kubernetes.io/default-container"

// namesMain makes kubectl choose the container of the role, unless the job says otherwise. Pods of
// one container have the annotation, too: admission may add containers to them.
func namesMain(t *core.PodTemplateSpec, role pod.Role) {
	if _, given := t.Annotations[defaultContainer]; !given {
		t.Annotations[defaultContainer] = role.String()
	}
}

// Grace returns how long the master of a job may take for a checkpoint after it is asked to
// terminate.
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

// limitMemory sets the soft memory limit of a role's container, unless the job sets it.
func limitMemory(t *core.PodTemplateSpec, role pod.Role) {
	for i := range t.Spec.Containers {
		c := &t.Spec.Containers[i]
		limit, limited := c.Resources.Limits[core.ResourceMemory]
		given := slices.ContainsFunc(c.Env, func(v core.EnvVar) bool { return v.Name == EnvMemory })
		if c.Name == role.String() && limited && !given {
			c.Env = append(c.Env, core.EnvVar{Name: EnvMemory,
				Value: strconv.FormatInt(limit.Value()/100*memoryShare, 10)})
		}
	}
}

// template returns the part of a pod that all roles have in common.
func template(j *job.Job, id pod.ID, of job.Pod, ooms int, args []string) (*core.PodTemplateSpec, error) {
	resources, err := requirements(of, ooms, j.MaxMemory)
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", describe(j, id), err)
	}
	volumes, mounts := storage(j.Volumes)
	t := &core.PodTemplateSpec{ObjectMeta: podObject(j, id)}
	t.Spec = core.PodSpec{
		// of servers and workers, too: an identity of the cloud is bound to it
		ServiceAccountName:            AccountName(j),
		TerminationGracePeriodSeconds: new(graceOf(j, id.Role)),
		// no role needs a variable for each Service of the namespace
		EnableServiceLinks: new(false),
		NodeSelector:       maps.Clone(j.NodeSelector),
		Tolerations:        append(tolerations(j.Tolerations), deviceTolerations(of, j.Tolerations)...),
		SecurityContext:    userOf(j),
		Volumes:            volumes,
		ImagePullSecrets:   pullSecrets(j),
	}
	t.Spec.Containers = []core.Container{{
		Name: id.Role.String(), Image: image(j, id.Role, of), ImagePullPolicy: core.PullPolicy(j.ImagePullPolicy),
		Args: args, Env: append(downward(), homeOf(j)...), Resources: resources, VolumeMounts: mounts,
		SecurityContext: Confined(),
		// so that its last line is the reason of its failure
		TerminationMessagePolicy: core.TerminationMessageFallbackToLogsOnError,
	}}
	return t, nil
}

// Confined returns the security context of all our containers: no capabilities, and no way to gain
// privileges, whichever user it runs as.
func Confined() *core.SecurityContext {
	return &core.SecurityContext{AllowPrivilegeEscalation: new(false),
		Capabilities: &core.Capabilities{Drop: []core.Capability{"ALL"}}}
}

// sealRoot makes the root file system of a pod's first container read-only. The container writes to
// the job's volumes, and to a /tmp that is removed with the pod. It stays writable if --output is
// inside the pod. A --cluster_spec_json can change both.
func sealRoot(j *job.Job, spec *core.PodSpec) {
	const volume, dir = "elasticdl-tmp", "/tmp"
	c := &spec.Containers[0]
	c.SecurityContext.ReadOnlyRootFilesystem = new(!j.OutputInPod())
	if !mounted(c, dir) { // by the job itself
		spec.Volumes = append(spec.Volumes,
			core.Volume{Name: volume, VolumeSource: core.VolumeSource{EmptyDir: &core.EmptyDirVolumeSource{}}})
		c.VolumeMounts = append(c.VolumeMounts, core.VolumeMount{Name: volume, MountPath: dir})
	}
}

// mounted reports whether a container has a volume at a path.
func mounted(c *core.Container, at string) bool {
	return slices.ContainsFunc(c.VolumeMounts, func(m core.VolumeMount) bool { return path.Clean(m.MountPath) == at })
}

// userOf returns the security context of a pod. Its containers run as the user of --run_as_user, to
// whose group its volumes are given if their kind allows that, or as the user of their images.
func userOf(j *job.Job) *core.PodSecurityContext {
	c := &core.PodSecurityContext{SeccompProfile: &core.SeccompProfile{Type: core.SeccompProfileTypeRuntimeDefault}}
	if id := int64(j.RunAsUser); id > 0 {
		c.RunAsNonRoot, c.RunAsUser, c.RunAsGroup, c.FSGroup = new(true), new(id), new(id), new(id)
		// do not visit each file of a data set at every start
		c.FSGroupChangePolicy = new(core.FSGroupChangeOnRootMismatch)
	}
	return c
}

// homeOf returns a HOME for a user that the image does not know, in which libraries can write their
// caches.
func homeOf(j *job.Job) []core.EnvVar {
	_, given := j.Envs["HOME"]
	if _, secret := j.EnvSecrets["HOME"]; given || secret || j.RunAsUser == 0 {
		return nil
	}
	return []core.EnvVar{{Name: "HOME", Value: "/tmp"}}
}

// image returns the image of a role's container. The master of a program's job does not use the
// program's image.
func image(j *job.Job, role pod.Role, of job.Pod) string {
	if role == pod.Master {
		return cmp.Or(of.Image, j.Program.AgentImage, j.Image)
	}
	return cmp.Or(of.Image, j.Image)
}

// listens gives a container a port for gRPC with a startup and a readiness probe. The kubelet has
// no certificate, so the probes only connect: a container is ready when it accepts connections,
// which a master does after it has taken the job over from its predecessor, and a server after it
// got a certificate from the master. There is no liveness probe: the master judges the silence of
// pods, and neither a loaded machine nor a master that reads its data or a checkpoint is to be
// killed.
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

// MetricsPort is the name of the port at which the pods of a job serve metrics.
const MetricsPort = "metrics"

// exposesMetrics names the port of the metrics of a container, if the job serves any.
func exposesMetrics(j *job.Job, c *core.Container) {
	if port := j.ServesMetrics(); port != 0 {
		c.Ports = append(c.Ports, core.ContainerPort{Name: MetricsPort, ContainerPort: int32(port),
			Protocol: core.ProtocolTCP})
	}
}

// downward returns the variables with a pod's own name and address.
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
	// tokenSeconds is the time that a token is valid; the kubelet renews it before.
	tokenSeconds = 3600
)

// proves gives the first container of a pod a token that proves to the master of this job, and to
// no other, which pod it is, and the authority's certificate, by which it verifies the master.
// Neither is a key.
func proves(spec *core.PodSpec, p PodSpec, owner meta.OwnerReference) {
	spec.Volumes = append(spec.Volumes, core.Volume{Name: tokenVolume, VolumeSource: core.VolumeSource{
		Projected: &core.ProjectedVolumeSource{Sources: []core.VolumeProjection{{
			ServiceAccountToken: &core.ServiceAccountTokenProjection{Audience: string(owner.UID),
				ExpirationSeconds: new(int64(tokenSeconds)), Path: "token"},
		}}},
	}})
	c := &spec.Containers[0]
	c.VolumeMounts = append(c.VolumeMounts, core.VolumeMount{Name: tokenVolume, MountPath: tokenDir, ReadOnly: true})
	c.Env = append(c.Env,
		core.EnvVar{Name: job.EnvUID, Value: string(owner.UID)},
		core.EnvVar{Name: job.EnvAuthority, Value: p.Authority},
		core.EnvVar{Name: job.EnvToken, Value: tokenDir + "/token"})
}

// given returns the job's own variables.
func given(envs map[string]string) []core.EnvVar {
	var vars []core.EnvVar
	for _, name := range slices.Sorted(maps.Keys(envs)) {
		vars = append(vars, core.EnvVar{Name: name, Value: envs[name]})
	}
	return vars
}

// ofSecrets returns the job's variables whose values are in Secrets.
func ofSecrets(refs map[string]job.SecretRef) []core.EnvVar {
	var vars []core.EnvVar
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		from := &core.SecretKeySelector{LocalObjectReference: core.LocalObjectReference{
			Name: refs[name].Secret}, Key: refs[name].Key}
		vars = append(vars, core.EnvVar{Name: name, ValueFrom: &core.EnvVarSource{SecretKeyRef: from}})
	}
	return vars
}

// pullSecrets returns the Secrets with which a pod's images are pulled.
func pullSecrets(j *job.Job) []core.LocalObjectReference {
	var all []core.LocalObjectReference
	for _, name := range j.ImagePullSecrets {
		all = append(all, core.LocalObjectReference{Name: name})
	}
	return all
}

// inherited returns the variables that --populate_env_names copies from the master: those whose
// whole name matches, except those that differ from pod to pod and those that the job sets anyway.
// A variable that the master gets from a Secret by --cluster_spec_json refers to the Secret in
// other pods, too, so no pod's spec has the value.
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
