package doctor

import (
	"strings"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// kinds has what a stack creates in its namespace, as `kubectl auth can-i` names it.
var kinds = []string{"configmaps", "secrets", "services", "serviceaccounts", "persistentvolumeclaims", "pods",
	"pods/exec", "jobs.batch", "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
	"poddisruptionbudgets.policy", "networkpolicies.networking.k8s.io"}

func (e *examination) cluster(s *settings.Settings) {
	questions := []string{"rights"}
	if v := s.Existing.Volume; v != nil {
		questions = append(questions, nameOf(v))
	}
	if !e.has("kubectl") {
		e.unasked("kubectl is missing", append([]string{"cluster"}, questions...)...)
		return
	}
	of := s.Existing.Context
	if of == "" {
		current, err := e.Run("kubectl", "config", "current-context")
		if err != nil {
			e.say(Missing, "context",
				"kubectl config use-context NAME, or pulumi config set --path existing.context NAME",
				"%v", err)
			e.unasked("there is no context", append([]string{"cluster"}, questions...)...)
			return
		}
		of = strings.TrimSpace(current)
	}
	ask := func(args ...string) (string, error) { return e.Run("kubectl", append(args, "--context="+of)...) }
	if _, err := ask("version", "-o", "json"); err != nil {
		e.say(Missing, "cluster", "kubectl --context="+of+" get namespaces, and log in again", "%s: %v", of, err)
		e.unasked("the cluster does not answer", questions...)
		return
	}
	e.say(OK, "cluster", "", "%s answers", of)
	in := "--namespace=" + s.Platform.Namespace
	e.clusterRights(s, ask, in)
	e.storage(s, ask, in)
}

// clusterRights asks whether the user may create what the stack makes.
func (e *examination) clusterRights(s *settings.Settings, ask func(...string) (string, error), in string) {
	create := append([]string(nil), kinds...)
	if !s.Platform.ShareNamespace {
		create = append(create, "namespaces")
	}
	if shared := s.Platform.SharePriorityClasses; len(shared) < 2 {
		create = append(create, "priorityclasses.scheduling.k8s.io")
	}
	if q := s.Platform.Queue; q != nil {
		create = append(create, "localqueues.kueue.x-k8s.io")
		if q.ClusterQueue == "" {
			create = append(create, "clusterqueues.kueue.x-k8s.io")
		}
	}
	var refused []string
	known := true
	for _, kind := range create {
		// its exit status is 1 if the answer is no
		switch answer, err := ask("auth", "can-i", "create", kind, in); strings.TrimSpace(answer) {
		case "yes":
		case "no":
			refused = append(refused, kind)
		default:
			known = false
			e.say(Unknown, "rights", "", "to create %s: %v", kind, err)
		}
	}
	switch {
	case len(refused) > 0:
		e.say(Missing, "rights", "docs/infrastructure/existing.md has a Role", "you may not create %s",
			strings.Join(refused, ", "))
	case known:
		e.say(OK, "rights", "", "you may create all that the stack makes in %s", s.Platform.Namespace)
	}
}

// nameOf returns the name of the question about a volume.
func nameOf(v *settings.Claim) string {
	if v.CapacityGB == 0 {
		return "claim"
	}
	return "storage class"
}

func (e *examination) storage(s *settings.Settings, ask func(...string) (string, error), in string) {
	v := s.Existing.Volume
	switch {
	case v == nil:
	case v.CapacityGB == 0:
		if _, err := ask("get", "persistentvolumeclaim", v.Name, in); err != nil {
			e.say(absent(err), "claim", "let the stack make it: existing.volume.capacityGb; or name another: "+
				"kubectl get pvc "+in, "%s: %v", v.Name, err)
			return
		}
		e.say(OK, "claim", "", "%s", v.Name)
	case v.StorageClass != "":
		if _, err := ask("get", "storageclass", v.StorageClass); err != nil {
			e.say(absent(err), "storage class", "kubectl get storageclass lists them", "%s: %v", v.StorageClass, err)
			return
		}
		e.say(OK, "storage class", "", "%s", v.StorageClass)
	default:
		classes, err := ask("get", "storageclass")
		switch {
		case err != nil:
			e.say(Unknown, "storage class", "", "%v", err)
		case !strings.Contains(classes, "(default)"):
			e.say(Missing, "storage class", "pulumi config set --path existing.volume.storageClass NAME",
				"the cluster has no default class")
		default:
			e.say(Note, "storage class", "", "the default one: it must make volumes that several nodes can mount, "+
				"as %s asks for", v.AccessMode)
		}
	}
}

// absent returns the state of an object of which kubectl says why it cannot be shown: only one that
// does not exist is missing.
func absent(err error) State {
	if strings.Contains(err.Error(), "(NotFound)") {
		return Missing
	}
	return Unknown
}
