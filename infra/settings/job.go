package settings

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// placeholder stands for an image that the stack has not built yet.
const placeholder = "image.of.the.stack/is-not-built:yet"

// checkJob checks the job, first alone and then against the other settings of the stack.
func (s *Settings) checkJob(in Input, p *Problems) {
	j := s.Job
	if !slices.Contains(types, j.Type) {
		return // reported by checkGiven
	}
	p.Check(j.Namespace == s.Platform.Namespace, "job.namespace",
		"%s: the job runs in platform.namespace, %s; remove it", j.Namespace, s.Platform.Namespace)
	p.Check(j.TTL == nil, "job.ttl",
		"%v: a job that deletes itself would be run again by the next `pulumi up`; remove it", j.TTL)
	p.Check(j.Image != "" || s.Image != nil || j.Runs(), "job.image",
		"missing: give the name of an existing image, or a section image, from whose source the stack builds one")
	s.checkBucketJob(p)
	is := *j
	is.TTL = nil
	if s.Image != nil {
		*BuiltImage(&is) = placeholder
	}
	_, err := manifest.Submit(&is)
	// values of a wrong type were reported before; other problems of a field are reported here
	before := *p
	for _, o := range job.ProblemsIn(errors.Join(is.Available(), err)) {
		field, text := o.ByField()
		path := strings.TrimSuffix("job."+field, ".")
		if field == "namespace" || path != "job" && before.has(path) || slices.Contains(p.all, problem{path, text}) {
			continue
		}
		p.add(path, text)
	}
	s.checkPriorities(p)
	if slices.Contains(clouds, s.Cloud) {
		s.checkClaims(p)
		s.checkDevices(p)
		s.checkWorkerPool(p)
		if !in.poolUnknown {
			s.checkFit(&is, p)
		}
	}
}

var types = []job.Type{job.Train, job.Evaluate, job.Predict, job.Run}

// BuiltImage returns the field of a job that names the image that its stack builds: the image of
// all pods, or for a program the image that adds elasticdl to the program's own.
func BuiltImage(j *job.Job) *string {
	if j.Runs() {
		return &j.AgentImage
	}
	return &j.Image
}

// checkGiven refuses fields that belong to another type of job. Given reports whether the file has
// a path.
func (s *Settings) checkGiven(given func(path string) bool, p *Problems) {
	if s.EKS != nil {
		s.EKS.checkCore(given, p)
	}
	if s.Job == nil {
		return
	}
	is := s.Job.Type
	if !slices.Contains(types, is) {
		p.oneOf("job.type", string(is), texts(types)...)
		return
	}
	p.Check(is == job.Run || !given("job.command"), "job.command",
		"requires job.type run, but job.type is %s; remove one of the two", is)
	for _, f := range job.Flags() {
		path := "job." + f.Field()
		if f.Topic == job.Remnants || f.With(is) || path == "job." || !given(path) || p.has(path) {
			continue
		}
		with := slices.DeleteFunc(slices.Clone(types), func(t job.Type) bool { return !f.With(t) })
		p.Check(false, path, "requires job.type %s, but job.type is %s; remove it", list(texts(with)), is)
	}
}

func texts(types []job.Type) []string {
	var all []string
	for _, t := range types {
		all = append(all, string(t))
	}
	return all
}

// storageOf has the section that defines each claim.
var storageOf = map[string]string{ClaimGKE: "gke.filestore", ClaimEKS: "eks.efs", ClaimMinikube: "minikube"}

// checkClaims reports volumes of claims that the stack would create, if it had the section of their
// storage. In a cluster that exists already only a shared namespace can have other claims.
func (s *Settings) checkClaims(p *Problems) {
	_, claim := s.storage()
	for i, v := range s.Job.Volumes {
		path, section := fmt.Sprintf("job.volumes[%d].claimName", i), storageOf[v.ClaimName]
		switch {
		case v.ClaimName == "" || v.ClaimName == claim:
		case s.Existing != nil:
			p.Check(s.Platform.ShareNamespace, path, "%s: the stack makes the namespace %s, which then "+
				"has no such claim: give existing.volume of that name, or platform.shareNamespace: true",
				v.ClaimName, s.Platform.Namespace)
		default:
			p.Check(section == "", path, "%s: the claim requires the section %s, which this stack does "+
				"not define", v.ClaimName, section)
		}
	}
}

type role struct {
	name string
	pod  job.Pod
}

func (s *Settings) roles() []role {
	roles := []role{{"master", s.Job.Master}, {"worker", s.Job.Worker}}
	if s.Job.NumPS > 0 {
		roles = append(roles, role{"ps", s.Job.PS})
	}
	return roles
}

// checkPriorities reports priority classes that do not exist: Kubernetes would refuse the pods when
// the master creates them.
func (s *Settings) checkPriorities(p *Problems) {
	if s.Existing != nil || s.Minikube != nil && s.Minikube.Adopt {
		return // such a cluster may have its own
	}
	for _, r := range s.roles() {
		classes := []string{r.pod.Priority.Class}
		if r.pod.Priority.Share > 0 {
			classes = append(classes, "low")
		}
		for _, class := range classes {
			_, there := s.Platform.PriorityClasses[class]
			p.Check(there || class == "", "job."+r.name+".priority.class",
				"%s: not among platform.priorityClasses, %s", class,
				orMissing(list(slices.Sorted(maps.Keys(s.Platform.PriorityClasses)))))
		}
	}
}

const gpu = "nvidia.com/gpu"

// checkDevices reports GPUs that pods request and no nodes have.
func (s *Settings) checkDevices(p *Problems) {
	section, has := "minikube.gpus", false
	switch {
	case s.Existing != nil:
		return // its nodes are not known here
	case s.GKE != nil:
		section, has = "gke.gpuPool, and no pool with GPUs", s.hasGPUs()
	case s.EKS != nil:
		section, has = "eks.gpuGroup, and no pool with GPUs", s.hasGPUs()
	case s.Minikube != nil && (s.Minikube.GPUs != "" || s.Minikube.Adopt):
		return // the number of GPUs is not known here
	}
	for _, r := range s.roles() {
		for i, all := range []job.Resources{r.pod.Request, r.pod.Limit} {
			n, err := strconv.Atoi(all[gpu])
			path := Join("job."+r.name+"."+[...]string{"request", "limit"}[i], gpu)
			if s.Job.GPUs > 0 && r.name == "worker" {
				path = "job.gpus"
			}
			p.Check(err != nil || n == 0 || has, path, "%s: the stack has no %s", all[gpu], section)
		}
	}
}

// checkSpot refuses spot nodes for a job that stops without them.
func (s *Settings) checkSpot(path string, spot bool, p *Problems) {
	if j := s.Job; spot && j != nil && !j.Elastic() {
		p.Check(false, path, "a ring of fewer than job.minWorkers, %d, waits, and "+
			"job.numWorkers is %d: each node that is taken away would stop the job: expected fewer "+
			"minWorkers, or no spot nodes", j.MinWorkers, j.NumWorkers)
	}
}
