package eks

import (
	"encoding/json"
	"path"

	"github.com/pulumi/pulumi-aws/sdk/v6/go/aws/iam"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"
)

// pods is the service principal of Pod Identity.
const pods = "pods.eks.amazonaws.com"

// statement is a statement of an IAM policy.
type statement struct {
	Effect    string
	Principal map[string]string `json:",omitempty"`
	Action    []string
	Resource  []string `json:",omitempty"`
	Condition any      `json:",omitempty"`
}

func document(all ...statement) string {
	text, err := json.Marshal(struct {
		Version   string
		Statement []statement
	}{"2012-10-17", all})
	if err != nil {
		panic(err) // strings only
	}
	return string(text)
}

// trusts returns a policy that lets a service assume a role. EKS and its pods tag their sessions,
// and would be refused without the right to do so.
func trusts(service string) string {
	action := []string{"sts:AssumeRole", "sts:TagSession"}
	if service == "ec2.amazonaws.com" {
		action = action[:1]
	}
	return document(statement{Effect: "Allow", Principal: map[string]string{"Service": service}, Action: action})
}

// role creates a role with policies of Amazon, and their attachments.
func (p *parts) role(name, trust string, policies ...string) (*iam.Role, []pulumi.Resource, error) {
	role, err := p.newRole(name, trust)
	if err != nil {
		return nil, nil, err
	}
	var arns []string
	for _, policy := range policies {
		arns = append(arns, "arn:"+p.partition.Partition+":iam::aws:policy/"+policy)
	}
	attached, err := p.attach(role, name, arns)
	return role, attached, err
}

// newRole creates a role that a service may assume.
func (p *parts) newRole(name, trust string) (*iam.Role, error) {
	return iam.NewRole(p.ctx, p.Child(name), &iam.RoleArgs{
		Name: pulumi.String(p.s.Name(64, name)), AssumeRolePolicy: pulumi.String(trust),
		ForceDetachPolicies: pulumi.Bool(true), Tags: p.tags(p.name + "-" + name),
	}, p.options(pulumi.DeleteBeforeReplace(true)))
}

// attach attaches policies to a role.
func (p *parts) attach(role *iam.Role, name string, arns []string) (attached []pulumi.Resource, err error) {
	for _, arn := range arns {
		a, err := iam.NewRolePolicyAttachment(p.ctx, p.Child(name+"-"+path.Base(arn)), &iam.RolePolicyAttachmentArgs{
			Role: role.Name, PolicyArn: pulumi.String(arn)}, p.options())
		if err != nil {
			return nil, err
		}
		attached = append(attached, a)
	}
	return attached, nil
}

// nodeRole is the role of the nodes.
type nodeRole struct{ name, arn pulumi.StringInput }

// addNodeRole creates the role of the nodes with policies of Amazon, or uses one that exists
// already.
func (p *parts) addNodeRole(name string, policies ...string) error {
	if arn := p.e.NodeRole; arn != "" {
		p.nodeRole = nodeRole{pulumi.String(path.Base(arn)), pulumi.String(arn)}
		return nil
	}
	role, attached, err := p.role(name, trusts("ec2.amazonaws.com"), policies...)
	if err != nil {
		return err
	}
	p.nodeRole, p.attached = nodeRole{role.Name, role.Arn}, attached
	return nil
}
