package eks

import (
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/infra/trainingjob"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

const (
	account = "123456789012"
	caller  = "arn:aws:iam::" + account + ":role/deploy"
)

// own returns the settings of a stack with every option, in a VPC of its own.
func own() *settings.Settings {
	j := job.Default()
	j.Name, j.Namespace, j.Image = "test-mnist", "elasticdl", "registry.example/mnist:1"
	j.ModelDef, j.TrainingData = "mnist.mnist_functional_api.custom_model", "/data/mnist/train"
	return &settings.Settings{
		Project: graph.Project, Stack: graph.Stack, Cloud: settings.CloudEKS, ProtectStorage: true,
		Labels:   map[string]string{"team": "ml", "cost-center": "42"},
		Platform: settings.Platform{Namespace: "elasticdl"},
		Job:      j,
		Budget: &settings.Budget{Monthly: 500, Mail: []string{"ops@example.com", "ann@example.com"},
			Thresholds: []int{50, 90, 100}},
		Image: &settings.Image{Source: "model", Name: "mnist"},
		EKS: &settings.EKS{
			Region: "us-west-2", Version: "1.35", LogRetentionDays: 30,
			VPC: settings.VPC{CIDR: "10.0.0.0/16",
				Zones: []string{"us-west-2c", "us-west-2a", "us-west-2b"}},
			PublicAccess:       true,
			AuthorizedNetworks: []settings.Network{{CIDR: "198.51.100.7/32", Name: "office"}},
			SystemGroup: settings.EKSGroup{InstanceTypes: []string{"m6i.large"}, MinNodes: 2,
				MaxNodes: 2, DesiredNodes: 2},
			WorkerGroup: &settings.EKSGroup{InstanceTypes: []string{"m6i.2xlarge", "m5.2xlarge"},
				MaxNodes: 8, DesiredNodes: 3, Spot: true, Labels: map[string]string{"tier": "cheap"}},
			GPUGroup: &settings.EKSGroup{InstanceTypes: []string{"g4dn.xlarge"}, MaxNodes: 4,
				DesiredNodes: 2, DiskGB: 200, GPUs: 1},
			EFS:        &settings.EFS{UID: new(65532)},
			Bucket:     &settings.Bucket{Access: "write", KeepDeletedDays: 7},
			CodeBucket: true, JobPolicies: []string{"arn:aws:iam::123456789012:policy/training/data"},
		},
	}
}

// existing returns the settings of a stack with few options, in an existing VPC.
func existing() *settings.Settings {
	s := own()
	s.ProtectStorage, s.Image, s.Job, s.Budget = false, nil, nil, nil
	s.EKS.VPC = settings.VPC{ID: "vpc-1", PrivateSubnets: []string{"subnet-b", "subnet-a"},
		PublicSubnets: []string{"subnet-d"}}
	s.EKS.PublicAccess, s.EKS.AuthorizedNetworks = false, nil
	s.EKS.Admins = []string{caller, "arn:aws:iam::" + account + ":user/ann"}
	s.EKS.WorkerGroup, s.EKS.GPUGroup, s.EKS.CodeBucket, s.EKS.Bucket = nil, nil, false, nil
	s.EKS.SupportType = "EXTENDED"
	s.EKS.EFS = &settings.EFS{ThroughputMode: "bursting"}
	return s
}

// view has the resources that a program requested and the cluster that it returned.
type view struct {
	s       *settings.Settings
	all     []graph.Resource
	cluster *infra.Cluster
	// nodes of the workers of the job
	workers *infra.Nodes
	// resources that must exist first, as "type name"
	ready []string
	// outputs that are known, by name
	texts   map[string]string
	preview bool
	// resources that a law has named, and that do not exist
	missing []string
}

func record(s *settings.Settings, preview bool,
	change ...func(token string, args, result resource.PropertyMap)) (*view, error) {
	v := &view{s: s, preview: preview, texts: map[string]string{}}
	cloud := graph.Cloud{Preview: preview, Config: map[string]string{"aws:region": "us-west-2"},
		Call: func(token string, args resource.PropertyMap) resource.PropertyMap {
			result := call(token, args)
			for _, c := range change {
				c(token, args, result)
			}
			return result
		}}
	cloud.Outputs = func(r graph.Resource) resource.PropertyMap {
		if preview {
			return unknown(r)
		}
		return outputs(r)
	}
	var mu sync.Mutex
	all, err := graph.Record(cloud, func(ctx *pulumi.Context) (err error) {
		if v.cluster, err = NewCluster(ctx, "eks", OfStack(s)); err != nil {
			return err
		}
		c := v.cluster
		if s.Job != nil && c.Identify != nil {
			of := trainingjob.Account(s.Job)
			of.Namespace = s.Platform.Namespace
			is, err := c.Identify("job", of)
			if err != nil {
				return err
			}
			c.Ready = append(c.Ready, is.Ready...)
		}
		v.workers = c.WorkersOn(s.WorkerPool, s.AsksForGPUs())
		for _, r := range c.Ready {
			r.URN().ApplyT(func(urn pulumi.URN) int {
				mu.Lock()
				defer mu.Unlock()
				parts := strings.Split(string(urn), "::")
				v.ready = append(v.ready, parts[2][strings.LastIndex(parts[2], "$")+1:]+" "+parts[3])
				return 0
			})
		}
		known := map[string]pulumi.StringOutput{"kubeconfig": c.Kubeconfig, "registry": c.Registry,
			"name": c.Name, "id": c.ID.ToStringOutput()}
		if c.Volume != nil {
			for hole, in := range c.Volume.Holes {
				known[hole] = in.ToStringOutput()
			}
		}
		for name, o := range known {
			graph.Await(ctx, o, func(text any) {
				mu.Lock()
				defer mu.Unlock()
				v.texts[name] = text.(string)
			})
		}
		return nil
	})
	v.all = all
	return v, err
}

// call returns Amazon's simulated answers to look-ups.
func call(token string, args resource.PropertyMap) resource.PropertyMap {
	switch token {
	case "aws:index/getPartition:getPartition":
		return props("partition", "aws", "dnsSuffix", "amazonaws.com", "reverseDnsPrefix", "com.amazonaws", "id", "aws")
	case "aws:index/getCallerIdentity:getCallerIdentity":
		return props("accountId", account, "arn", "arn:aws:sts::"+account+
			":assumed-role/deploy/ci-run-7", "id", account, "userId", "AROA:ci-run-7")
	case "aws:index/getRegion:getRegion":
		return props("id", "us-west-2", "name", "us-west-2")
	case "aws:iam/getSessionContext:getSessionContext":
		return props("arn", args["arn"], "issuerArn", caller, "id", "x", "issuerId", "x", "issuerName",
			"deploy", "sessionName", "ci-run-7")
	case "aws:eks/getClusterVersions:getClusterVersions":
		return props("id", "x", "clusterVersions", []any{map[string]any{"clusterVersion": "1.35",
			"versionStatus": "STANDARD_SUPPORT", "defaultVersion": true,
			"endOfStandardSupportDate": "2027-03-27T00:00:00Z", "endOfExtendedSupportDate": ""}})
	case "aws:ec2/getVpc:getVpc":
		return props("id", args["id"], "enableDnsSupport", true, "enableDnsHostnames", true)
	case "aws:ec2/getSubnet:getSubnet":
		id := args["id"].StringValue()
		return props("id", id, "vpcId", "vpc-1", "availabilityZone", "us-west-2"+strings.TrimPrefix(id, "subnet-"))
	}
	return callOfParts(token, args)
}

// callOfParts returns the answers to look-ups of parts that exist already: a file system with mount
// targets in the zones a, b and c of vpc-1, any bucket, any repository, any role and any key.
func callOfParts(token string, args resource.PropertyMap) resource.PropertyMap {
	switch token {
	case "aws:efs/getFileSystem:getFileSystem":
		return props("id", args["fileSystemId"], "fileSystemId", args["fileSystemId"], "encrypted", true)
	case "aws:ecr/getRepository:getRepository":
		name := args["name"].StringValue()
		return props("name", name, "imageTagMutability", "MUTABLE",
			"repositoryUrl", account+".dkr.ecr.us-west-2.amazonaws.com/"+name)
	case "aws:iam/getRole:getRole":
		name := args["name"].StringValue()
		return props("name", name, "arn", "arn:aws:iam::"+account+":role/"+name, "assumeRolePolicy",
			`{"Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`)
	case "aws:iam/getPrincipalPolicySimulation:getPrincipalPolicySimulation":
		var all []any
		for _, action := range args["actionNames"].ArrayValue() {
			all = append(all, map[string]any{"actionName": action.StringValue(), "allowed": true})
		}
		return props("results", all)
	case "aws:kms/getKey:getKey":
		return props("arn", args["keyId"], "keyUsage", "ENCRYPT_DECRYPT", "customerMasterKeySpec", "SYMMETRIC_DEFAULT",
			"keyState", "Enabled")
	case "aws:s3/getBucket:getBucket":
		name := args["bucket"].StringValue()
		return props("bucket", name, "arn", "arn:aws:s3:::"+name, "region", "us-west-2")
	case "aws:ec2/getNetworkInterfaces:getNetworkInterfaces":
		filters := args["filters"].ArrayValue()
		if of := filters[1].ObjectValue()["values"].ArrayValue()[0].StringValue(); len(filters) != 2 ||
			filters[0].ObjectValue()["values"].ArrayValue()[0].StringValue() != "vpc-1" ||
			of != "EFS mount target for fs-1 (*" {
			return props("ids", []any{})
		}
		return props("ids", []any{"eni-a", "eni-b", "eni-c"})
	case "aws:ec2/getNetworkInterface:getNetworkInterface":
		id := args["id"].StringValue()
		return props("id", id, "availabilityZone", "us-west-2"+strings.TrimPrefix(id, "eni-"),
			"securityGroups", []any{map[string]any{"eni-a": "sg-1", "eni-b": "sg-2", "eni-c": "sg-1"}[id], "sg-other"})
	}
	return resource.PropertyMap{}
}

// outputs returns the values that Amazon would assign.
func outputs(r graph.Resource) resource.PropertyMap {
	switch r.Type {
	case "aws:eks/cluster:Cluster":
		vpc := r.Inputs["vpcConfig"].ObjectValue().Copy()
		vpc["clusterSecurityGroupId"] = resource.NewProperty("sg-cluster")
		return props("arn", "arn:aws:eks:us-west-2:"+account+":cluster/x", "endpoint",
			"https://ABCDEF.gr7.us-west-2.eks.amazonaws.com",
			"certificateAuthority", props("data", "Q0E="), "vpcConfig", vpc)
	case "aws:iam/role:Role":
		return props("arn", "arn:aws:iam::"+account+":role/"+r.Inputs["name"].StringValue())
	case "aws:ec2/launchTemplate:LaunchTemplate":
		return props("latestVersion", 1.0)
	case "aws:ecr/repository:Repository":
		return props("repositoryUrl", account+".dkr.ecr.us-west-2.amazonaws.com/"+r.Inputs["name"].StringValue())
	case "aws:efs/fileSystem:FileSystem":
		if r.Inputs["kmsKeyId"].IsNull() {
			return props("kmsKeyId", "arn:aws:kms:us-west-2:"+account+":key/of-amazon")
		}
	case "aws:sqs/queue:Queue":
		return props("arn", "arn:aws:sqs:us-west-2:"+account+":"+r.Inputs["name"].StringValue())
	case "aws:cloudwatch/eventRule:EventRule":
		return props("arn", "arn:aws:events:us-west-2:"+account+":rule/"+r.Inputs["name"].StringValue())
	case "aws:s3/bucketV2:BucketV2":
		return props("arn", "arn:aws:s3:::"+r.Inputs["bucket"].StringValue())
	}
	return nil
}

// unknown returns outputs that a preview does not know although their names are among the inputs: a
// part of each is unknown.
func unknown(r graph.Resource) resource.PropertyMap {
	if r.Type != "aws:eks/cluster:Cluster" {
		return nil
	}
	return props("vpcConfig", resource.MakeComputed(resource.NewProperty(resource.PropertyMap{})))
}

func props(pairs ...any) resource.PropertyMap {
	m := resource.PropertyMap{}
	for i := 0; i < len(pairs); i += 2 {
		v, ok := pairs[i+1].(resource.PropertyValue)
		if !ok {
			v = resource.NewPropertyValue(pairs[i+1])
		}
		m[resource.PropertyKey(pairs[i].(string))] = v
	}
	return m
}

func TestGolden(t *testing.T) {
	for name, s := range map[string]func() *settings.Settings{"own": own, "existing": existing, "parts": withParts,
		"key":       func() *settings.Settings { return keyed(settings.NodesGroups) },
		"auto":      func() *settings.Settings { return following(settings.NodesAuto) },
		"karpenter": func() *settings.Settings { return following(settings.NodesKarpenter) }} {
		for phase, preview := range map[string]bool{"preview": true, "up": false} {
			t.Run(name+"-"+phase, func(t *testing.T) {
				v, err := record(s(), preview)
				if err != nil {
					t.Fatal(err)
				}
				graph.Golden(t, name+"-"+phase, v.all)
			})
		}
	}
}

func TestCluster(t *testing.T) {
	v, err := record(own(), false)
	if err != nil {
		t.Fatal(err)
	}
	c := v.cluster
	for name, want := range map[string]string{
		"name": "elasticdl-test",
		// another cluster of the same name has another endpoint
		"id":       "https://ABCDEF.gr7.us-west-2.eks.amazonaws.com",
		"registry": account + ".dkr.ecr.us-west-2.amazonaws.com/elasticdl-test",
	} {
		if v.texts[name] != want {
			t.Errorf("%s is %q, want %q", name, v.texts[name], want)
		}
	}
	if c.Login.User != "AWS" || c.Login.Command != "aws ecr get-login-password --region us-west-2" {
		t.Errorf("login is %+v", c.Login)
	}
	if !c.GPU.DevicePlugin ||
		!maps.Equal(c.GPU.NodeSelector, map[string]string{"nvidia.com/gpu.present": "true"}) || !c.NetPolicies {
		t.Errorf("GPU is %+v, policies are %v", c.GPU, c.NetPolicies)
	}
	if v, err = record(existing(), false); err != nil {
		t.Fatal(err)
	}
	if c := v.cluster; c.GPU.NodeSelector != nil || c.GPU.DevicePlugin || v.workers != nil {
		t.Errorf("without such groups: %+v, %+v", c.GPU, v.workers)
	}
}

func TestKubeconfig(t *testing.T) {
	given := own()
	given.Platform.Namespace = "2026" // a name that YAML would read as a number
	given.EKS.Profile = "team.a"
	v, err := record(given, false)
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		CurrentContext string `json:"current-context"`
		Clusters       []struct{ Cluster map[string]string }
		Users          []struct {
			User map[string]struct {
				APIVersion, Command string
				Args                []string
				Env                 []struct{ Name, Value string }
			}
		}
		Contexts []struct {
			Name    string
			Context struct{ Namespace string }
		}
	}
	// parsed as kubectl does, which requires a text here
	raw, err := yaml.YAMLToJSON([]byte(v.texts["kubeconfig"]))
	if err == nil {
		err = json.Unmarshal(raw, &config)
	}
	if err != nil {
		t.Fatalf("%v in\n%s", err, v.texts["kubeconfig"])
	}
	server := map[string]string{"server": "https://ABCDEF.gr7.us-west-2.eks.amazonaws.com",
		"certificate-authority-data": "Q0E="}
	if !maps.Equal(config.Clusters[0].Cluster, server) {
		t.Errorf("cluster is %v", config.Clusters[0].Cluster)
	}
	user := config.Users[0].User
	if exec := user["exec"]; len(user) != 1 || exec.Command != "aws" ||
		exec.APIVersion != "client.authentication.k8s.io/v1beta1" ||
		strings.Join(exec.Args, " ") != "--region us-west-2 eks get-token --cluster-name elasticdl-test --output json" {
		t.Errorf("user is %+v", user)
	}
	// kubectl and the registry use the identity that creates the stack.
	if env := user["exec"].Env; len(env) != 1 || env[0].Name != "AWS_PROFILE" || env[0].Value != "team.a" {
		t.Errorf("the environment of aws is %v", env)
	}
	if c := v.cluster.Login.Command; c != "aws ecr get-login-password --region us-west-2 --profile 'team.a'" {
		t.Errorf("login is %s", c)
	}
	if config.CurrentContext != v.cluster.Context || config.Contexts[0].Name != v.cluster.Context ||
		config.Contexts[0].Context.Namespace != "2026" {
		t.Errorf("context is %q of %v, expected %q", config.CurrentContext, config.Contexts, v.cluster.Context)
	}
}

// The problems of an existing VPC are all reported at once, before any resource is requested.
func TestExistingVPC(t *testing.T) {
	s := existing()
	s.EKS.VPC.PrivateSubnets = append(s.EKS.VPC.PrivateSubnets, "subnet-c")
	v, err := record(s, true, func(token string, _, result resource.PropertyMap) {
		switch token {
		case "aws:ec2/getVpc:getVpc":
			result["enableDnsHostnames"] = resource.NewProperty(false)
		case "aws:ec2/getSubnet:getSubnet":
			switch result["id"].StringValue() {
			case "subnet-a":
				result["availabilityZone"] = resource.NewProperty("us-west-2b")
			case "subnet-c", "subnet-d":
				result["vpcId"] = resource.NewProperty("vpc-2")
			}
		}
	})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"eks.vpc.id: vpc-1: it does not resolve names: its enableDnsSupport and enableDnsHostnames must be true",
		"eks.vpc.privateSubnets[1]: subnet-a: it is in zone us-west-2b, as subnet-b is: one per zone is expected",
		"eks.vpc.privateSubnets[2]: subnet-c: it is in vpc-2, not in vpc-1",
		"eks.vpc.publicSubnets[0]: subnet-d: it is in vpc-2, not in vpc-1",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%v", want, err)
		}
	}
	if len(v.all) > 0 {
		t.Errorf("%d resources were asked for before", len(v.all))
	}
}

// A stack keeps its VPC: a change that would replace the whole stack is refused.
func TestVPCStays(t *testing.T) {
	for name, c := range map[string]struct {
		s    *settings.Settings
		kind string
		is   resource.PropertyMap
		want string
	}{
		"range": {own(), vpcType, props("cidrBlock", "10.1.0.0/16"),
			"eks.vpc.cidr: 10.0.0.0/16: the stack's VPC has 10.1.0.0/16, which cannot change: make another stack"},
		"VPC": {existing(), clusterType, props("vpcConfig", props("vpcId", "vpc-0")),
			"eks.vpc.id: vpc-1: the stack's cluster is in vpc-0, and cannot move: make another stack"},
	} {
		t.Run(name, func(t *testing.T) {
			cloud := graph.Cloud{Preview: true, Call: call, Outputs: func(r graph.Resource) resource.PropertyMap {
				if r.Type == c.kind {
					return c.is
				}
				return nil
			}}
			_, err := graph.Record(cloud, func(ctx *pulumi.Context) error {
				_, err := NewCluster(ctx, "eks", OfStack(c.s))
				return err
			})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// Adding a zone, or a NAT for each zone, changes no existing subnet.
func TestSubnetsStay(t *testing.T) {
	ranges := func(s *settings.Settings) map[string]string {
		v, err := record(s, true)
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]string{}
		for _, r := range v.of("aws:ec2/subnet:Subnet") {
			m[r.Name] = text(r, "availabilityZone") + " " + text(r, "cidrBlock")
		}
		return m
	}
	more, fewer := own(), own()
	more.EKS.VPC.NATPerZone = true
	fewer.EKS.VPC.Zones = fewer.EKS.VPC.Zones[:2]
	was := ranges(fewer)
	if len(was) != 4 {
		t.Fatalf("%v", was)
	}
	now := ranges(more)
	for name, r := range was {
		if now[name] != r {
			t.Errorf("%s is %s, was %s", name, now[name], r)
		}
	}
}

func TestRanges(t *testing.T) {
	for _, cidr := range []string{"10.0.0.0/16", "172.31.128.0/22", "10.9.0.0/18"} {
		vpc := netip.MustParsePrefix(cidr)
		var all []netip.Prefix
		for i := range 6 { // no region has more zones
			all = append(all, netip.MustParsePrefix(privateRange(vpc, i)), netip.MustParsePrefix(publicRange(vpc, i)))
		}
		for i, p := range all {
			if p.Bits() > 28 || p != p.Masked() || !vpc.Contains(p.Addr()) || slices.ContainsFunc(all[:i], p.Overlaps) {
				t.Errorf("%s of %s is no subnet next to %v", p, cidr, all[:i])
			}
		}
	}
	if got := privateRange(netip.MustParsePrefix("10.0.0.0/16"), 2); got != "10.0.64.0/19" {
		t.Errorf("the third private range is %s", got)
	}
	if got := publicRange(netip.MustParsePrefix("10.0.0.0/16"), 1); got != "10.0.228.0/22" {
		t.Errorf("the second public range is %s", got)
	}
}

// aliases maps resources to their former names.
type aliases map[string]string

func (a aliases) NewResource(r pulumi.MockResourceArgs) (string, resource.PropertyMap, error) {
	if r.TypeToken == entryType || r.TypeToken == mayType {
		for _, was := range r.RegisterRPC.GetAliases() {
			a[r.TypeToken+" "+r.Name] = was.GetSpec().GetName()
		}
	}
	return r.Name, r.Inputs, nil
}

func (a aliases) Call(c pulumi.MockCallArgs) (resource.PropertyMap, error) {
	return call(c.Token, c.Args), nil
}

// A creator whom a list of administrators names later keeps the one entry that EKS allows for an
// identity.
func TestAdministratorsLater(t *testing.T) {
	got := aliases{}
	err := pulumi.RunErr(func(ctx *pulumi.Context) error {
		_, err := NewCluster(ctx, "eks", OfStack(existing()))
		return err
	}, pulumi.WithMocks(graph.Project, graph.Stack, got))
	if err != nil {
		t.Fatal(err)
	}
	deploy := "admin-" + account + ":role/deploy"
	if want := (aliases{entryType + " " + deploy: "creator", mayType + " " +
		deploy: "creator"}); !maps.Equal(got, want) {
		t.Errorf("once were %v, want %v", got, want)
	}
}
