package kubetest

import (
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	"k8s.io/client-go/kubernetes"
	typedbatch "k8s.io/client-go/kubernetes/typed/batch/v1"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	typednetworking "k8s.io/client-go/kubernetes/typed/networking/v1"
	typedpolicy "k8s.io/client-go/kubernetes/typed/policy/v1"
	typedrbac "k8s.io/client-go/kubernetes/typed/rbac/v1"

	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
)

// Set returns client-go's clients, of its fake cluster, as those that the program has.
func Set(all kubernetes.Interface) clientset.Interface { return set{all} }

type set struct{ all kubernetes.Interface }

// IsWatchListSemanticsUnSupported reports whether a watch cannot begin with the present objects:
// client-go asks, and its fake cluster cannot.
func (s set) IsWatchListSemanticsUnSupported() bool {
	fake, ok := s.all.(interface{ IsWatchListSemanticsUnSupported() bool })
	return ok && fake.IsWatchListSemanticsUnSupported()
}

func (s set) Discovery() clientset.Discovery             { return s.all.Discovery() }
func (s set) AuthorizationV1() clientset.AuthorizationV1 { return reviews(s) }
func (s set) BatchV1() clientset.BatchV1                 { return batches{s.all.BatchV1()} }
func (s set) CoreV1() clientset.CoreV1                   { return cores{s.all.CoreV1()} }
func (s set) NetworkingV1() clientset.NetworkingV1       { return networks{s.all.NetworkingV1()} }
func (s set) PolicyV1() clientset.PolicyV1               { return policies{s.all.PolicyV1()} }
func (s set) RbacV1() clientset.RbacV1                   { return permissions{s.all.RbacV1()} }
func (s set) SchedulingV1() clientset.SchedulingV1       { return schedules(s) }

type cores struct{ typed.CoreV1Interface }

func (c cores) ConfigMaps(namespace string) clientset.ConfigMaps {
	return c.CoreV1Interface.ConfigMaps(namespace)
}

func (c cores) Events(namespace string) clientset.Events { return c.CoreV1Interface.Events(namespace) }

func (c cores) Namespaces() clientset.Objects[*core.Namespace, *core.NamespaceList] {
	return c.CoreV1Interface.Namespaces()
}

func (c cores) Nodes() clientset.Objects[*core.Node, *core.NodeList] {
	return c.CoreV1Interface.Nodes()
}

func (c cores) PersistentVolumeClaims(namespace string) clientset.Objects[*core.PersistentVolumeClaim,
	*core.PersistentVolumeClaimList] {
	return c.CoreV1Interface.PersistentVolumeClaims(namespace)
}

func (c cores) Pods(namespace string) clientset.Pods { return c.CoreV1Interface.Pods(namespace) }

func (c cores) ResourceQuotas(namespace string) clientset.Objects[*core.ResourceQuota, *core.ResourceQuotaList] {
	return c.CoreV1Interface.ResourceQuotas(namespace)
}

func (c cores) Secrets(namespace string) clientset.Objects[*core.Secret, *core.SecretList] {
	return c.CoreV1Interface.Secrets(namespace)
}

func (c cores) ServiceAccounts(namespace string) clientset.Objects[*core.ServiceAccount,
	*core.ServiceAccountList] {
	return c.CoreV1Interface.ServiceAccounts(namespace)
}

func (c cores) Services(namespace string) clientset.Objects[*core.Service, *core.ServiceList] {
	return c.CoreV1Interface.Services(namespace)
}

type reviews struct{ all kubernetes.Interface }

func (r reviews) SelfSubjectAccessReviews() clientset.Reviews {
	return r.all.AuthorizationV1().SelfSubjectAccessReviews()
}

type batches struct{ typedbatch.BatchV1Interface }

func (b batches) Jobs(namespace string) clientset.Jobs { return b.BatchV1Interface.Jobs(namespace) }

type networks struct {
	typednetworking.NetworkingV1Interface
}

func (n networks) NetworkPolicies(namespace string) clientset.Objects[*networking.NetworkPolicy,
	*networking.NetworkPolicyList] {
	return n.NetworkingV1Interface.NetworkPolicies(namespace)
}

type policies struct{ typedpolicy.PolicyV1Interface }

func (p policies) PodDisruptionBudgets(namespace string) clientset.Objects[*policy.PodDisruptionBudget,
	*policy.PodDisruptionBudgetList] {
	return p.PolicyV1Interface.PodDisruptionBudgets(namespace)
}

type permissions struct{ typedrbac.RbacV1Interface }

func (p permissions) Roles(namespace string) clientset.Objects[*rbac.Role, *rbac.RoleList] {
	return p.RbacV1Interface.Roles(namespace)
}

func (p permissions) RoleBindings(namespace string) clientset.Objects[*rbac.RoleBinding, *rbac.RoleBindingList] {
	return p.RbacV1Interface.RoleBindings(namespace)
}

type schedules struct{ all kubernetes.Interface }

func (s schedules) PriorityClasses() clientset.Objects[*scheduling.PriorityClass, *scheduling.PriorityClassList] {
	return s.all.SchedulingV1().PriorityClasses()
}
