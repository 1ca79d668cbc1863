package manifest

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// clusterSpec is the content of --cluster_spec_json. The parts for pods are PodSpecs, that for
// Services is a ServiceSpec, with ElasticDL's keys added: labels and annotations of the object, and
// env for all its containers.
type clusterSpec struct {
	// for every pod, applied before that of its role
	Pod     podHook     `json:"pod_spec"`
	Master  podHook     `json:"master_pod_spec"`
	PS      podHook     `json:"ps_pod_spec"`
	Worker  podHook     `json:"worker_pod_spec"`
	Service serviceHook `json:"service_spec"`
	// for the master's Job, whose labels assign it to a queue
	Job marks `json:"job_spec"`
}

type podHook struct {
	marks
	Env []core.EnvVar `json:"env"`
	core.PodSpec
}

type serviceHook struct {
	marks
	core.ServiceSpec
}

type marks struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ClusterSpec converts the file of --cluster_spec, YAML or JSON, for [job.Job.ClusterSpecJSON]. It
// returns an error that names every field that neither ElasticDL nor Kubernetes knows, by its path.
func ClusterSpec(text []byte) (string, error) {
	object, err := yaml.YAMLToJSONStrict(text)
	if err != nil || !strings.HasPrefix(string(object), "{") {
		return "", errors.New("expected YAML or JSON with pod_spec, master_pod_spec, ps_pod_spec, " +
			"worker_pod_spec, service_spec or job_spec; Python is not run")
	}
	if _, err := parseClusterSpec(string(object)); err != nil {
		return "", err
	}
	return string(object), nil
}

func parseClusterSpec(text string) (*clusterSpec, error) {
	spec := new(clusterSpec)
	unknown, err := kjson.UnmarshalStrict([]byte(text), spec)
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return nil, fmt.Errorf("%s: expected %s, found a JSON %s", pathOf(wrong.Field), kindOf(wrong.Type), wrong.Value)
	} else if err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return spec, errors.Join(append(unknown, spec.taken()...)...)
}

// pathOf returns a path of fields as in the file: without the capitalized names of embedded Go
// structs.
func pathOf(field string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(field, "."), func(name string) bool {
		return name != "" && unicode.IsUpper(rune(name[0]))
	}), ".")
}

// kindOf returns JSON's name for a type.
func kindOf(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Map, reflect.Struct, reflect.Pointer:
		return "an object"
	case reflect.String:
		return "a text"
	case reflect.Bool:
		return "true or false"
	}
	return "a number"
}

// taken returns an error for each label by which a job's objects are found, or that its queue sets,
// and for a restart policy with which the master would not restart.
func (s *clusterSpec) taken() []error {
	var problems []error
	for _, part := range []struct {
		name   string
		labels map[string]string
	}{{"pod_spec", s.Pod.Labels}, {"master_pod_spec", s.Master.Labels}, {"ps_pod_spec", s.PS.Labels},
		{"worker_pod_spec", s.Worker.Labels}, {"service_spec", s.Service.Labels}, {"job_spec", s.Job.Labels}} {
		for _, key := range slices.Sorted(maps.Keys(part.labels)) {
			if slices.Contains([]string{LabelApp, LabelJob, LabelJobOld, LabelRole, LabelIndex,
				LabelIncarnation}, key) {
				problems = append(problems,
					fmt.Errorf("%s.labels.%s: elasticdl selects the job's objects by this label", part.name, key))
			}
			if strings.HasSuffix(part.name, "pod_spec") &&
				slices.Contains([]string{LabelQueue, LabelShare, labelWorkloadPriority}, key) {
				problems = append(problems, fmt.Errorf("%s.labels.%s: --queue sets this label", part.name, key))
			}
		}
	}
	if p := s.Master.RestartPolicy; p != "" && p != core.RestartPolicyNever {
		problems = append(problems, fmt.Errorf("master_pod_spec.restartPolicy: expected %s: the master's "+
			"launcher replaces it", core.RestartPolicyNever))
	}
	return problems
}

// masterEnv returns the variable of that name that a spec gives to the master's container, nil if
// it gives none.
func (s *clusterSpec) masterEnv(name string) *core.EnvVar {
	lists := [][]core.EnvVar{s.Master.Env, s.Pod.Env}
	for _, hook := range []podHook{s.Master, s.Pod} {
		for _, c := range hook.Containers {
			if c.Name == pod.Master.String() {
				lists = append(lists, c.Env)
			}
		}
	}
	for _, vars := range lists {
		if i := slices.IndexFunc(vars, func(v core.EnvVar) bool { return v.Name == name }); i >= 0 {
			return &vars[i]
		}
	}
	return nil
}

// checkHooks returns the problems of the job's --cluster_spec_json, nil if there are none.
func checkHooks(j *job.Job) error {
	if j.ClusterSpecJSON == "" {
		return nil
	}
	_, err := parseClusterSpec(j.ClusterSpecJSON)
	return refused(err)
}

// refused returns the problems of a job whose --cluster_spec_json is not taken, for one reason or
// several that are joined; nil if err is.
func refused(err error) error {
	var problems []error
	for _, e := range job.ProblemsIn(err) {
		problems = append(problems, job.NewProblem("cluster_spec_json", e.Error()))
	}
	return errors.Join(problems...)
}

// applyToPod merges the parts of --cluster_spec_json for all pods and for those of the role into a
// pod.
func applyToPod(j *job.Job, role pod.Role, t *core.PodTemplateSpec) error {
	if j.ClusterSpecJSON == "" {
		return nil
	}
	spec, patches, err := hooks(j)
	if err != nil {
		return err
	}
	name := role.String() + "_pod_spec"
	hook := map[pod.Role]podHook{pod.Master: spec.Master, pod.PS: spec.PS, pod.Worker: spec.Worker}[role]
	for _, part := range []struct {
		name string
		podHook
	}{{"pod_spec", spec.Pod}, {name, hook}} {
		t.Labels, t.Annotations = added(t.Labels, part.Labels), added(t.Annotations, part.Annotations)
		// as ElasticDL does; a merge would replace them
		tolerations := append(t.Spec.Tolerations, part.Tolerations...)
		if err := merge(&t.Spec, patches[part.name]); err != nil {
			return refused(fmt.Errorf("merge %s: %w", part.name, err))
		}
		t.Spec.Tolerations = tolerations
		if !slices.ContainsFunc(t.Spec.Containers, func(c core.Container) bool { return c.Name == role.String() }) {
			return refused(fmt.Errorf("%s.containers: the container %s is missing", part.name, role))
		}
	}
	for i := range t.Spec.Containers { // also those that the parts have added
		c := &t.Spec.Containers[i]
		c.Env = overlaid(overlaid(c.Env, spec.Pod.Env), hook.Env)
	}
	return nil
}

func applyToService(j *job.Job, s *core.Service) error {
	if j.ClusterSpecJSON == "" {
		return nil
	}
	spec, patches, err := hooks(j)
	if err != nil {
		return err
	}
	s.Labels, s.Annotations = added(s.Labels, spec.Service.Labels), added(s.Annotations, spec.Service.Annotations)
	if err := merge(&s.Spec, patches["service_spec"]); err != nil {
		return refused(fmt.Errorf("merge service_spec: %w", err))
	}
	return nil
}

func applyToJob(j *job.Job, o *batch.Job) error {
	if j.ClusterSpecJSON == "" {
		return nil
	}
	spec, err := parseClusterSpec(j.ClusterSpecJSON)
	if err != nil {
		return refused(err)
	}
	o.Labels, o.Annotations = added(o.Labels, spec.Job.Labels), added(o.Annotations, spec.Job.Annotations)
	return nil
}

// hooks returns the job's --cluster_spec_json, parsed, and each of its parts as written, for
// merging: without ElasticDL's keys and tolerations, which are added separately.
func hooks(j *job.Job) (*clusterSpec, map[string]map[string]json.RawMessage, error) {
	spec, err := parseClusterSpec(j.ClusterSpecJSON)
	if err != nil {
		return nil, nil, refused(err)
	}
	var parts map[string]map[string]json.RawMessage
	if err := json.Unmarshal([]byte(j.ClusterSpecJSON), &parts); err != nil {
		return nil, nil, refused(err)
	}
	for _, part := range parts {
		for _, key := range []string{"labels", "annotations", "env", "tolerations"} {
			delete(part, key)
		}
	}
	return spec, parts, nil
}

// merge merges part into spec by Kubernetes' strategic merge: objects key by key, lists with a
// merge key by that key, other lists replaced.
func merge[T any](spec *T, part map[string]json.RawMessage) error {
	if len(part) == 0 {
		return nil
	}
	original, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	patch, err := json.Marshal(part)
	if err != nil {
		return err
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, *spec)
	if err != nil {
		return err
	}
	*spec = *new(T)
	return json.Unmarshal(merged, spec)
}

// added returns a with the entries of b added.
func added(a, b map[string]string) map[string]string {
	if len(a) == 0 && len(b) == 0 {
		return a
	}
	sum := maps.Clone(a)
	if sum == nil {
		sum = make(map[string]string)
	}
	maps.Copy(sum, b)
	return sum
}

// overlaid returns vars with others: each replaces the variable of its name, or is appended.
func overlaid(vars, others []core.EnvVar) []core.EnvVar {
	for _, v := range others {
		if i := slices.IndexFunc(vars, func(o core.EnvVar) bool { return o.Name == v.Name }); i >= 0 {
			vars[i] = v
		} else {
			vars = append(vars, v)
		}
	}
	return vars
}
