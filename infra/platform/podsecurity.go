package platform

import (
	"fmt"

	core "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// Levels of Pod Security, the least strict first.
const (
	privileged = string(api.LevelPrivileged)
	baseline   = string(api.LevelBaseline)
	restricted = string(api.LevelRestricted)
)

// podSecurityVersion is the version of Kubernetes that defines the levels: without it a cluster
// that is upgraded may refuse pods that it accepted before. Older clusters use their own version
// instead.
const podSecurityVersion = "v1.36"

// versions are those by which pods are checked: of the oldest clusters, and of the newest rules.
var versions = []api.Version{api.MajorMinorVersion(1, 30), api.MajorMinorVersion(1, 36)}

// rules are those of the API server itself.
var rules = newRules()

func newRules() policy.Evaluator {
	all, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		panic(err) // the checks are constant
	}
	return all
}

// against returns the violations of a level by a pod, in words. It is as strict as the strictest of
// the versions.
func against(level string, t *core.Pod) (bad []string) {
	said := map[string]bool{}
	for _, version := range versions {
		of := api.LevelVersion{Level: api.Level(level), Version: version}
		found := policy.AggregateCheckResults(rules.EvaluatePod(of, &t.ObjectMeta, &t.Spec))
		for i, reason := range found.ForbiddenReasons {
			text := fmt.Sprintf("%s (%s)", reason, found.ForbiddenDetails[i])
			if !said[reason] {
				bad = append(bad, text)
			}
			said[reason] = true
		}
	}
	return bad
}
