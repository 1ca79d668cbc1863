package manifest

import (
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// Permissions of a master. It creates, deletes and watches pods. It reads and watches the spec,
// writes the state, and fills the Secret, all of which the user's side has created. When it is
// asked to terminate it reads its Job, which may be suspended or deleted; to fail the job, it
// patches it. It writes the conditions of the job into the status of its Job, and records what
// happens to the job as events.
var (
	jobVerbs      = []string{"get", "patch"}
	statusVerbs   = []string{"patch"}
	podVerbs      = []string{"create", "delete", "list", "watch"}
	specVerbs     = []string{"get", "watch"}
	stateVerbs    = []string{"get", "update"}
	identityVerbs = []string{"get", "update"}
	eventVerbs    = []string{"create"}
	nodeVerbs     = []string{"list", "watch"}
)

// ownPermissions returns the objects that grant one job's master its permissions.
func ownPermissions(j *job.Job) (*core.ServiceAccount, *rbac.Role, *rbac.RoleBinding) {
	return permissions(object(j, SpecName(j.Name)), rulesOf([]string{j.Name}))
}

// Permissions returns the objects that an administrator creates for jobs with --service_account,
// where submitters may not create them. They hold for the named jobs or, if none is named, for
// every job of the namespace, which includes all its Jobs, ConfigMaps and Secrets.
func Permissions(namespace, serviceAccount string, jobs ...string) (*core.ServiceAccount, *rbac.Role,
	*rbac.RoleBinding) {
	o := meta.ObjectMeta{Name: serviceAccount, Namespace: namespace, Labels: map[string]string{LabelApp: App}}
	return permissions(o, rulesOf(jobs))
}

// rulesOf returns the permissions of the masters of the named jobs, or of any job if there are
// none. A rule cannot name objects that are created, listed or watched, so pods and events are
// those of the whole namespace.
func rulesOf(jobs []string) []rbac.PolicyRule {
	named := func(name func(job string) string) (all []string) {
		for _, j := range jobs {
			all = append(all, name(j))
		}
		return all
	}
	return []rbac.PolicyRule{
		ruleOf(batch.GroupName, "jobs", jobVerbs, named(MasterName)...),
		ruleOf(batch.GroupName, "jobs/status", statusVerbs, named(MasterName)...),
		rule("pods", podVerbs),
		rule("configmaps", specVerbs, named(SpecName)...),
		rule("configmaps", stateVerbs, named(StateName)...),
		rule("secrets", identityVerbs, named(IdentityName)...),
		rule("events", eventVerbs), // their names are generated
	}
}

// NodesName returns the name of the objects of [NodePermissions] for a namespace.
func NodesName(namespace string) string { return App + "-nodes-" + namespace }

// NodePermissions returns the objects that an administrator creates so that the masters of a
// namespace hear which nodes will be taken away. Nodes belong to no namespace, so they hold for all
// ServiceAccounts of the namespace.
func NodePermissions(namespace string) (*rbac.ClusterRole, *rbac.ClusterRoleBinding) {
	o := meta.ObjectMeta{Name: NodesName(namespace), Labels: map[string]string{LabelApp: App}}
	role := &rbac.ClusterRole{TypeMeta: kind(rbac.SchemeGroupVersion.String(), "ClusterRole"),
		ObjectMeta: *o.DeepCopy(), Rules: []rbac.PolicyRule{rule("nodes", nodeVerbs)}}
	binding := &rbac.ClusterRoleBinding{
		TypeMeta: kind(rbac.SchemeGroupVersion.String(), "ClusterRoleBinding"), ObjectMeta: o,
		RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: o.Name},
		Subjects: []rbac.Subject{{APIGroup: rbac.GroupName, Kind: rbac.GroupKind,
			Name: "system:serviceaccounts:" + namespace}},
	}
	return role, binding
}

func permissions(o meta.ObjectMeta, rules []rbac.PolicyRule) (*core.ServiceAccount, *rbac.Role, *rbac.RoleBinding) {
	account := &core.ServiceAccount{TypeMeta: kind("v1", "ServiceAccount"), ObjectMeta: *o.DeepCopy()}
	role := &rbac.Role{TypeMeta: kind(rbac.SchemeGroupVersion.String(), "Role"),
		ObjectMeta: *o.DeepCopy(), Rules: rules}
	binding := &rbac.RoleBinding{
		TypeMeta: kind(rbac.SchemeGroupVersion.String(), "RoleBinding"), ObjectMeta: o,
		RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "Role", Name: o.Name},
		Subjects: []rbac.Subject{{Kind: rbac.ServiceAccountKind, Name: o.Name, Namespace: o.Namespace}},
	}
	return account, role, binding
}

// rule returns a rule that allows verbs on the named objects of the core group, or on all if none
// is named.
func rule(resource string, verbs []string, names ...string) rbac.PolicyRule {
	return ruleOf("", resource, verbs, names...)
}

func ruleOf(group, resource string, verbs []string, names ...string) rbac.PolicyRule {
	return rbac.PolicyRule{APIGroups: []string{group}, Resources: []string{resource},
		ResourceNames: names, Verbs: verbs}
}
