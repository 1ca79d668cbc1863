package provider

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Names of the simulated clouds' places.
const (
	GoogleProject = "a-project"
	AmazonAccount = "123456789012"
	AmazonRegion  = "us-west-2"
	// certificate of every cluster, in base64
	authority    = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1JSUIKLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo="
	googleServer = "203.0.113.10"
)

var google = map[string]Type{
	"gcp:projects/service:Service": {
		Schema: "google_project_service",
		Delete: func(_ context.Context, r *Resource) error {
			if r.In["disableOnDestroy"] != false {
				return fmt.Errorf("400: %v is depended on by services of others", r.In["service"])
			}
			return nil
		},
	},
	"gcp:projects/iAMMember:IAMMember": {Schema: "google_project_iam_member", Delete: noNodesLeft},
	"gcp:artifactregistry/repositoryIamMember:RepositoryIamMember": {
		Schema: "google_artifact_registry_repository_iam_member", Delete: noNodesLeft,
	},
	"gcp:serviceaccount/iAMMember:IAMMember": {Schema: "google_service_account_iam_member", Make: makeIdentity},
	"gcp:serviceaccount/account:Account": {Schema: "google_service_account",
		Make: makeAccount},
	"gcp:compute/network:Network": {Schema: "google_compute_network",
		Name: "name", Make: googleLink},
	"gcp:compute/subnetwork:Subnetwork": {Schema: "google_compute_subnetwork", Name: "name", Make: googleLink},
	"gcp:compute/router:Router": {Schema: "google_compute_router",
		Name: "name", Make: googleLink},
	"gcp:compute/routerNat:RouterNat": {Schema: "google_compute_router_nat", Name: "name",
		Delete: noNodesLeft},
	"gcp:compute/firewall:Firewall":           {Schema: "google_compute_firewall", Name: "name", Make: googleLink},
	"gcp:compute/globalAddress:GlobalAddress": {Schema: "google_compute_global_address", Name: "name"},
	"gcp:artifactregistry/repository:Repository": {Schema: "google_artifact_registry_repository",
		Name: "repositoryId", Fill: fillLabels},
	"gcp:filestore/instance:Instance": {Schema: "google_filestore_instance", Name: "name",
		Make: makeFilestore, Fill: fillFilestore, Delete: noNodesLeft},
	"gcp:storage/bucket:Bucket": {Schema: "google_storage_bucket", Name: "name", Global: true,
		Make: makeGoogleBucket, Fill: fillGoogleBucket, Delete: deleteGoogleBucket},
	"gcp:storage/bucketIAMMember:BucketIAMMember": {Schema: "google_storage_bucket_iam_member",
		Fill: fillBucketMember},
	"gcp:container/cluster:Cluster": {Schema: "google_container_cluster",
		Name: "name", Make: makeGKE, Fill: fillGKE, Drift: driftGKE, Delete: deleteGKE},
	"gcp:container/nodePool:NodePool": {Schema: "google_container_node_pool", Name: "name",
		Make: makePool, Fill: fillPool, Drift: driftPool},
	"gcp:monitoring/notificationChannel:NotificationChannel": {Schema: "google_monitoring_notification_channel",
		Make: makeChannel},
	"gcp:billing/budget:Budget": {Schema: "google_billing_budget", Make: makeGoogleBudget, Fill: fillGoogleBudget},
}

// services has the service that must be on in the project, by package of resources.
var services = map[string]string{"compute": "compute", "container": "container", "filestore": "file",
	"artifactregistry": "artifactregistry", "serviceaccount": "iam", "storage": "storage",
	"monitoring": "monitoring", "billing": "billingbudgets"}

// googleID returns the ID of a resource in Google's form.
func googleID(r *Resource) string {
	project := "projects/" + GoogleProject
	place := func(kind string) string { return project + "/locations/" + text(r.In, "location") + "/" + kind + "/" }
	name := text(r.In, "name")
	switch r.Type {
	case "gcp:projects/service:Service":
		return GoogleProject + "/" + text(r.In, "service")
	case "gcp:projects/iAMMember:IAMMember":
		return GoogleProject + "/" + text(r.In, "role") + "/" + text(r.In, "member")
	case "gcp:compute/network:Network":
		return project + "/global/networks/" + name
	case "gcp:compute/firewall:Firewall":
		return project + "/global/firewalls/" + name
	case "gcp:compute/subnetwork:Subnetwork":
		return project + "/regions/" + text(r.In, "region") + "/subnetworks/" + name
	case "gcp:compute/router:Router":
		return project + "/regions/" + text(r.In, "region") + "/routers/" + name
	case "gcp:serviceaccount/account:Account":
		return project + "/serviceAccounts/" + email(r)
	case "gcp:container/cluster:Cluster":
		return place("clusters") + name
	case "gcp:container/nodePool:NodePool":
		return text(r.In, "cluster") + "/nodePools/" + name
	case "gcp:filestore/instance:Instance":
		return place("instances") + name
	case "gcp:storage/bucket:Bucket":
		return name
	case "gcp:artifactregistry/repository:Repository":
		return place("repositories") + text(r.In, "repositoryId")
	case "gcp:monitoring/notificationChannel:NotificationChannel":
		return project + "/notificationChannels/" + digest(r.URN)
	case "gcp:billing/budget:Budget":
		return "billingAccounts/" + text(r.In, "billingAccount") + "/budgets/" + digest(r.URN)
	}
	return ""
}

func email(r *Resource) string {
	return text(r.In, "accountId") + "@" + GoogleProject + ".iam.gserviceaccount.com"
}

// enabled returns an error if the service of a resource is off.
func enabled(r *Resource) error {
	service := services[strings.Split(strings.TrimPrefix(r.Type, "gcp:"), "/")[0]]
	if service == "" {
		return nil
	}
	for s := range r.cloud.all("gcp:projects/service:Service") {
		if s.In["service"] == service+".googleapis.com" {
			return nil
		}
	}
	return fmt.Errorf("403: SERVICE_DISABLED: %s.googleapis.com", service)
}

func googleLink(_ context.Context, r *Resource, _ Op) (Props, error) {
	return Props{"selfLink": "https://www.googleapis.com/compute/v1/" + r.ID, "project": GoogleProject}, nil
}

func makeAccount(_ context.Context, r *Resource, _ Op) (Props, error) {
	mail := email(r)
	if len(text(r.In, "accountId")) > 30 {
		return nil, fmt.Errorf("400: accountId %v has more than 30 characters", r.In["accountId"])
	}
	return Props{"email": mail, "member": "serviceAccount:" + mail, "name": "projects/" +
		GoogleProject + "/serviceAccounts/" + mail, "project": GoogleProject}, nil
}

func makeIdentity(_ context.Context, r *Resource, op Op) (Props, error) {
	if op != Preview && strings.Contains(text(r.In, "member"), ".svc.id.goog[") &&
		r.cloud.first("gcp:container/cluster:Cluster") == nil {
		return nil, errors.New("400: Identity Pool does not exist")
	}
	return nil, nil
}

func makeFilestore(_ context.Context, r *Resource, _ Op) (Props, error) {
	networks, _ := r.In["networks"].([]any)
	if len(networks) != 1 {
		return nil, errors.New("400: expected one network")
	}
	return nil, nil
}

func makeGoogleBucket(_ context.Context, r *Resource, _ Op) (Props, error) {
	name := text(r.In, "name")
	if len(name) > 63 || strings.Contains(name, "google") {
		return nil, fmt.Errorf("400: Invalid bucket name: '%s'", name)
	}
	return Props{"url": "gs://" + name, "selfLink": "https://www.googleapis.com/storage/v1/b/" + name,
		"project": GoogleProject, "projectNumber": 42.0}, nil
}

// deleteGoogleBucket refuses to delete a bucket with objects, or one to which pods still write.
func deleteGoogleBucket(ctx context.Context, r *Resource) error {
	if err := emptied(r, "forceDestroy", "409: the bucket is not empty"); err != nil {
		return err
	}
	return noNodesLeft(ctx, r)
}

func makeGKE(_ context.Context, r *Resource, op Op) (Props, error) {
	if r.In["removeDefaultNodePool"] == true && r.In["initialNodeCount"] == nil {
		return nil, errors.New("400: initialNodeCount must be set, even if the pool is removed")
	}
	if len(text(r.In, "name")) > 40 {
		return nil, fmt.Errorf("400: name %v has more than 40 characters", r.In["name"])
	}
	if op == Create {
		r.cloud.Kubernetes.open("https://" + googleServer)
		if err := r.cloud.Kubernetes.define("https://"+googleServer, googleKinds...); err != nil {
			return nil, err
		}
	}
	return Props{"selfLink": "https://container.googleapis.com/v1/" + r.ID}, nil
}

func deleteGKE(_ context.Context, r *Resource) error {
	if r.In["deletionProtection"] != false {
		return errors.New("400: cannot destroy cluster because deletion_protection is set to true")
	}
	r.cloud.Kubernetes.lose("https://" + googleServer)
	return nil
}

const gpuTaint = "nvidia.com/gpu"

func makePool(_ context.Context, r *Resource, op Op) (Props, error) {
	for _, t := range list(r.In, "nodeConfig", "taints") {
		if text(t, "key") == gpuTaint &&
			(text(t, "value") != "present" || text(t, "effect") != "NO_SCHEDULE") && gpus(r) {
			return nil, errors.New("400: Found more than one taint with key " + gpuTaint + " and effect NO_SCHEDULE")
		}
	}
	if op != Create {
		return nil, nil
	}
	cluster := r.cloud.first("gcp:container/cluster:Cluster")
	if cluster == nil || text(r.In, "cluster") != cluster.ID && text(r.In, "cluster") != text(cluster.In, "name") {
		return nil, fmt.Errorf("404: cluster %v", r.In["cluster"])
	}
	shared := text(cluster.In, "network") == existingNetwork // which has a NAT
	if private(r) && !shared && r.cloud.first("gcp:compute/routerNat:RouterNat") == nil {
		return nil, errors.New("nodes without addresses have no NAT to go out by")
	}
	node := "serviceAccount:" + text(r.In, "nodeConfig", "serviceAccount")
	// the owners of an account that exists already gave it the roles of nodes, and their images
	theirs := text(r.In, "nodeConfig", "serviceAccount") == ExistingNodeAccount
	own := r.cloud.first("gcp:artifactregistry/repository:Repository") != nil
	for _, need := range []struct{ kind, role string }{
		{"gcp:projects/iAMMember:IAMMember", "roles/logging.logWriter"},
		{"gcp:artifactregistry/repositoryIamMember:RepositoryIamMember", "roles/artifactregistry.reader"},
	} {
		has := theirs && (!own || need.role == "roles/logging.logWriter")
		for m := range r.cloud.all(need.kind) {
			has = has || m.In["member"] == node && m.In["role"] == need.role
		}
		if !has {
			return nil, fmt.Errorf("nodes are degraded: %s has no %s", node, need.role)
		}
	}
	if gpus(r) && r.cloud.count("gcp:container/nodePool:NodePool") == 0 {
		return nil, errors.New("there are no nodes without GPUs for what belongs to the system")
	}
	return nil, nil
}

// private reports whether the nodes of a pool have no addresses of their own: by its setting, or
// else by that of the cluster.
func private(pool *Resource) bool {
	if own, ok := at(pool.In, "networkConfig", "enablePrivateNodes").(bool); ok {
		return own
	}
	cluster := pool.cloud.first("gcp:container/cluster:Cluster")
	return cluster != nil && at(cluster.In, "privateClusterConfig", "enablePrivateNodes") == true
}

func gpus(r *Resource) bool { return len(list(r.In, "nodeConfig", "guestAccelerators")) > 0 }

// noNodesLeft refuses to delete what nodes need while they exist: their route to the internet,
// their permissions, the volumes of their pods. A file system may also be deleted when no job runs.
func noNodesLeft(_ context.Context, r *Resource) error {
	if r.Type == "gcp:filestore/instance:Instance" && !r.cloud.Kubernetes.trains() {
		return nil
	}
	for pool := range r.cloud.all("gcp:container/nodePool:NodePool") {
		if r.Type == "gcp:compute/routerNat:RouterNat" && !private(pool) {
			continue
		}
		member := text(r.In, "member")
		if member == "" || member == "serviceAccount:"+text(pool.In, "nodeConfig", "serviceAccount") {
			return fmt.Errorf("409: the nodes of %s need it", pool.Name)
		}
	}
	return nil
}

// list returns the list at a path in v, or nil.
func list(v any, path ...any) []any {
	l, _ := at(v, path...).([]any)
	return l
}

// last returns the text after the last slash.
func last(s string) string { return s[strings.LastIndex(s, "/")+1:] }
