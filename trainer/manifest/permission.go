package manifest

import (
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/job"
)

// What a master does to its cluster, and nothing else: it makes and ends pods and watches them, reads and watches
// the spec, writes the state, and fills the Secret; the user's side has made all three. It reads its Job when it is told to go, which
// may be suspended or deleted, and patches it so that it fails at once. It tells what befalls the job as events.
var (
	jobVerbs      = []string{"get", "patch"}
	podVerbs      = []string{"create", "delete", "list", "watch"}
	specVerbs     = []string{"get", "watch"}
	stateVerbs    = []string{"get", "update"}
	identityVerbs = []string{"get", "update"}
	eventVerbs    = []string{"create"}
)

// ownPermissions are those of one job.
func ownPermissions(j *job.Job) (*core.ServiceAccount, *rbac.Role, *rbac.RoleBinding) {
	return permissions(object(j, SpecName(j.Name)), rulesOf([]string{j.Name}))
}

// Permissions are those of jobs that are submitted with --service_account: what an administrator creates where submitters may
// create none. They are of the named jobs, or of every job of the namespace if none is named: then all of its Jobs, ConfigMaps and
// Secrets are meant.
func Permissions(namespace, serviceAccount string, jobs ...string) (*core.ServiceAccount, *rbac.Role, *rbac.RoleBinding) {
	o := meta.ObjectMeta{Name: serviceAccount, Namespace: namespace, Labels: map[string]string{LabelApp: App}}
	return permissions(o, rulesOf(jobs))
}

// rulesOf are the permissions of the masters of some jobs, or of any job. What is created, listed or watched has no name that a rule could
// go by: pods and events are those of the whole namespace.
func rulesOf(jobs []string) []rbac.PolicyRule {
	named := func(name func(job string) string) (all []string) {
		for _, j := range jobs {
			all = append(all, name(j))
		}
		return all
	}
	return []rbac.PolicyRule{
		ruleOf(batch.GroupName, "jobs", jobVerbs, named(MasterName)...),
		rule("pods", podVerbs),
		rule("configmaps", specVerbs, named(SpecName)...),
		rule("configmaps", stateVerbs, named(StateName)...),
		rule("secrets", identityVerbs, named(IdentityName)...),
		rule("events", eventVerbs), // whose names are made up
	}
}

func permissions(o meta.ObjectMeta, rules []rbac.PolicyRule) (*core.ServiceAccount, *rbac.Role, *rbac.RoleBinding) {
	account := &core.ServiceAccount{TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: *o.DeepCopy()}
	role := &rbac.Role{TypeMeta: kind(rbac.SchemeGroupVersion.String(), "Role"), ObjectMeta: *o.DeepCopy(), Rules: rules}
	binding := &rbac.RoleBinding{
		TypeMeta: kind(rbac.SchemeGroupVersion.String(), "RoleBinding"), ObjectMeta: o,
		RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: o.Name},
		Subjects: []rbac.Subject{{Kind: rbac.ServiceAccountKind, Name: o.Name, Namespace: o.Namespace}},
	}
	return account, role, binding
}

// rule allows verbs on the named objects of the core group, or on all of them.
func rule(resource string, verbs []string, names ...string) rbac.PolicyRule {
	return ruleOf("", resource, verbs, names...)
}

func ruleOf(group, resource string, verbs []string, names ...string) rbac.PolicyRule {
	return rbac.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, ResourceNames: names, Verbs: verbs}
}
