package demand

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// Role has the pods of one role of a job.
type Role struct {
	// value of [manifest.LabelRole]
	Name string
	// a new pod of the role, which nothing owns: the Job of the job is not created yet
	Pod *core.Pod
	// number of pods with which the job trains, that it starts with, and at most
	Least, First, Most int
}

// Roles returns the roles of a job that have pods: launcher, master, workers and parameter servers.
// A job may lack an image, which a stack builds later.
func Roles(of *job.Job) ([]Role, error) {
	j := new(*of)
	j.Image = cmp.Or(j.Image, manifest.App)
	s, err := manifest.Submit(j)
	if err != nil {
		return nil, err
	}
	return RolesOf(j, s)
}

// RolesOf returns the roles of a job whose objects are made.
func RolesOf(j *job.Job, s *manifest.Submission) ([]Role, error) {
	launcher := s.Job.Spec.Template.DeepCopy()
	all := []Role{{manifest.RoleLauncher, &core.Pod{ObjectMeta: launcher.ObjectMeta, Spec: launcher.Spec}, 1, 1, 1},
		{pod.Master.String(), s.Master.DeepCopy(), 1, 1, 1},
		{pod.Worker.String(), nil, j.Least(), j.NumWorkers, max(j.NumWorkers, j.MaxWorkers)}}
	if j.NumPS > 0 {
		all = append(all, Role{pod.PS.String(), nil, j.NumPS, j.NumPS, j.NumPS})
	}
	for i, role := range []pod.Role{pod.Worker, pod.PS}[:len(all)-2] {
		p, err := manifest.Pod(j, manifest.PodSpec{ID: pod.ID{Role: role}, Incarnation: 1}, meta.OwnerReference{})
		if err != nil {
			return nil, err
		}
		all[2+i].Pod = p
	}
	for _, r := range all {
		r.Pod.OwnerReferences = nil
	}
	return all, nil
}

// AtLeast returns how many pods of a role a job needs before it trains.
func AtLeast(r Role) int { return r.Least }

// InQueue returns the same as [AtLeast], without launchers, which a queue of Kueue does not count.
func InQueue(r Role) int {
	if r.Name == manifest.RoleLauncher {
		return 0
	}
	return r.Least
}

// Need is the amount of one resource that a job needs.
type Need struct {
	Name  core.ResourceName
	Total resource.Quantity
	// "5 workers: 5", for each role
	Parts []string
}

// String returns a clause for the user, as "the job needs 3 before it trains (1 master: 1, 2
// workers: 2)".
func (n Need) String() string {
	return fmt.Sprintf("the job needs %s before it trains (%s)", n.Total.String(), n.List())
}

// List returns the parts as one text.
func (n Need) List() string { return strings.Join(n.Parts, ", ") }

// Needs returns what a number of pods of each role need, in the order of the names, without
// resources of which they need none. The resource [core.ResourcePods] is the number of pods.
func Needs(roles []Role, number func(Role) int, of func(*core.PodSpec) core.ResourceList) []Need {
	sums := map[core.ResourceName]*Need{}
	for _, r := range roles {
		n := number(r)
		each := of(&r.Pod.Spec)
		each[core.ResourcePods] = resource.MustParse("1")
		for name, amount := range each {
			if n == 0 || amount.IsZero() {
				continue
			}
			amount.Mul(int64(n))
			if sums[name] == nil {
				sums[name] = &Need{Name: name}
			}
			sums[name].Total.Add(amount)
			sums[name].Parts = append(sums[name].Parts, fmt.Sprintf("%s: %s", Words(r.Name, n), amount.String()))
		}
	}
	var all []Need
	for _, name := range slices.Sorted(maps.Keys(sums)) {
		all = append(all, *sums[name])
	}
	return all
}

// Counted returns what a job needs before it trains of what a ResourceQuota counts under a name
// such as limits.cpu. It reports false if its pods need none.
func Counted(roles []Role, name string) (need Need, needed bool) {
	counts, limit := counted(name)
	of := Requests
	if limit {
		of = Limits
	}
	all := Needs(roles, AtLeast, of)
	i := slices.IndexFunc(all, func(n Need) bool { return n.Name == counts })
	if i < 0 {
		return Need{}, false
	}
	return all[i], true
}

// Words returns a number of pods of a role: "1 master", "2 parameter servers".
func Words(role string, n int) string {
	if role == pod.PS.String() {
		role = "parameter server"
	}
	if n != 1 {
		role += "s"
	}
	return fmt.Sprintf("%d %s", n, role)
}
