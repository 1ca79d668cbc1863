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
	return permissions(object(j, SpecName(j.Name)),
		ruleOf(batch.GroupName, "jobs", jobVerbs, MasterName(j.Name)),
		rule("pods", podVerbs),
		rule("configmaps", specVerbs, SpecName(j.Name)),
		rule("configmaps", stateVerbs, StateName(j.Name)),
		rule("secrets", identityVerbs, IdentityName(j.Name)),
		rule("events", eventVerbs)) // whose names are made up
}

// Permissions are those of every job of a namespace that is submitted with --service_account: what an administrator
// creates where submitters may create none. Names of jobs are not known here, so that all Jobs and Secrets of the namespace are meant;
// whoever may create pods, as a master, can mount each of them anyway.
func Permissions(namespace, serviceAccount string) (*core.ServiceAccount, *rbac.Role, *rbac.RoleBinding) {
	o := meta.ObjectMeta{Name: serviceAccount, Namespace: namespace, Labels: map[string]string{LabelApp: App}}
	return permissions(o, ruleOf(batch.GroupName, "jobs", jobVerbs), rule("pods", podVerbs), rule("configmaps", []string{"get", "update", "watch"}), rule("secrets", identityVerbs), rule("events", eventVerbs))
}

func permissions(o meta.ObjectMeta, rules ...rbac.PolicyRule) (*core.ServiceAccount, *rbac.Role, *rbac.RoleBinding) {
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
