package settings

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	isAmazonProfile = regexp.MustCompile(`^[\w.@/+:=-]+$`)
	isAmazonRegion  = regexp.MustCompile(`^[a-z]{2}(-[a-z]+)+-[0-9]$`)
	isVPC           = regexp.MustCompile(`^vpc-[0-9a-f]{8,17}$`)
	isSubnet        = regexp.MustCompile(`^subnet-[0-9a-f]{8,17}$`)
	isFileSystem    = regexp.MustCompile(`^fs-[0-9a-f]{8,17}$`)
	isPrincipal     = regexp.MustCompile(`^arn:aws[-a-z]*:iam::[0-9]{12}:(role|user)/.+$`)
	isRole          = regexp.MustCompile(`^arn:aws[-a-z]*:iam::[0-9]{12}:role/(?:[\w+=,.@-]+/)*[\w+=,.@-]+$`)
	isPolicy        = regexp.MustCompile(`^arn:aws[-a-z]*:iam::(?:aws|[0-9]{12}):policy/(?:[\w+=,.@-]+/)*([\w+=,.@-]+)$`)
	isInstanceType  = regexp.MustCompile(`^[a-z][-a-z0-9]*\.[a-z0-9-]+$`)
	isArm           = regexp.MustCompile(`^[a-z]+[0-9]+g[a-z]*\.`)
)

func (e *EKS) check(s *Settings, in Input, p *Problems) {
	const at = "eks."
	p.Check(e.Region != "", keyRegion, "missing: pulumi config set %s us-west-2", keyRegion)
	p.Check(e.Region == "" || isAmazonRegion.MatchString(e.Region), keyRegion,
		"%s: expected a region, as us-west-2", e.Region)
	checkProvider(in.Config, p)
	p.Check(e.Profile == "" || isAmazonProfile.MatchString(e.Profile), keyProfile,
		"%s: expected the name of a profile: letters, digits and _.@/+:=-", e.Profile)
	p.oneOf(at+"supportType", e.SupportType, "STANDARD", "EXTENDED")
	p.Check(e.Version == "" || isVersion.MatchString(e.Version), at+"version",
		"%s: expected a version of Kubernetes, as \"1.35\"", e.Version)
	e.VPC.check(e.Region, p)
	if e.PublicAccess {
		checkAuthorized("eks", e.AuthorizedNetworks, 40, p, true)
	} else {
		p.Check(len(e.AuthorizedNetworks) == 0, at+"authorizedNetworks",
			"with publicAccess: false the Kubernetes API has no public address: remove these")
		s.note("eks.publicAccess: false: `pulumi up` has to run within the VPC, from which alone " +
			"the Kubernetes API is reached")
	}
	for i, arn := range e.Admins {
		path := fmt.Sprintf(at+"admins[%d]", i)
		p.Check(!strings.Contains(arn, ":assumed-role/"), path,
			"%s: that is a session: give the role, arn:aws:iam::ACCOUNT:role/NAME", arn)
		p.Check(isPrincipal.MatchString(arn), path, "%s: expected arn:aws:iam::ACCOUNT:role/NAME or user/NAME", arn)
		p.Check(!slices.Contains(e.Admins[:i], arn), path, "%s occurs twice", arn)
	}
	p.Check(e.NodeRole == "" || isRole.MatchString(e.NodeRole), at+"nodeRole", "%s: expected the ARN of a role, as "+
		"arn:aws:iam::123456789012:role/nodes", e.NodeRole)
	e.checkPools(s, p)
	checkAmazonKey("eks.kmsKey", e.KMSKey, e.Region, "where the stack is", p)
	if e.Bucket != nil {
		e.Bucket.checkAmazon(e.Region, p)
	}
	if e.EFS != nil {
		e.EFS.check(e, p)
	}
	p.Check(e.Registry == "" || isRepository.MatchString(e.Registry), at+"registry", "%s: expected the beginning of "+
		"the name of a repository, as team of team/mnist", e.Registry)
	for i, arn := range e.JobPolicies {
		path := fmt.Sprintf(at+"jobPolicies[%d]", i)
		found := isPolicy.FindStringSubmatch(arn)
		p.Check(found != nil, path, "%s: expected the ARN of an IAM policy, as "+
			"arn:aws:iam::123456789012:policy/data", arn)
		p.Check(found == nil || !slices.Contains(tooMuch, found[1]), path,
			"%s: with it a job may do all in the account: name what the job needs", arn)
		p.Check(found == nil || !slices.ContainsFunc(e.JobPolicies[:i], func(other string) bool {
			return strings.HasSuffix(other, "/"+found[1])
		}), path, "%s: a policy before it has the same name", arn)
	}
	p.Check(s.Job != nil || s.Base != "" || len(e.JobPolicies) == 0, at+"jobPolicies", "there is no job that would "+
		"have them: remove these, or add the section job")
	p.Check(len(e.JobPolicies) <= maxPolicies, at+"jobPolicies", "%d policies: expected at most %d",
		len(e.JobPolicies), maxPolicies)
	p.Check(slices.Contains(retentions, e.LogRetentionDays), at+"logRetentionDays", "%d: expected %s",
		e.LogRetentionDays, numbers(retentions))
}

// tooMuch lists policies of Amazon's that give a job the rights of an administrator.
var tooMuch = []string{"AdministratorAccess", "PowerUserAccess", "IAMFullAccess"}

// maxPolicies is the default quota of managed policies of one role.
const maxPolicies = 10

// providerOnly lists settings of the AWS provider that `aws eks get-token` and `aws ecr
// get-login-password` cannot use: the stack would be created with one identity, and Kubernetes and
// the registry accessed with another.
var providerOnly = []string{
	"aws:accessKey", "aws:assumeRole", "aws:assumeRoleWithWebIdentity", "aws:assumeRoles",
	"aws:secretKey", "aws:sharedConfigFiles", "aws:sharedCredentialsFiles", "aws:token",
}

func checkProvider(config map[string]string, p *Problems) {
	for _, key := range providerOnly {
		_, there := config[key]
		p.Check(!there, key, "kubectl and the registry's login cannot use this: put it into a "+
			"profile of ~/.aws/config (role_arn, source_profile), and name that: pulumi config set aws:profile NAME")
	}
}

// retentions lists the numbers of days that CloudWatch accepts.
var retentions = []int{1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731, 1096, 1827, 2192,
	2557, 2922, 3288, 3653}

func deref(n *int) int {
	if n == nil {
		return 0
	}
	return *n
}

// isVersion matches a version of Kubernetes. Which ones Amazon supports is looked up: see
// infra/eks.
var isVersion = regexp.MustCompile(`^1\.[0-9]{1,3}$`)

// check checks a VPC that the stack creates, or an existing one.
func (v *VPC) check(region string, p *Problems) {
	const at = "eks.vpc."
	if v.ID != "" {
		const why = "eks.vpc.id names an existing VPC: remove one of the two"
		p.Check(isVPC.MatchString(v.ID), at+"id", "%s: expected the ID of a VPC, as vpc-0a1b2c3d", v.ID)
		p.Check(v.CIDR == "", at+"cidr", "%s: %s", v.CIDR, why)
		p.Check(len(v.Zones) == 0, at+"zones", "%s", why)
		p.Check(!v.NATPerZone, at+"natPerZone", "true: %s", why)
		p.Check(len(v.PrivateSubnets) >= 2, at+"privateSubnets",
			"%d subnets: expected those of two zones or more", len(v.PrivateSubnets))
		checkSubnets(at+"privateSubnets", v.PrivateSubnets, nil, p)
		checkSubnets(at+"publicSubnets", v.PublicSubnets, v.PrivateSubnets, p)
		return
	}
	const why = "subnets go with eks.vpc.id, an existing VPC"
	p.Check(len(v.PrivateSubnets) == 0, at+"privateSubnets", why)
	p.Check(len(v.PublicSubnets) == 0, at+"publicSubnets", why)
	p.private(at+"cidr", v.CIDR, 16, 20)
	p.Check(len(v.Zones) >= 2, at+"zones", "%s: expected two or more, as [%[2]sa, %[2]sb]",
		orMissing(strings.Join(v.Zones, ", ")), region)
	p.Check(len(v.Zones) <= 4, at+"zones", "%d zones: expected at most 4", len(v.Zones))
	for i, zone := range v.Zones {
		path := fmt.Sprintf(at+"zones[%d]", i)
		letter, ok := strings.CutPrefix(zone, region)
		p.Check(ok && len(letter) == 1 && letter >= "a" && letter <= "z", path,
			"%s: expected a zone of %s, as %[2]sa, and no local one", zone, orMissing(region))
		p.Check(!slices.Contains(v.Zones[:i], zone), path, "%s occurs twice", zone)
	}
}

func (f *EFS) check(e *EKS, p *Problems) {
	const at = "eks.efs."
	p.Check(f.UID == nil || *f.UID >= 0, at+"uid", "%d: expected 0 or more", deref(f.UID))
	if f.ID == "" {
		p.oneOf(at+"throughputMode", f.ThroughputMode, "elastic", "bursting")
		return
	}
	p.Check(isFileSystem.MatchString(f.ID), at+"id", "%s: expected the ID of a file system, as fs-0a1b2c3d", f.ID)
	p.Check(e.VPC.ID != "", at+"id", "%s: it is mounted in the VPC of its mount targets: expected that VPC and its "+
		"subnets in eks.vpc", f.ID)
	p.Check(f.ThroughputMode == "", at+"throughputMode", "%s: eks.efs.id names a file system that exists already, "+
		"and is not changed: remove this", f.ThroughputMode)
}

func checkSubnets(at string, all, others []string, p *Problems) {
	for i, id := range all {
		path := fmt.Sprintf("%s[%d]", at, i)
		p.Check(isSubnet.MatchString(id), path, "%s: expected the ID of a subnet, as subnet-0a1b2c3d", id)
		p.Check(!slices.Contains(all[:i], id) && !slices.Contains(others, id), path, "%s occurs twice", id)
	}
}

// the greatest number of nodes of a managed group
const maxGroup = 450

func (o *EKSGroup) check(s *Settings, at string, p *Problems) {
	o.checkTypes(s, at, p)
	o.checkPlace(s, at, p)
	if o.Spot && len(o.InstanceTypes) == 1 {
		s.note("%s.spot: true with one type only, %s: where that is short there are no nodes: give "+
			"several", at, o.InstanceTypes[0])
	}
	p.within(at+".minNodes", o.MinNodes, 0, maxGroup)
	p.within(at+".maxNodes", o.MaxNodes, 1, maxGroup)
	p.Check(o.MinNodes <= o.MaxNodes, at+".maxNodes", "%d: fewer than minNodes, %d", o.MaxNodes, o.MinNodes)
	follow := s.EKS.Follow() && (s.EKS.Nodes == NodesAuto || at != s.EKS.system().Path)
	p.Check(follow || o.DesiredNodes >= o.MinNodes && o.DesiredNodes <= o.MaxNodes, at+".desiredNodes",
		"%d: expected minNodes to maxNodes, %d to %d", o.DesiredNodes, o.MinNodes, o.MaxNodes)
	p.within(at+".diskGb", o.DiskGB, minDisk, maxDisk)
	checkNodeLabels(at+".labels", o.Labels, p)
}

// checkGPUs checks that only the GPU group has GPUs: its taint keeps other pods off.
func (o *EKSGroup) checkGPUs(s *Settings, at string, wanted bool, p *Problems) {
	if !wanted {
		const why = "GPUs are in eks.gpuGroup or a pool with gpus, which keep off pods that ask for none"
		p.Check(o.GPUs == 0, at+".gpus", "%d: %s", o.GPUs, why)
		for i, t := range o.InstanceTypes {
			p.Check(!isGPU.MatchString(t), fmt.Sprintf("%s.instanceTypes[%d]", at, i), "%s: %s", t, why)
		}
		return
	}
	p.Check(o.GPUs >= 1, at+".gpus", "%d: expected 1 or more, per node", o.GPUs)
	p.Check(o.DiskGB >= minGPUDisk, at+".diskGb",
		"%d: expected %d or more: images with CUDA fill smaller disks", o.DiskGB, minGPUDisk)
	for i, t := range o.InstanceTypes {
		path := fmt.Sprintf("%s.instanceTypes[%d]", at, i)
		p.Check(isGPU.MatchString(t), path, "%s: has no GPU of NVIDIA", t)
		n := gpus[t]
		p.Check(n == 0 || o.GPUs == 0 || n == o.GPUs, path, "%s: has %d GPUs, and %s.gpus is %d", t, n, at, o.GPUs)
		if strings.HasPrefix(t, "p3") {
			s.note("%s: %s is an old type, of the last branch of drivers that knows it", path, t)
		}
	}
	if o.DesiredNodes == 0 && !s.EKS.Follow() {
		s.note("%s.desiredNodes: 0: the stack has no autoscaler: pods that ask for GPUs wait until you raise it", at)
	}
}

// isGPU matches the families with GPUs of NVIDIA: not g4ad, whose GPUs are of AMD.
var isGPU = regexp.MustCompile(`^(p[2-9][a-z]*(-[a-z0-9]+)?|g4dn|g[5-9][a-z]*|gr[6-9][a-z]*)\.`)

// gpus has the number of GPUs of the instance types known here.
var gpus = map[string]int{
	"g4dn.xlarge": 1, "g4dn.2xlarge": 1, "g4dn.4xlarge": 1, "g4dn.8xlarge": 1, "g4dn.16xlarge": 1,
	"g4dn.12xlarge": 4, "g4dn.metal": 8,
	"g5.xlarge": 1, "g5.2xlarge": 1, "g5.4xlarge": 1, "g5.8xlarge": 1, "g5.16xlarge": 1,
	"g5.12xlarge": 4, "g5.24xlarge": 4, "g5.48xlarge": 8,
	"g6.xlarge": 1, "g6.2xlarge": 1, "g6.4xlarge": 1, "g6.8xlarge": 1, "g6.16xlarge": 1,
	"g6.12xlarge": 4, "g6.24xlarge": 4, "g6.48xlarge": 8,
	"g6e.xlarge": 1, "g6e.2xlarge": 1, "g6e.4xlarge": 1, "g6e.8xlarge": 1, "g6e.16xlarge": 1,
	"g6e.12xlarge": 4, "g6e.24xlarge": 4, "g6e.48xlarge": 8,
	"p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8, "p3dn.24xlarge": 8, "p4d.24xlarge": 8,
	"p4de.24xlarge": 8, "p5.48xlarge": 8, "p5e.48xlarge": 8, "p5en.48xlarge": 8,
}
