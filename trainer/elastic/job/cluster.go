package job

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Toleration allows pods on nodes with a taint, like that of Kubernetes.
type Toleration struct {
	// "" = every taint, with Exists
	Key string `json:"key,omitzero"`
	// Equal or Exists; "" = Equal
	Operator string `json:"operator,omitzero"`
	// with Equal
	Value string `json:"value,omitzero"`
	// NoSchedule, PreferNoSchedule, NoExecute; "" = all
	Effect string `json:"effect,omitzero"`
	// with NoExecute: time for which pods stay; nil = no limit
	Seconds *int64 `json:"seconds,omitempty"`
}

// Names that Kubernetes accepts.
const (
	maxLabel     = 63
	maxSubdomain = 253
	label        = `[a-z0-9]([-a-z0-9]*[a-z0-9])?`
	subdomain    = label + `(\.` + label + `)*`
	word         = `[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?`
)

var (
	isLabel     = regexp.MustCompile(`^` + label + `$`)
	isSubdomain = regexp.MustCompile(`^` + subdomain + `$`)
	isWord      = regexp.MustCompile(`^` + word + `$`)
	// imageName is a reference: registry, path, tag and digest, of which all but the path may be
	// missing.
	imageName = regexp.MustCompile(
		`^(([A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?(\.[A-Za-z0-9]([-A-Za-z0-9]*[A-Za-z0-9])?)*|\[[0-9A-Fa-f:]+\])(:[0-9]+)?/)?` +
			imagePart + `(/` + imagePart +
			`)*(:[A-Za-z0-9_][-A-Za-z0-9_.]{0,127})?(@[A-Za-z][A-Za-z0-9]*([-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9A-Fa-f]{32,})?$`)
)

const imagePart = `[a-z0-9]+((\.|_|__|-+)[a-z0-9]+)*`

func dnsLabel(s string) bool     { return len(s) <= maxLabel && isLabel.MatchString(s) }
func dnsSubdomain(s string) bool { return len(s) <= maxSubdomain && isSubdomain.MatchString(s) }
func labelValue(s string) bool   { return s == "" || len(s) <= maxLabel && isWord.MatchString(s) }

// labelKey is a name, or a domain's: "gpu", "cloud.google.com/gke-accelerator".
func labelKey(s string) bool {
	domain, name, ok := strings.Cut(s, "/")
	if !ok {
		domain, name = "d", s
	}
	return dnsSubdomain(domain) && len(name) <= maxLabel && isWord.MatchString(name)
}

// ParseTolerations reads "key=K,operator=Exists;key=L,value=V,effect=NoExecute,seconds=60".
func ParseTolerations(s string) ([]Toleration, error) {
	var all []Toleration
	for text := range strings.SplitSeq(s, ";") {
		if strings.TrimSpace(text) == "" {
			continue
		}
		t, err := parseToleration(text)
		if err != nil {
			return nil, fmt.Errorf("toleration %q: %w", strings.TrimSpace(text), err)
		}
		all = append(all, t)
	}
	return all, nil
}

func parseToleration(text string) (t Toleration, err error) {
	fields := map[string]*string{"key": &t.Key, "operator": &t.Operator, "value": &t.Value,
		"effect": &t.Effect, "seconds": new(string)}
	seen := make(map[string]bool)
	err = eachPair(text, ",", func(key, value string) error {
		field, ok := fields[key]
		switch {
		case !ok:
			return fmt.Errorf("unknown key %q: expected key, operator, value, effect or seconds", key)
		case seen[key]:
			return fmt.Errorf("%s occurs twice", key)
		}
		seen[key], *field = true, value
		return nil
	})
	if err == nil && seen["seconds"] {
		n, e := strconv.ParseInt(*fields["seconds"], 10, 64)
		if t.Seconds, err = new(n), nil; e != nil || n < 0 {
			err = fmt.Errorf("seconds=%s: expected a whole number of 0 or more", *fields["seconds"])
		}
	}
	if err == nil {
		err = t.Check()
	}
	if err != nil {
		return Toleration{}, err
	}
	return t, nil
}

// Check returns what Kubernetes would refuse.
func (t Toleration) Check() error {
	switch {
	case t.Operator != "" && t.Operator != "Equal" && t.Operator != "Exists":
		return fmt.Errorf("operator=%s: expected Equal or Exists", t.Operator)
	case t.Key == "" && t.Operator != "Exists":
		return errors.New("expected a key, or operator=Exists for every taint")
	case t.Key != "" && !labelKey(t.Key):
		return fmt.Errorf("key=%s: expected the key of a taint, as nvidia.com/gpu", t.Key)
	case t.Value != "" && t.Operator == "Exists":
		return fmt.Errorf("value=%s: operator=Exists takes none", t.Value)
	case !labelValue(t.Value):
		return fmt.Errorf("value=%s: expected at most %d letters, digits, '-', '_' and '.'", t.Value, maxLabel)
	case !slices.Contains([]string{"", "NoSchedule", "PreferNoSchedule", "NoExecute"}, t.Effect):
		return fmt.Errorf("effect=%s: expected NoSchedule, PreferNoSchedule or NoExecute", t.Effect)
	case t.Seconds != nil && (*t.Seconds < 0 || t.Effect != "NoExecute"):
		return errors.New("seconds requires effect=NoExecute")
	}
	return nil
}

func (t Toleration) String() string {
	var parts []string
	for _, p := range [][2]string{{"key", t.Key}, {"operator", t.Operator}, {"value", t.Value}, {"effect", t.Effect}} {
		if p[1] != "" {
			parts = append(parts, p[0]+"="+p[1])
		}
	}
	if t.Seconds != nil {
		parts = append(parts, "seconds="+strconv.FormatInt(*t.Seconds, 10))
	}
	return strings.Join(parts, ",")
}

// ParseNodeSelector reads "disktype=ssd,cloud.google.com/gke-accelerator=nvidia-l4".
func ParseNodeSelector(s string) (map[string]string, error) {
	selector := map[string]string{}
	err := eachPair(s, ",", func(key, value string) error {
		_, twice := selector[key]
		switch {
		case !labelKey(key):
			return fmt.Errorf("%q: expected the key of a label, as disktype or cloud.google.com/gke-accelerator", key)
		case !labelValue(value):
			return fmt.Errorf("%s=%s: expected at most %d letters, digits, '-', '_' and '.'", key, value, maxLabel)
		case twice:
			return fmt.Errorf("%s occurs twice", key)
		}
		selector[key] = value
		return nil
	})
	if err != nil {
		return nil, err
	}
	return selector, nil
}

// Variables by which every process of a job learns the job's identity, on a cluster and on one
// machine.
const (
	EnvUID       = "ELASTICDL_JOB_UID"
	EnvAuthority = "ELASTICDL_JOB_AUTHORITY" // its authority's certificate
	// the token with which a pod of a cluster proves which it is
	EnvToken = "ELASTICDL_TOKEN_FILE"
)

// ReservedEnv reports whether a variable of that name is set by elasticdl in each pod.
func ReservedEnv(name string) bool {
	return slices.Contains([]string{"POD_NAME", "POD_NAMESPACE", "POD_IP", "NODE_NAME", "HOSTNAME",
		EnvUID, EnvAuthority, EnvToken}, name)
}

// ValidateCluster returns all problems, joined, for which Kubernetes would refuse the job, or its
// pods later. [Job.Validate] checks the settings that have an effect on one machine, too.
func (j *Job) ValidateCluster() error { return j.validateCluster().err() }

func (j *Job) validateCluster() (p problems) {
	const state = "-state"
	p.check(!strings.HasSuffix(j.Name, state), setting("job_name", j.Name),
		"expected a name that does not end in %s: job %s uses it", state, strings.TrimSuffix(j.Name, state))
	p.check(dnsLabel(j.Namespace), setting("namespace", j.Namespace),
		"expected at most %d lower-case letters, digits and '-', beginning and ending with a letter or digit", maxLabel)
	if j.Runs() {
		j.checkProgramPods(&p)
	} else {
		p.given(j.Image != "", setting("image_name"), "name an image, as elasticdl zoo build makes one")
	}
	j.checkImages(&p)
	j.checkResources(&p)
	j.checkPlaces(&p)
	j.checkShared(&p)
	p.check(j.TTL == nil || wholeSeconds(j.TTL.Duration), setting("ttl", j.TTL), "expected whole seconds, 0 or more")
	p.check(j.RunAsUser >= 0, setting("run_as_user", j.RunAsUser),
		"expected the number of a user, or 0 for the image's")
	for _, key := range j.NoticeTaints {
		p.check(labelKey(key), setting("notice_taints", key), "expected keys of taints, as example.com/maintenance")
	}
	p.check(slices.Contains([]string{"", NoticeAWS, NoticeGCE}, j.NoticeMetadata),
		setting("notice_metadata", j.NoticeMetadata), "expected %s or %s", NoticeAWS, NoticeGCE)
	if limit := j.PendingTimeout; limit != nil {
		p.check(limit.Duration >= 0, setting("pending_timeout", limit), "expected a time of 0 or more")
	}
	j.checkQueue(&p)
	p.check(wholeSeconds(j.Deadline.Duration), setting("deadline", j.Deadline), "expected whole seconds, 0 or more")
	p.check(j.ServiceAccount == "" || dnsSubdomain(j.ServiceAccount),
		setting("service_account", j.ServiceAccount), "expected the name of a ServiceAccount")
	for _, name := range slices.Sorted(maps.Keys(j.Envs)) {
		p.check(!ReservedEnv(name), setting("envs", name+"="+j.Envs[name]),
			"the pods have a variable of that name already")
	}
	j.checkPlain(&p)
	return p
}

// checkQueue checks the settings of a queue.
func (j *Job) checkQueue(p *problems) {
	p.check(j.Queue == "" || dnsLabel(j.Queue), setting("queue", j.Queue), "expected the name of a LocalQueue of "+
		"the namespace: at most %d lower-case letters, digits and '-'", maxLabel)
	p.check(j.QueueTimeout.Duration == 0 || j.Queue != "", setting("queue_timeout", j.QueueTimeout),
		"it has an effect only with %v", setting("queue"))
	p.check(j.QueueTimeout.Duration == 0 || j.QueueTimeout.Duration >= time.Second,
		setting("queue_timeout", j.QueueTimeout), "expected 1s or more")
	p.check(j.QueuePriorities == "" || j.Queue != "", setting("queue_priorities", j.QueuePriorities),
		"it has an effect only with %v", setting("queue"))
	p.check(slices.Contains([]string{"", PrioritiesWorkload, PrioritiesPod, PrioritiesNone}, j.QueuePriorities),
		setting("queue_priorities", j.QueuePriorities), "expected workload, pod or none")
}

func (j *Job) checkImages(p *problems) {
	const expected = "expected an image, as registry.example/elasticdl:mnist"
	named := func(image string) bool { return image == "" || imageName.MatchString(image) }
	p.check(named(j.Image), setting("image_name", j.Image), expected)
	p.check(named(j.Worker.Image), setting("worker_image", j.Worker.Image), expected)
	// --worker_image is of both
	p.check(named(j.PS.Image) || j.PS.Image == j.Worker.Image, fieldOf("ps.image", j.PS.Image), expected)
	p.check(named(j.Master.Image), fieldOf("master.image", j.Master.Image), expected)
}

// checkResources refuses limits below requests, and a --max_memory without effect.
func (j *Job) checkResources(p *problems) {
	// memory that a worker or server begins with
	least := 0.0
	for _, role := range j.roles() {
		role.pod.check(role.name, p)
		if has := amount(cmp.Or(role.pod.Limit["memory"],
			role.pod.Request["memory"])); role.name != "master" && has > 0 && (least == 0 || has < least) {
			least = has
		}
	}
	switch {
	case j.MaxMemory == "":
	case !byteQuantity.MatchString(j.MaxMemory):
		p.check(false, setting("max_memory", j.MaxMemory), "expected bytes like 512Mi or 4Gi")
	case amount(j.MaxMemory) <= least || least == 0:
		p.check(false, setting("max_memory", j.MaxMemory),
			"expected more than the memory that %v asks for, or it has no effect", setting("worker_resource_request"))
	}
}

func (r Pod) check(role string, p *problems) {
	requests, limits := setting(role+"_resource_request"), setting(role+"_resource_limit")
	for i, all := range []Resources{r.Request, r.Limit} {
		for _, name := range slices.Sorted(maps.Keys(all)) {
			_, _, err := resource(name, all[name])
			p.check(err == nil, setting(role+[...]string{"_resource_request", "_resource_limit"}[i]), "%v", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Limit)) {
		limit, request := r.Limit[name], r.Request[name]
		switch {
		case request == "":
		case strings.Contains(name, "/") && amount(limit) != amount(request):
			p.check(false, limits, "%s=%s, and %s of %v: expected as many, devices are not shared",
				name, limit, request, requests)
		case amount(limit) < amount(request):
			p.check(false, limits, "%s=%s is less than %s of %v", name, limit, request, requests)
		}
	}
	p.check(r.Priority.Class == "" || dnsSubdomain(r.Priority.Class),
		setting(role+"_pod_priority", r.Priority), "expected the name of a PriorityClass")
}

type role struct {
	name string // as flags begin
	pod  Pod
}

func (j *Job) roles() []role {
	roles := []role{{"master", j.Master}, {"worker", j.Worker}}
	if j.NumPS > 0 {
		roles = append(roles, role{"ps", j.PS})
	}
	return roles
}

// checkPlaces checks volumes, tolerations and node selectors.
func (j *Job) checkPlaces(p *problems) {
	for i, v := range j.Volumes {
		err := v.check()
		p.check(err == nil, setting("volume", v), "%v", err)
		p.check(!slices.ContainsFunc(j.Volumes[:i], func(o Volume) bool {
			return o.MountPath == v.MountPath
		}), setting("volume", v), "mount_path occurs twice")
	}
	for _, t := range j.Tolerations {
		err := t.Check()
		p.check(err == nil, setting("tolerations", t), "%v", err)
	}
	for _, key := range slices.Sorted(maps.Keys(j.NodeSelector)) {
		value := j.NodeSelector[key]
		p.check(labelKey(key) && labelValue(value), setting("node_selector", key+"="+value), "expected a label")
	}
}

var hostPathTypes = []string{"Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket",
	"CharDevice", "BlockDevice"}

// check returns an error for a volume that Kubernetes would refuse.
func (v Volume) check() error {
	climbs := func(s string) bool { return slices.Contains(strings.Split(s, "/"), "..") }
	switch {
	case (v.ClaimName == "") == (v.HostPath == ""):
		return errors.New("expected either claim_name or host_path")
	case v.Type != "" && v.HostPath == "":
		return errors.New("type requires host_path")
	case v.ClaimName != "" && !dnsSubdomain(v.ClaimName):
		return fmt.Errorf("claim_name=%s: expected the name of a PersistentVolumeClaim", v.ClaimName)
	case v.HostPath != "" && (!path.IsAbs(v.HostPath) || climbs(v.HostPath)):
		return fmt.Errorf("host_path=%s: expected a path that starts with / and names no '..'", v.HostPath)
	case v.Type != "" && !slices.Contains(hostPathTypes, v.Type):
		return fmt.Errorf("type=%s: expected one of %s", v.Type, strings.Join(hostPathTypes, ", "))
	case !path.IsAbs(v.MountPath):
		return errors.New("expected a mount_path that starts with /")
	case strings.Contains(v.MountPath, ":"):
		return fmt.Errorf("mount_path=%s: expected a path without ':'", v.MountPath)
	case path.IsAbs(v.SubPath) || climbs(v.SubPath):
		return fmt.Errorf("sub_path=%s: expected a path within the volume", v.SubPath)
	}
	return nil
}

// amount returns a quantity as a number of cores, bytes or devices; 0 if it cannot be parsed.
func amount(quantity string) float64 {
	digits := strings.TrimRight(quantity, "EPTGMKkim")
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0
	}
	switch suffix := quantity[len(digits):]; {
	case suffix == "":
		return n
	case suffix == "m":
		return n / 1000
	case strings.HasSuffix(suffix, "i"):
		return n * power(1024, suffix)
	default:
		return n * power(1000, suffix)
	}
}

func power(base float64, suffix string) float64 {
	p := base
	for range strings.IndexByte("KMGTPE", strings.ToUpper(suffix)[0]) {
		p *= base
	}
	return p
}

// wholeSeconds reports whether a field of Kubernetes that counts seconds can hold the duration.
func wholeSeconds(d time.Duration) bool { return d >= 0 && d%time.Second == 0 && d < 1<<31*time.Second }
