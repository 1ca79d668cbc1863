package clientset

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	authorization "k8s.io/api/authorization/v1"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/gentype"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
)

// kinds has the kinds of the groups of [Interface].
var kinds = runtime.NewScheme()

// ParameterCodec encodes options of requests as parameters of addresses.
var ParameterCodec = runtime.NewParameterCodec(kinds)

var codecs = serializer.NewCodecFactory(kinds)

func init() {
	meta.AddToGroupVersion(kinds, schema.GroupVersion{Version: "v1"})
	for _, add := range []func(*runtime.Scheme) error{authorization.AddToScheme, batch.AddToScheme, core.AddToScheme,
		networking.AddToScheme, policy.AddToScheme, rbac.AddToScheme, scheduling.AddToScheme} {
		utilruntime.Must(add(kinds))
	}
}

// discoveryLimit is the time limit of a request of [Discovery], as in client-go.
const discoveryLimit = 32 * time.Second

// New returns the clients of a cluster. They share connections and, if config has one, a limit of
// the rate of requests.
func New(config *rest.Config) (Interface, error) {
	shared := rest.CopyConfig(config)
	if shared.UserAgent == "" {
		shared.UserAgent = rest.DefaultKubernetesUserAgent()
	}
	if shared.RateLimiter == nil && shared.QPS > 0 {
		shared.RateLimiter = flowcontrol.NewTokenBucketRateLimiter(shared.QPS, shared.Burst)
	}
	shared.NegotiatedSerializer = rest.CodecFactoryForGeneratedClient(kinds, codecs).WithoutConversion()
	client, err := rest.HTTPClientFor(shared)
	if err != nil {
		return nil, err
	}
	s := new(set)
	for _, group := range []struct {
		to      *rest.Interface
		version schema.GroupVersion
	}{
		{&s.authorization, authorization.SchemeGroupVersion}, {&s.batch, batch.SchemeGroupVersion},
		{&s.core, core.SchemeGroupVersion}, {&s.networking, networking.SchemeGroupVersion},
		{&s.policy, policy.SchemeGroupVersion}, {&s.rbac, rbac.SchemeGroupVersion},
		{&s.scheduling, scheduling.SchemeGroupVersion},
	} {
		if *group.to, err = clientOf(shared, client, group.version); err != nil {
			return nil, err
		}
	}
	if shared.Timeout == 0 {
		shared.Timeout = discoveryLimit
	}
	s.discovery, err = rest.UnversionedRESTClientForConfigAndClient(shared, client)
	return s, err
}

// clientOf returns the client of a group.
func clientOf(shared *rest.Config, client *http.Client, group schema.GroupVersion) (rest.Interface, error) {
	config := rest.CopyConfig(shared)
	config.GroupVersion, config.APIPath = &group, "/apis"
	if group.Group == "" {
		config.APIPath = "/api"
	}
	return rest.RESTClientForConfigAndClient(config, client)
}

// set implements [Interface] by a client for each group.
type set struct {
	discovery, authorization, batch, core, networking, policy, rbac, scheduling rest.Interface
}

func (s *set) Discovery() Discovery             { return discoveryClient{s.discovery} }
func (s *set) AuthorizationV1() AuthorizationV1 { return authorizationClient{s.authorization} }
func (s *set) BatchV1() BatchV1                 { return batchClient{s.batch} }
func (s *set) CoreV1() CoreV1                   { return coreClient{s.core} }
func (s *set) NetworkingV1() NetworkingV1       { return networkingClient{s.networking} }
func (s *set) PolicyV1() PolicyV1               { return policyClient{s.policy} }
func (s *set) RbacV1() RbacV1                   { return rbacClient{s.rbac} }
func (s *set) SchedulingV1() SchedulingV1       { return schedulingClient{s.scheduling} }

// object is a pointer to a T that is an object of the API.
type object[T any] interface {
	*T
	runtime.Object
	meta.Object
}

// list is a pointer to an L that is a list of the API.
type list[L any] interface {
	*L
	runtime.Object
}

// objects returns client-go's generic client, as its clients of the kinds use it.
func objects[T, L any, PT object[T], PL list[L]](c rest.Interface, resource, namespace string) (
	one *gentype.ClientWithList[PT, PL]) {
	return gentype.NewClientWithList(resource, c, ParameterCodec, namespace, func() PT { return new(T) },
		func() PL { return new(L) }, gentype.PrefersProtobuf[PT]())
}

type coreClient struct{ c rest.Interface }

func (c coreClient) RESTClient() rest.Interface { return c.c }

func (c coreClient) ConfigMaps(namespace string) ConfigMaps {
	return objects[core.ConfigMap, core.ConfigMapList](c.c, "configmaps", namespace)
}

func (c coreClient) Events(namespace string) Events {
	return objects[core.Event, core.EventList](c.c, "events", namespace)
}

func (c coreClient) Namespaces() Objects[*core.Namespace, *core.NamespaceList] {
	return objects[core.Namespace, core.NamespaceList](c.c, "namespaces", "")
}

func (c coreClient) Nodes() Objects[*core.Node, *core.NodeList] {
	return objects[core.Node, core.NodeList](c.c, "nodes", "")
}

func (c coreClient) PersistentVolumeClaims(namespace string) Objects[*core.PersistentVolumeClaim,
	*core.PersistentVolumeClaimList] {
	return objects[core.PersistentVolumeClaim, core.PersistentVolumeClaimList](c.c, "persistentvolumeclaims", namespace)
}

func (c coreClient) Pods(namespace string) Pods {
	return podClient{objects[core.Pod, core.PodList](c.c, "pods", namespace)}
}

func (c coreClient) ResourceQuotas(namespace string) Objects[*core.ResourceQuota, *core.ResourceQuotaList] {
	return objects[core.ResourceQuota, core.ResourceQuotaList](c.c, "resourcequotas", namespace)
}

func (c coreClient) Secrets(namespace string) Objects[*core.Secret, *core.SecretList] {
	return objects[core.Secret, core.SecretList](c.c, "secrets", namespace)
}

func (c coreClient) ServiceAccounts(namespace string) Objects[*core.ServiceAccount, *core.ServiceAccountList] {
	return objects[core.ServiceAccount, core.ServiceAccountList](c.c, "serviceaccounts", namespace)
}

func (c coreClient) Services(namespace string) Objects[*core.Service, *core.ServiceList] {
	return objects[core.Service, core.ServiceList](c.c, "services", namespace)
}

type podClient struct {
	*gentype.ClientWithList[*core.Pod, *core.PodList]
}

func (p podClient) GetLogs(name string, o *core.PodLogOptions) *rest.Request {
	return p.GetClient().Get().Namespace(p.GetNamespace()).Name(name).Resource("pods").SubResource("log").
		VersionedParams(o, ParameterCodec)
}

type authorizationClient struct{ c rest.Interface }

func (c authorizationClient) SelfSubjectAccessReviews() Reviews {
	return gentype.NewClient("selfsubjectaccessreviews", c.c, ParameterCodec, "",
		func() *authorization.SelfSubjectAccessReview { return new(authorization.SelfSubjectAccessReview) },
		gentype.PrefersProtobuf[*authorization.SelfSubjectAccessReview]())
}

type batchClient struct{ c rest.Interface }

func (c batchClient) Jobs(namespace string) Jobs {
	return objects[batch.Job, batch.JobList](c.c, "jobs", namespace)
}

type networkingClient struct{ c rest.Interface }

func (c networkingClient) NetworkPolicies(namespace string) Objects[*networking.NetworkPolicy,
	*networking.NetworkPolicyList] {
	return objects[networking.NetworkPolicy, networking.NetworkPolicyList](c.c, "networkpolicies", namespace)
}

type policyClient struct{ c rest.Interface }

func (c policyClient) PodDisruptionBudgets(namespace string) Objects[*policy.PodDisruptionBudget,
	*policy.PodDisruptionBudgetList] {
	return objects[policy.PodDisruptionBudget, policy.PodDisruptionBudgetList](c.c, "poddisruptionbudgets", namespace)
}

type rbacClient struct{ c rest.Interface }

func (c rbacClient) Roles(namespace string) Objects[*rbac.Role, *rbac.RoleList] {
	return objects[rbac.Role, rbac.RoleList](c.c, "roles", namespace)
}

func (c rbacClient) RoleBindings(namespace string) Objects[*rbac.RoleBinding, *rbac.RoleBindingList] {
	return objects[rbac.RoleBinding, rbac.RoleBindingList](c.c, "rolebindings", namespace)
}

type schedulingClient struct{ c rest.Interface }

func (c schedulingClient) PriorityClasses() Objects[*scheduling.PriorityClass, *scheduling.PriorityClassList] {
	return objects[scheduling.PriorityClass, scheduling.PriorityClassList](c.c, "priorityclasses", "")
}

type discoveryClient struct{ c rest.Interface }

func (d discoveryClient) RESTClient() rest.Interface { return d.c }

// ServerGroups returns the groups of an API server that have names.
func (d discoveryClient) ServerGroups() (*meta.APIGroupList, error) {
	groups := new(meta.APIGroupList)
	return groups, d.get("/apis", groups)
}

// ServerVersion returns the version of an API server.
func (d discoveryClient) ServerVersion() (*version.Info, error) {
	info := new(version.Info)
	return info, d.get("/version", info)
}

// get reads the JSON at a path of the API server.
func (d discoveryClient) get(path string, to any) error {
	text, err := d.c.Get().AbsPath(path).SetHeader("Accept", runtime.ContentTypeJSON+", */*").Do(context.TODO()).Raw()
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fmt.Errorf("parse %s of the API server: %w", path, err)
	}
	return nil
}
