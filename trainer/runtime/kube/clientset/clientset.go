// Package clientset is the part of Kubernetes' client that jobs use, made of client-go's generic
// client. With client-go's own set of clients the linker would keep the types of all groups of the
// API, in all their versions, a fifth of the program.
package clientset

import (
	"context"

	authorization "k8s.io/api/authorization/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// Interface has a client for each group of the API that jobs use.
type Interface interface {
	Discovery() Discovery
	AuthorizationV1() AuthorizationV1
	BatchV1() BatchV1
	CoreV1() CoreV1
	NetworkingV1() NetworkingV1
	PolicyV1() PolicyV1
	RbacV1() RbacV1
	SchedulingV1() SchedulingV1
}

// Objects reads and writes objects of one kind, T, whose lists are L.
type Objects[T, L any] interface {
	Create(ctx context.Context, object T, o meta.CreateOptions) (T, error)
	Update(ctx context.Context, object T, o meta.UpdateOptions) (T, error)
	Delete(ctx context.Context, name string, o meta.DeleteOptions) error
	Get(ctx context.Context, name string, o meta.GetOptions) (T, error)
	List(ctx context.Context, o meta.ListOptions) (L, error)
	Watch(ctx context.Context, o meta.ListOptions) (watch.Interface, error)
	Patch(ctx context.Context, name string, kind types.PatchType, data []byte, o meta.PatchOptions,
		subresources ...string) (T, error)
}

// Kinds of objects that functions take as arguments.
type (
	ConfigMaps = Objects[*core.ConfigMap, *core.ConfigMapList]
	Events     = Objects[*core.Event, *core.EventList]
	Jobs       = Objects[*batch.Job, *batch.JobList]
)

// Discovery reports what an API server is and has.
type Discovery interface {
	ServerGroups() (*meta.APIGroupList, error)
	ServerVersion() (*version.Info, error)
	RESTClient() rest.Interface
}

// CoreV1 has the kinds of the group without a name.
type CoreV1 interface {
	ConfigMaps(namespace string) ConfigMaps
	Events(namespace string) Events
	Namespaces() Objects[*core.Namespace, *core.NamespaceList]
	Nodes() Objects[*core.Node, *core.NodeList]
	PersistentVolumeClaims(namespace string) Objects[*core.PersistentVolumeClaim, *core.PersistentVolumeClaimList]
	Pods(namespace string) Pods
	ResourceQuotas(namespace string) Objects[*core.ResourceQuota, *core.ResourceQuotaList]
	Secrets(namespace string) Objects[*core.Secret, *core.SecretList]
	ServiceAccounts(namespace string) Objects[*core.ServiceAccount, *core.ServiceAccountList]
	Services(namespace string) Objects[*core.Service, *core.ServiceList]
	RESTClient() rest.Interface
}

// Pods are pods and their logs.
type Pods interface {
	Objects[*core.Pod, *core.PodList]
	GetLogs(name string, o *core.PodLogOptions) *rest.Request
}

// AuthorizationV1 has the kinds of authorization.k8s.io.
type AuthorizationV1 interface {
	SelfSubjectAccessReviews() Reviews
}

// Reviews asks whether the caller has a permission.
type Reviews interface {
	Create(ctx context.Context, review *authorization.SelfSubjectAccessReview, o meta.CreateOptions) (
		*authorization.SelfSubjectAccessReview, error)
}

// BatchV1 has the kinds of batch.
type BatchV1 interface{ Jobs(namespace string) Jobs }

// NetworkingV1 has the kinds of networking.k8s.io.
type NetworkingV1 interface {
	NetworkPolicies(namespace string) Objects[*networking.NetworkPolicy, *networking.NetworkPolicyList]
}

// PolicyV1 has the kinds of policy.
type PolicyV1 interface {
	PodDisruptionBudgets(namespace string) Objects[*policy.PodDisruptionBudget, *policy.PodDisruptionBudgetList]
}

// RbacV1 has the kinds of rbac.authorization.k8s.io.
type RbacV1 interface {
	Roles(namespace string) Objects[*rbac.Role, *rbac.RoleList]
	RoleBindings(namespace string) Objects[*rbac.RoleBinding, *rbac.RoleBindingList]
}

// SchedulingV1 has the kinds of scheduling.k8s.io.
type SchedulingV1 interface {
	PriorityClasses() Objects[*scheduling.PriorityClass, *scheduling.PriorityClassList]
}
