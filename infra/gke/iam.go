package gke

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/projects"
	"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/serviceaccount"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
)

// apis lists the services of the project that the stack uses. They are off in a new project, and a
// request for a service that is off fails with 403 SERVICE_DISABLED.
var apis = []string{
	"artifactregistry", "cloudresourcemanager", "compute", "container", "file", "iam",
	"iamcredentials", // pods use it to act as the job's account
	"logging", "monitoring",
}

// nodeRoles lists the roles that nodes need in the project: to write logs and metrics. The right to
// read images is granted on one repository.
var nodeRoles = []string{
	"roles/autoscaling.metricsWriter",
	"roles/logging.logWriter",
	"roles/monitoring.metricWriter",
	"roles/monitoring.viewer",
	"roles/stackdriver.resourceMetadata.writer",
}

func (p *parts) addServices() error {
	all := apis
	if p.g.Bucket != nil {
		all = append(slices.Clone(apis), "storage")
	}
	for _, api := range all {
		s, err := p.service(api)
		if err != nil {
			return err
		}
		p.services = append(p.services, s)
	}
	return nil
}

// service turns on a service of the project.
func (p *parts) service(api string) (pulumi.Resource, error) {
	return projects.NewService(p.ctx, p.Child(api), &projects.ServiceArgs{
		Project: pulumi.String(p.g.Project), Service: pulumi.String(api + ".googleapis.com"),
		DisableOnDestroy: pulumi.Bool(false), // other users of the project may need it
	}, p.options())
}

// nodeAccount is the service account of the nodes.
type nodeAccount struct{ email, member pulumi.StringInput }

// addNodeAccount creates the service account of the nodes, instead of Google's default account,
// which may edit the whole project; or it uses one that exists already, and grants it nothing in
// the project: to take that away again would take what its owner granted.
func (p *parts) addNodeAccount() error {
	if email := p.g.NodeAccount; email != "" {
		p.nodes = nodeAccount{pulumi.String(email), pulumi.String("serviceAccount:" + email)}
		return nil
	}
	account, err := p.account("nodes", "Nodes of the cluster")
	if err != nil {
		return err
	}
	p.nodes = nodeAccount{account.Email, account.Member}
	for _, role := range nodeRoles {
		m, err := p.grant("nodes", account, role)
		if err != nil {
			return err
		}
		p.beneath = append(p.beneath, m)
	}
	return nil
}

// identify creates the service account of a job's pods. The annotation of Kubernetes'
// ServiceAccount names this account, and this account's policy admits that ServiceAccount; one
// without the other has no effect.
func (p *parts) identify(name string, of infra.Account) (*infra.Identity, error) {
	account, err := p.account(name, "Training job "+of.Job)
	if err != nil {
		return nil, err
	}
	is := &infra.Identity{Annotations: map[string]pulumi.StringOutput{
		"iam.gke.io/gcp-service-account": account.Email}}
	for _, role := range p.g.JobRoles {
		m, err := p.grant(name, account, role)
		if err != nil {
			return nil, err
		}
		is.Ready = append(is.Ready, m)
	}
	if p.bucket != nil {
		member, err := p.openBucket(name, account)
		if err != nil {
			return nil, err
		}
		is.Ready = append(is.Ready, member)
	}
	m, err := serviceaccount.NewIAMMember(p.ctx, p.Child(name+"-workloadIdentityUser"), &serviceaccount.IAMMemberArgs{
		ServiceAccountId: account.Name,
		Role:             pulumi.String("roles/iam.workloadIdentityUser"),
		Member:           pulumi.String(fmt.Sprintf("serviceAccount:%s[%s/%s]", p.workloadPool(), of.Namespace, of.Name)),
	},
		// the first cluster of a project creates the identity pool
		p.options(pulumi.DependsOn([]pulumi.Resource{p.cluster})))
	is.Ready = append(is.Ready, m)
	return is, err
}

func (p *parts) workloadPool() string { return p.g.Project + ".svc.id.goog" }

func (p *parts) account(name, description string) (*serviceaccount.Account, error) {
	return serviceaccount.NewAccount(p.ctx, p.Child(name), &serviceaccount.AccountArgs{
		AccountId:   pulumi.String(p.s.Name(maxAccount, name)),
		DisplayName: pulumi.String(description),
		Description: pulumi.String("Of the stack " + p.ctx.Project() + "/" + p.ctx.Stack() + " of Pulumi"),
	}, p.named(pulumi.DependsOn(p.services)))
}

// grant grants an account a role in the project.
func (p *parts) grant(name string, account *serviceaccount.Account, role string) (*projects.IAMMember, error) {
	return projects.NewIAMMember(p.ctx, p.Child(name+"-"+strings.TrimPrefix(role, "roles/")), &projects.IAMMemberArgs{
		Project: pulumi.String(p.g.Project), Role: pulumi.String(role), Member: account.Member,
	}, p.options())
}
