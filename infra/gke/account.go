package gke

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/infra"
)

// wholeNodeRoles lists roles of which each alone has the rights of all [nodeRoles]. The first is
// the one that Google advises for nodes.
var wholeNodeRoles = []string{"roles/container.defaultNodeServiceAccount", "roles/container.nodeServiceAccount",
	"roles/editor", "roles/owner"}

// lookUpNodeAccount expects a service account, and notes if the project does not let it write logs
// and metrics. It does not refuse that: a folder, an organization or a group may have the roles,
// and the policy of the project does not tell.
func (p *parts) lookUpNodeAccount(infra.Expect) error {
	var is struct {
		Member string `pulumi:"member"`
	}
	err := p.invoke("gcp:serviceaccount/getAccount:getAccount", map[string]any{"accountId": p.g.NodeAccount,
		"project": p.g.Project}, &is)
	if err != nil {
		return fmt.Errorf("%w (iam.serviceAccounts.get)", err)
	}
	var policy struct {
		Data string `pulumi:"policyData"`
	}
	err = p.invoke("gcp:projects/getIamPolicy:getIamPolicy", map[string]any{"project": p.g.Project}, &policy)
	if err != nil {
		return fmt.Errorf("policy of project %s: %w (resourcemanager.projects.getIamPolicy)", p.g.Project, err)
	}
	missing, err := nodesLack(policy.Data, is.Member)
	if err != nil {
		return fmt.Errorf("policy of project %s: %w", p.g.Project, err)
	}
	if len(missing) == 0 {
		return nil
	}
	p.notes = append(p.notes, fmt.Sprintf("gke.nodeAccount: %s: project %s does not give it %s: unless a folder, the "+
		"organization or a group does, its nodes write no logs and metrics: gcloud projects add-iam-policy-binding "+
		"%[2]s --condition=None --member=%[4]s --role=%[5]s", p.g.NodeAccount, p.g.Project,
		strings.Join(missing, ", "), is.Member, wholeNodeRoles[0]))
	return nil
}

// nodesLack returns those of [nodeRoles] that a policy of IAM, as JSON, does not give a member, be
// it by another role. A role that is given on a condition is not counted.
func nodesLack(policy, member string) ([]string, error) {
	var is struct {
		Bindings []struct {
			Role      string
			Members   []string
			Condition *struct{ Expression string }
		}
	}
	if err := json.Unmarshal([]byte(policy), &is); err != nil {
		return nil, err
	}
	lack := slices.Clone(nodeRoles)
	for _, b := range is.Bindings {
		if b.Condition != nil || !slices.Contains(b.Members, member) {
			continue
		}
		if slices.Contains(wholeNodeRoles, b.Role) {
			return nil, nil
		}
		lack = slices.DeleteFunc(lack, func(role string) bool { return role == b.Role })
	}
	return lack, nil
}
