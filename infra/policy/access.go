package policy

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// world reports whether a CIDR allows everybody: its prefix is shorter than settings.Widest.
func world(cidr string) bool {
	p, err := netip.ParsePrefix(cidr)
	return err == nil && p.Bits() < settings.Widest && !p.Addr().IsPrivate()
}

// worldly returns the known CIDRs of a list that allow everybody.
func worldly(v resource.PropertyValue) (problems []string) {
	for _, cidr := range texts(v) {
		if world(cidr) {
			problems = append(problems, cidr+" is everybody")
		}
	}
	return problems
}

func publicEndpoint(r Resource, _ []Resource) []string {
	switch r.Type {
	case "gcp:container/cluster:Cluster":
		if is(at(r.Inputs, "privateClusterConfig", "enablePrivateEndpoint"), true) {
			return nil
		}
		networks := at(r.Inputs, "masterAuthorizedNetworksConfig")
		blocks := within(networks, "cidrBlocks")
		var problems []string
		if !unknown(blocks) && len(list(blocks)) == 0 {
			problems = append(problems,
				"masterAuthorizedNetworksConfig names no cidrBlocks, so everybody reaches the Kubernetes API")
		}
		if within(networks, "gcpPublicCidrsAccessEnabled").V == true {
			problems = append(problems,
				"gcpPublicCidrsAccessEnabled lets every customer of Google reach the Kubernetes API")
		}
		for _, b := range list(blocks) {
			problems = append(problems, worldly(within(b, "cidrBlock"))...)
		}
		return problems
	case "aws:eks/cluster:Cluster":
		vpc := at(r.Inputs, "vpcConfig")
		if is(within(vpc, "endpointPublicAccess"), false) {
			return nil
		}
		cidrs := within(vpc, "publicAccessCidrs")
		if !unknown(cidrs) && len(list(cidrs)) == 0 {
			return []string{"vpcConfig has no publicAccessCidrs, so everybody reaches the Kubernetes API"}
		}
		return worldly(cidrs)
	}
	return nil
}

// ingress has, by type of firewall, where its allowed sources are: in a list of rules, or "" for
// the resource itself, and the path of the CIDRs.
var ingress = map[string]struct {
	rules string
	cidrs []string
}{
	"gcp:compute/firewall:Firewall":                             {"", []string{"sourceRanges"}},
	"aws:ec2/securityGroup:SecurityGroup":                       {"ingress", []string{"cidrBlocks", "ipv6CidrBlocks"}},
	"aws:ec2/defaultSecurityGroup:DefaultSecurityGroup":         {"ingress", []string{"cidrBlocks", "ipv6CidrBlocks"}},
	"aws:ec2/securityGroupRule:SecurityGroupRule":               {"", []string{"cidrBlocks", "ipv6CidrBlocks"}},
	"aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule": {"", []string{"cidrIpv4", "cidrIpv6"}},
}

func openIngress(r Resource, _ []Resource) (problems []string) {
	where, ok := ingress[r.Type]
	if !ok || is(at(r.Inputs, "type"), "egress") || !at(r.Inputs, "denies").IsNull() {
		return nil
	}
	rules := []resource.PropertyValue{resource.NewProperty(r.Inputs)}
	if where.rules != "" {
		rules = list(at(r.Inputs, where.rules))
	}
	for _, rule := range rules {
		for _, cidrs := range where.cidrs {
			problems = append(problems, worldly(within(rule, cidrs))...)
		}
	}
	return problems
}

func wildcardRole(r Resource, _ []Resource) (problems []string) {
	switch kindOf(r, "kubernetes") {
	case "Role", "ClusterRole":
		for i, rule := range list(at(r.Inputs, "rules")) {
			for _, key := range []string{"verbs", "resources", "apiGroups", "nonResourceURLs"} {
				if slices.Contains(texts(within(rule, key)), "*") {
					problems = append(problems, fmt.Sprintf("rules[%d].%s has *", i, key))
				}
			}
		}
	case "RoleBinding", "ClusterRoleBinding":
		if name := text(at(r.Inputs, "roleRef", "name")); text(
			at(r.Inputs, "roleRef", "kind")) == "ClusterRole" && oneOf(name, "cluster-admin", "admin", "edit") {
			problems = append(problems, "it binds "+name)
		}
	}
	return problems
}

// identityPolicies has the paths of policies in Amazon's roles, users and groups, and
// resourcePolicies those of policies that say who may use a resource.
var (
	identityPolicies = map[string][]string{
		"aws:iam/policy:Policy":           {"policy"},
		"aws:iam/rolePolicy:RolePolicy":   {"policy"},
		"aws:iam/userPolicy:UserPolicy":   {"policy"},
		"aws:iam/groupPolicy:GroupPolicy": {"policy"},
		"aws:iam/role:Role":               {"inlinePolicies", "policy"},
	}
	resourcePolicies = map[string]string{
		"aws:iam/role:Role":                         "assumeRolePolicy",
		"aws:s3/bucketPolicy:BucketPolicy":          "policy",
		"aws:ecr/repositoryPolicy:RepositoryPolicy": "policy",
		"aws:efs/fileSystemPolicy:FileSystemPolicy": "policy",
	}
)

// statement is a statement of an IAM policy; a field that may be one text or a list is [words].
type statement struct {
	Effect                                   string
	Action, NotAction, Resource, NotResource words
	Principal                                principal
	Condition                                map[string]any
}

type words []string

func (w *words) UnmarshalJSON(b []byte) error {
	var one string
	if json.Unmarshal(b, &one) == nil {
		*w = words{one}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(w))
}

// principal is "*", or all names of all kinds of principals.
type principal words

func (p *principal) UnmarshalJSON(b []byte) error {
	var kinds map[string]words
	if json.Unmarshal(b, &kinds) != nil {
		return (*words)(p).UnmarshalJSON(b)
	}
	for _, who := range kinds {
		*p = append(*p, who...)
	}
	return nil
}

// allowed returns the statements of a policy that allow something; none if it is not known yet.
func allowed(v resource.PropertyValue) (all []statement, err error) {
	doc := text(v)
	if doc == "" {
		return nil, nil
	}
	var policy struct{ Statement json.RawMessage }
	if err := json.Unmarshal([]byte(doc), &policy); err != nil {
		return nil, err
	}
	if json.Unmarshal(policy.Statement, &all) != nil {
		all = make([]statement, 1)
		err = json.Unmarshal(policy.Statement, &all[0])
	}
	return slices.DeleteFunc(all, func(s statement) bool { return s.Effect != "Allow" }), err
}

func wildcardPolicy(r Resource, _ []Resource) (problems []string) {
	note := func(err error) {
		if err != nil {
			problems = append(problems, "the policy is no JSON: "+err.Error())
		}
	}
	if path := identityPolicies[r.Type]; path != nil {
		for _, holder := range list(at(r.Inputs, path[:len(path)-1]...)) {
			all, err := allowed(within(holder, path[len(path)-1]))
			note(err)
			for _, s := range all {
				problems = append(problems, s.wildcards()...)
			}
		}
	}
	if key := resourcePolicies[r.Type]; key != "" {
		all, err := allowed(at(r.Inputs, key))
		note(err)
		for _, s := range all {
			if slices.Contains(s.Principal, "*") && len(s.Condition) == 0 {
				problems = append(problems, key+" lets anybody: the principal is * without a condition")
			}
		}
	}
	return problems
}

func (s statement) wildcards() (problems []string) {
	for _, a := range s.Action {
		if a == "*" || strings.HasSuffix(a, ":*") {
			problems = append(problems, "the action "+a)
		}
	}
	if slices.Contains(s.Resource, "*") && !s.looks() {
		problems = append(problems, fmt.Sprintf("the resource * of %s", strings.Join(s.Action, ", ")))
	}
	if len(s.NotAction)+len(s.NotResource) > 0 {
		problems = append(problems, "NotAction or NotResource allows all else")
	}
	return problems
}

// looks reports whether a statement allows only look-ups that Amazon does not limit to resources:
// those of EC2 and of prices.
func (s statement) looks() bool {
	return len(s.Action) > 0 && !slices.ContainsFunc(s.Action, func(a string) bool {
		return !strings.HasPrefix(a, "ec2:Describe") && a != "pricing:GetProducts" || strings.Contains(a, "*")
	})
}

func broadRole(r Resource, _ []Resource) (problems []string) {
	if kind := kindOf(r, "gcp"); strings.HasSuffix(kind, "IAMMember") || strings.HasSuffix(kind, "IamMember") {
		role, member := text(at(r.Inputs, "role")), text(at(r.Inputs, "member"))
		if oneOf(role, "roles/owner", "roles/editor", "roles/resourcemanager.projectIamAdmin",
			"roles/iam.securityAdmin") {
			problems = append(problems, role)
		}
		if oneOf(member, "allUsers", "allAuthenticatedUsers") {
			problems = append(problems, "the member "+member+" is everybody")
		}
	}
	arns := texts(at(r.Inputs, "policyArn"))
	if r.Type == "aws:iam/role:Role" {
		arns = texts(at(r.Inputs, "managedPolicyArns"))
	} else if kind := kindOf(r, "aws"); !strings.HasSuffix(kind, "PolicyAttachment") {
		return problems
	}
	for _, arn := range arns {
		name := arn[strings.LastIndex(arn, "/")+1:]
		if strings.HasSuffix(name, "FullAccess") ||
			oneOf(name, "AdministratorAccess", "PowerUserAccess", "AmazonS3ReadOnlyAccess") {
			problems = append(problems, arn)
		}
	}
	return problems
}

func exclusiveBinding(r Resource, _ []Resource) []string {
	for _, of := range []string{"projects", "folder", "organizations"} {
		if kind := kindOf(r, "gcp"); strings.HasPrefix(r.Type, "gcp:"+of+"/") &&
			oneOf(kind, "IAMBinding", "IAMPolicy") {
			return []string{"it is the only word on who has what"}
		}
	}
	return nil
}

// kubeconfig has the fields of a kubeconfig that may be secret.
type kubeconfig struct {
	Users []struct {
		Name string `json:"name"`
		User struct {
			Token    string `json:"token"`
			Password string `json:"password"`
			Key      string `json:"client-key-data"`
			Auth     any    `json:"auth-provider"`
		} `json:"user"`
	} `json:"users"`
}

func clearCredential(r Resource, _ []Resource) (problems []string) {
	if r.Type != "pulumi:providers:kubernetes" {
		return nil
	}
	raw := r.Inputs["kubeconfig"]
	var config kubeconfig
	if doc := text(raw); doc == "" || yaml.Unmarshal([]byte(doc), &config) != nil {
		return nil // unknown yet, or the name of a file
	}
	for _, u := range config.Users {
		switch {
		case u.User.Token != "" || u.User.Auth != nil:
			problems = append(problems, "user "+u.Name+
				" of the kubeconfig has a token, which expires and is in the state until then")
		case (u.User.Password != "" || u.User.Key != "") && !raw.ContainsSecrets():
			problems = append(problems, "user "+u.Name+" of the kubeconfig has a key or a password in clear")
		}
	}
	return problems
}

func defaultProvider(r Resource, _ []Resource) []string {
	if name := r.Options.Provider; strings.HasPrefix(r.Type, "kubernetes:") &&
		(name == "" || strings.Contains(name, " default")) {
		return []string{"it has the default provider"}
	}
	return nil
}

func nodeCredentials(r Resource, _ []Resource) (problems []string) {
	note := func(ok bool, problem string) {
		if !ok {
			problems = append(problems, problem)
		}
	}
	switch r.Type {
	case "gcp:container/cluster:Cluster":
		note(!at(r.Inputs, "workloadIdentityConfig", "workloadPool").IsNull(),
			"it has no workloadIdentityConfig.workloadPool")
	case "gcp:container/nodePool:NodePool":
		node := at(r.Inputs, "nodeConfig")
		note(is(within(node, "workloadMetadataConfig", "mode"), "GKE_METADATA"),
			"workloadMetadataConfig.mode is not GKE_METADATA")
		note(!within(node, "serviceAccount").IsNull(), "its nodes are the project's default service account, an editor")
	case "aws:ec2/launchTemplate:LaunchTemplate":
		o := at(r.Inputs, "metadataOptions")
		note(is(within(o, "httpTokens"), "required"), "metadataOptions.httpTokens is not required")
		note(is(within(o, "httpPutResponseHopLimit"), 1.0), "metadataOptions.httpPutResponseHopLimit is not 1")
	}
	return problems
}
