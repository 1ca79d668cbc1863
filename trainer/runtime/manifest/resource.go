package manifest

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// requirements returns the requests and limits of a pod; a role without limits is limited to its
// requests. Devices have equal requests and limits, as Kubernetes requires. Memory is doubled ooms
// times, up to most.
func requirements(of job.Pod, ooms int, most string) (core.ResourceRequirements, error) {
	limit := of.Limit
	if limit == nil {
		limit = of.Request
	}
	requests, err := list(of.Request, ooms, most)
	if err != nil {
		return core.ResourceRequirements{}, err
	}
	limits, err := list(limit, ooms, most)
	for name, q := range limits {
		if _, ok := requests[name]; !ok && isDevice(name) {
			requests[name] = q
		}
	}
	for name, q := range requests {
		if _, ok := limits[name]; !ok && isDevice(name) {
			limits[name] = q
		}
	}
	return core.ResourceRequirements{Requests: requests, Limits: limits}, err
}

// roomy returns a master's requests, with a CPU limit of at least masterCPU if the job sets no
// limits.
func roomy(of job.Pod) job.Pod {
	asked, err := resource.ParseQuantity(of.Request["cpu"])
	if of.Limit != nil || err != nil || asked.Cmp(resource.MustParse(masterCPU)) >= 0 {
		return of
	}
	of.Limit = maps.Clone(of.Request)
	of.Limit["cpu"] = masterCPU
	return of
}

func isDevice(name core.ResourceName) bool { return strings.Contains(string(name), "/") }

func list(r job.Resources, ooms int, most string) (core.ResourceList, error) {
	list := make(core.ResourceList)
	for _, name := range slices.Sorted(maps.Keys(r)) {
		q, err := resource.ParseQuantity(r[name])
		if err != nil {
			return nil, fmt.Errorf("read %s=%s: %w", name, r[name], err)
		}
		list[core.ResourceName(name)] = q
	}
	if memory, ok := list[core.ResourceMemory]; ok && ooms > 0 && most != "" {
		limit, err := resource.ParseQuantity(most)
		if err != nil {
			return nil, fmt.Errorf("read --max_memory=%s: %w", most, err)
		}
		list[core.ResourceMemory] = grown(memory, ooms, limit)
	}
	return list, nil
}

// grown returns a quantity doubled n times, up to most, and never less than it was.
func grown(q resource.Quantity, n int, most resource.Quantity) resource.Quantity {
	if q.Cmp(most) >= 0 {
		return q
	}
	bytes := q.Value()
	for range n {
		if bytes > math.MaxInt64/2 {
			return most
		}
		if bytes *= 2; most.CmpInt64(bytes) <= 0 {
			return most
		}
	}
	return *resource.NewQuantity(bytes, q.Format)
}

// storage returns the job's volumes, one for each claim or directory, and their mounts.
func storage(volumes []job.Volume) ([]core.Volume, []core.VolumeMount) {
	var all []core.Volume
	var mounts []core.VolumeMount
	var sources []job.Volume
	for _, v := range volumes {
		source := job.Volume{ClaimName: v.ClaimName, HostPath: v.HostPath, Type: v.Type}
		n := slices.Index(sources, source)
		if n < 0 {
			n = len(sources)
			sources = append(sources, source)
			all = append(all, core.Volume{Name: volumeName(n), VolumeSource: volumeSource(v)})
		}
		mounts = append(mounts, core.VolumeMount{Name: volumeName(n), MountPath: v.MountPath, SubPath: v.SubPath})
	}
	return all, mounts
}

func volumeName(n int) string { return fmt.Sprintf("volume-%d", n) }

func volumeSource(v job.Volume) core.VolumeSource {
	if v.ClaimName != "" {
		return core.VolumeSource{PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: v.ClaimName}}
	}
	path := &core.HostPathVolumeSource{Path: v.HostPath}
	if v.Type != "" {
		path.Type = new(core.HostPathType(v.Type))
	}
	return core.VolumeSource{HostPath: path}
}

// tolerations returns the job's own tolerations.
func tolerations(all []job.Toleration) []core.Toleration {
	var out []core.Toleration
	for _, t := range all {
		out = append(out, core.Toleration{
			Key: t.Key, Operator: core.TolerationOperator(t.Operator), Value: t.Value,
			Effect: core.TaintEffect(t.Effect), TolerationSeconds: t.Seconds,
		})
	}
	return out
}

// lossTolerations returns tolerations that have a pod evicted lostAfter seconds after its node is
// lost, unless the job has its own.
func lossTolerations(own []job.Toleration) []core.Toleration {
	var out []core.Toleration
	for _, key := range []string{core.TaintNodeNotReady, core.TaintNodeUnreachable} {
		if !tolerates(own, key, core.TaintEffectNoExecute) {
			out = append(out, core.Toleration{
				Key: key, Operator: core.TolerationOpExists, Effect: core.TaintEffectNoExecute,
				TolerationSeconds: new(int64(lostAfter)),
			})
		}
	}
	return out
}

// deviceTolerations returns tolerations for the nodes that are reserved for pods with the same
// devices: clusters taint them with the device's name.
func deviceTolerations(of job.Pod, own []job.Toleration) []core.Toleration {
	names := make(map[string]bool)
	for _, r := range []job.Resources{of.Request, of.Limit} {
		for name := range r {
			if isDevice(core.ResourceName(name)) && !tolerates(own, name, core.TaintEffectNoSchedule) {
				names[name] = true
			}
		}
	}
	var out []core.Toleration
	for _, name := range slices.Sorted(maps.Keys(names)) {
		out = append(out, core.Toleration{Key: name, Operator: core.TolerationOpExists,
			Effect: core.TaintEffectNoSchedule})
	}
	return out
}

// tolerates reports whether one of the job's tolerations is for a key and its effect, or for all
// keys.
func tolerates(own []job.Toleration, key string, effect core.TaintEffect) bool {
	return slices.ContainsFunc(own, func(t job.Toleration) bool {
		return t.Key == key && (t.Effect == "" || t.Effect == string(effect))
	})
}
