package eks

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// law is a property of every stack, and a way to break it, which the law must detect.
type law struct {
	name  string
	check func(v *view) []string
	spoil func(v *view)
}

func TestLaws(t *testing.T) {
	laws := slices.Concat(laws, moreLaws, budgetLaws, wholeLaws)
	for name, s := range map[string]func() *settings.Settings{"own": own, "existing": existing,
		"auto":      func() *settings.Settings { return following(settings.NodesAuto) },
		"karpenter": func() *settings.Settings { return following(settings.NodesKarpenter) }} {
		for _, preview := range []bool{true, false} {
			for _, l := range laws {
				t.Run(fmt.Sprintf("%s-preview=%v/%s", name, preview, l.name), func(t *testing.T) {
					v, err := record(s(), preview)
					if err != nil {
						t.Fatal(err)
					}
					for _, wrong := range append(l.check(v), v.missing...) {
						t.Error(wrong)
					}
				})
			}
		}
	}
	for _, l := range laws {
		t.Run("spoilt/"+l.name, func(t *testing.T) {
			v, err := record(own(), false)
			if err != nil {
				t.Fatal(err)
			}
			if l.spoil(v); len(v.missing) > 0 {
				t.Error(v.missing)
			}
			if len(l.check(v)) == 0 {
				t.Error("it is not noticed")
			}
		})
	}
}

const (
	clusterType = "aws:eks/cluster:Cluster"
	groupType   = "aws:eks/nodeGroup:NodeGroup"
	addonType   = "aws:eks/addon:Addon"
	entryType   = "aws:eks/accessEntry:AccessEntry"
	mayType     = "aws:eks/accessPolicyAssociation:AccessPolicyAssociation"
	isType      = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
	attachType  = "aws:iam/rolePolicyAttachment:RolePolicyAttachment"
	roleType    = "aws:iam/role:Role"
	mountType   = "aws:efs/mountTarget:MountTarget"
	fileType    = "aws:efs/fileSystem:FileSystem"
	pointType   = "aws:efs/accessPoint:AccessPoint"
	ruleType    = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
	sgType      = "aws:ec2/securityGroup:SecurityGroup"
	vpcType     = "aws:ec2/vpc:Vpc"
	subnetType  = "aws:ec2/subnet:Subnet"
	launchType  = "aws:ec2/launchTemplate:LaunchTemplate"
	logType     = "aws:cloudwatch/logGroup:LogGroup"
	repoType    = "aws:ecr/repository:Repository"
	bucketType  = "aws:s3/bucketV2:BucketV2"
	expiryType  = "aws:s3/bucketLifecycleConfigurationV2:BucketLifecycleConfigurationV2"
	inlineType  = "aws:iam/rolePolicy:RolePolicy"
)

var laws = []law{
	{"E01 cluster and nodes wait for their policies", func(v *view) (wrong []string) {
		for _, a := range v.of(attachType) {
			who := v.nodes()
			switch {
			case strings.HasPrefix(a.Name, "job-"):
				who = v.named(isType, "job")
			case strings.HasPrefix(a.Name, "cluster-"):
				who = v.of(clusterType)
			case strings.HasPrefix(a.Name, "efs-driver-"):
				who = v.named(addonType, "aws-efs-csi-driver")
			}
			wrong = append(wrong, v.wait(who, a)...)
		}
		policies := 5
		if v.auto() {
			policies = 8
		}
		if v.s.Job != nil {
			policies += len(v.s.EKS.JobPolicies)
		}
		return append(wrong, count(v.of(attachType), policies)...)
	}, func(v *view) { drop(&v.named(groupType, "gpu")[0].Options.DependsOn, attachType) }},

	{"E02 who creates the cluster is no hidden administrator", func(v *view) (wrong []string) {
		c := v.named(clusterType, "cluster")[0]
		wrong = append(wrong, is(c, "accessConfig.bootstrapClusterCreatorAdminPermissions", "false")...)
		wrong = append(wrong, is(c, "accessConfig.authenticationMode", "API")...)
		for _, path := range []string{"accessConfig.bootstrapClusterCreatorAdminPermissions", "vpcConfig.subnetIds"} {
			if !slices.Contains(c.Options.IgnoreChanges, path) {
				wrong = append(wrong, "a change of "+path+" replaces the cluster, or is refused")
			}
		}
		for _, e := range v.of(entryType) {
			wrong = append(wrong, is(e, "type", "STANDARD")...) // EKS creates the entries of nodes
		}
		return wrong
	}, func(v *view) {
		unset(v.named(clusterType, "cluster")[0], "accessConfig.bootstrapClusterCreatorAdminPermissions")
	}},

	{"E03 administrators are those of the settings, and Kubernetes waits for them and for nodes",
		func(v *view) (wrong []string) {
			var got []string
			for _, e := range v.of(entryType) {
				got = append(got, text(e, "principalArn"))
			}
			want := v.s.EKS.Admins
			if len(want) == 0 {
				want = []string{caller}
				if !slices.Contains(v.named(entryType, "creator")[0].Options.IgnoreChanges, "principalArn") {
					wrong = append(wrong, "the administrator is the next user who runs the stack")
				}
			}
			if !slices.Equal(slices.Sorted(slices.Values(got)), slices.Sorted(slices.Values(want))) {
				wrong = append(wrong, fmt.Sprintf("administrators are %v, not %v", got, want))
			}
			for _, kind := range []string{mayType, groupType, addonType} {
				for _, r := range v.of(kind) {
					if !slices.Contains(v.ready, kind+" "+r.Name) {
						wrong = append(wrong, "nothing waits for "+kind+" "+r.Name)
					}
				}
			}
			return append(wrong, count(v.of(mayType), len(want))...)
		}, func(v *view) { drop(&v.ready, mayType) }},

	{"E04 version and support are reported", func(v *view) (wrong []string) {
		c := v.named(clusterType, "cluster")[0]
		support := v.s.EKS.SupportType
		if support == "" {
			support = "STANDARD"
		}
		return append(is(c, "version", v.s.EKS.Version), is(c, "upgradePolicy.supportType", support)...)
	}, func(v *view) { unset(v.named(clusterType, "cluster")[0], "upgradePolicy") }},

	{"E05 the API is private, and public for whom the settings name", func(v *view) (wrong []string) {
		c := v.named(clusterType, "cluster")[0]
		wrong = append(is(c, "vpcConfig.endpointPrivateAccess", "true"),
			is(c, "vpcConfig.endpointPublicAccess", fmt.Sprint(v.s.EKS.PublicAccess))...)
		want := "<none>"
		if v.s.EKS.PublicAccess {
			want = "[{198.51.100.7/32}]"
		}
		return append(wrong, is(c, "vpcConfig.publicAccessCidrs", want)...)
	}, func(v *view) { set(v.named(clusterType, "cluster")[0], "vpcConfig.publicAccessCidrs[0]", "0.0.0.0/0") }},

	{"E06 addons come before or after nodes, as they must", func(v *view) (wrong []string) {
		if v.auto() { // its nodes have what the others are for
			return append(count(v.of(addonType), 1), is(v.named(addonType, "aws-efs-csi-driver")[0], "preserve",
				"true")...)
		}
		for _, name := range []string{"vpc-cni", "kube-proxy", "eks-pod-identity-agent"} {
			wrong = append(wrong, v.wait(v.of(groupType), v.named(addonType, name)...)...)
		}
		system := v.named(groupType, "system")
		late := []string{"coredns", "aws-efs-csi-driver"}
		if v.s.EKS.GPUGroup != nil {
			// without it a broken GPU is not detected
			late = append(late, "eks-node-monitoring-agent")
		}
		wrong = append(wrong, count(v.of(addonType), 3+len(late))...)
		// the addon is deleted before the nodes that it serves
		wrong = append(wrong, is(v.named(addonType, "aws-efs-csi-driver")[0], "preserve", "true")...)
		for _, name := range late {
			wrong = append(wrong, v.wait(v.named(addonType, name), system...)...)
		}
		wrong = append(wrong, is(v.named(addonType, "vpc-cni")[0], "configurationValues",
			`{"enableNetworkPolicy":"true"}`)...)
		return append(wrong, is(system[0], "taints", "<none>")...)
	}, func(v *view) { drop(&v.named(addonType, "coredns")[0].Options.DependsOn, groupType) }},

	{"E07 addons are ours alone, and keep their version", func(v *view) (wrong []string) {
		wrong = is(v.named(clusterType, "cluster")[0], "bootstrapSelfManagedAddons", "false")
		for _, a := range v.of(addonType) {
			wrong = append(wrong, is(a, "resolveConflictsOnCreate", "OVERWRITE")...)
			wrong = append(wrong, is(a, "resolveConflicts", "<none>")...)
			if !slices.Contains(a.Options.IgnoreChanges, "addonVersion") {
				wrong = append(wrong, a.Name+" changes with what is newest")
			}
		}
		return wrong
	}, func(v *view) { v.named(addonType, "vpc-cni")[0].Options.IgnoreChanges = nil }},

	{"E08 images of nodes fit", func(v *view) (wrong []string) {
		for _, g := range v.of(groupType) {
			image := "AL2023_x86_64_STANDARD"
			if g.Name == "gpu" {
				image = "AL2023_x86_64_NVIDIA"
				wrong = append(wrong, is(g, `labels["nvidia.com/gpu.present"]`, "true")...)
			}
			wrong = append(wrong, is(g, "amiType", image)...)
		}
		return wrong
	}, func(v *view) { set(v.named(groupType, "gpu")[0], "amiType", "AL2_x86_64_GPU") }},

	{"E09 disks are large and encrypted, and templates leave the rest to EKS", func(v *view) (wrong []string) {
		for _, g := range v.of(groupType) {
			wrong = append(wrong, is(g, "diskSize", "<none>")...)
			l := v.named(launchType, g.Name)[0]
			if size, _ := at(l, "blockDeviceMappings[0].ebs.volumeSize"); !size.IsNumber() || size.NumberValue() < 100 {
				wrong = append(wrong, fmt.Sprintf("%s has a disk of %v", g.Name, size))
			}
			for path, want := range map[string]string{
				"blockDeviceMappings[0].deviceName":    "/dev/xvda",
				"blockDeviceMappings[0].ebs.encrypted": "true", "blockDeviceMappings[0].ebs.volumeType": "gp3",
				"metadataOptions.httpTokens": "required", "metadataOptions.httpPutResponseHopLimit": "1",
				"vpcSecurityGroupIds": "<none>", "networkInterfaces": "<none>",
				"instanceType": "<none>", "imageId": "<none>", "iamInstanceProfile": "<none>",
			} {
				wrong = append(wrong, is(l, path, want)...)
			}
		}
		return wrong
	}, func(v *view) { set(v.named(launchType, "gpu")[0], "blockDeviceMappings[0].ebs.volumeSize", 20.0) }},

	{"E10 taints are EKS's words, and pods carry the tolerations", func(v *view) (wrong []string) {
		for _, g := range v.of(groupType) {
			switch g.Name {
			case "gpu":
				wrong = append(wrong, is(g, "taints", "[{map[effect:{NO_SCHEDULE} "+
					"key:{nvidia.com/gpu} value:{present}]}]")...)
				j := own().Job
				j.Worker.Limit = job.Resources{"nvidia.com/gpu": "1"}
				p, err := manifest.Pod(j, manifest.PodSpec{ID: pod.ID{Role: pod.Worker}, Incarnation: 1},
					meta.OwnerReference{})
				if err != nil {
					return append(wrong, err.Error())
				}
				if !slices.ContainsFunc(p.Spec.Tolerations, isGPUToleration) {
					wrong = append(wrong, fmt.Sprintf("a worker with GPUs tolerates %v", p.Spec.Tolerations))
				}
			case "worker":
				wrong = append(wrong, is(g, "taints", "[{map[effect:{NO_SCHEDULE} "+
					"key:{elasticdl.org/spot} value:{true}]}]")...)
				says := v.workers
				if says == nil || len(says.Tolerations) != 1 ||
					says.Tolerations[0] != (job.Toleration{Key: "elasticdl.org/spot", Operator: "Equal",
						Value: "true", Effect: "NoSchedule"}) {
					return append(wrong, fmt.Sprintf("workers are reported %+v", says))
				}
				for k, want := range says.NodeSelector {
					wrong = append(wrong, is(g, `labels["`+k+`"]`, want)...)
				}
			}
		}
		return wrong
	}, func(v *view) { set(v.named(groupType, "gpu")[0], "taints[0].effect", "NoSchedule") }},

	{"E11 the number of nodes is not set back, and no edit of labels replaces nodes", func(v *view) (wrong []string) {
		for _, g := range v.of(groupType) {
			if !slices.Contains(g.Options.IgnoreChanges, "scalingConfig.desiredSize") {
				wrong = append(wrong, g.Name+" is scaled back by the next up")
			}
			wrong = append(wrong, is(g, "version", text(v.named(clusterType, "cluster")[0], "version"))...)
		}
		for _, l := range v.of(launchType) {
			if slices.Contains(l.Options.IgnoreChanges, "tagSpecifications") == v.s.EKS.LabelNodes {
				wrong = append(wrong, "a changed label replaces the nodes of "+l.Name)
			}
		}
		return wrong
	}, func(v *view) { v.named(launchType, "worker")[0].Options.IgnoreChanges = nil }},

	{"E12 what is replaced does not meet its own name", func(v *view) (wrong []string) {
		for _, g := range v.of(groupType) {
			wrong = append(wrong, is(g, "nodeGroupName", "<none>")...)
		}
		for kind, name := range map[string]string{clusterType: "name", logType: "name",
			repoType: "name", roleType: "name", launchType: "name", sgType: "name", bucketType: "bucket"} {
			for _, r := range v.of(kind) {
				if given := text(r, name) != "<none>"; given != r.Options.DeleteBeforeReplace {
					wrong = append(wrong, fmt.Sprintf("%s %s: of a name of its own: %v, deleted "+
						"before it is replaced: %v", kind, r.Name, given, r.Options.DeleteBeforeReplace))
				}
			}
		}
		return wrong
	}, func(v *view) { set(v.named(groupType, "worker")[0], "nodeGroupName", "worker") }},

	{"E13 the VPC resolves names, and load balancers find subnets", func(v *view) (wrong []string) {
		if v.s.EKS.VPC.ID != "" {
			return append(count(v.of(vpcType), 0), count(v.of(subnetType), 0)...)
		}
		n := v.named(vpcType, "network")[0]
		wrong = append(is(n, "enableDnsHostnames", "true"), is(n, "enableDnsSupport", "true")...)
		for _, zone := range v.s.EKS.VPC.Zones {
			for name, tag := range map[string]string{"public-": "kubernetes.io/role/elb",
				"private-": "kubernetes.io/role/internal-elb"} {
				s := v.named(subnetType, name+zone)[0]
				wrong = append(wrong, is(s, `tags["`+tag+`"]`, "1")...)
				wrong = append(wrong, is(s, "availabilityZone", zone)...)
				wrong = append(wrong, is(s, "mapPublicIpOnLaunch", fmt.Sprint(name == "public-"))...)
			}
		}
		for _, way := range append(v.of("aws:ec2/route:Route"),
			v.of("aws:ec2/routeTableAssociation:RouteTableAssociation")...) {
			wrong = append(wrong, v.wait(v.nodes(), way)...)
		}
		for _, nat := range v.of("aws:ec2/natGateway:NatGateway") {
			wrong = append(wrong, v.wait([]*graph.Resource{nat},
				v.named("aws:ec2/internetGateway:InternetGateway", "internet")...)...)
		}
		for _, table := range v.of("aws:ec2/routeTable:RouteTable") {
			wrong = append(wrong, is(table, "routes", "<none>")...)
		}
		if !slices.Contains(n.Options.IgnoreChanges, "cidrBlock") {
			wrong = append(wrong, "another range tears down what is in the VPC")
		}
		return append(wrong, count(v.of("aws:ec2/vpcEndpoint:VpcEndpoint"), 1)...)
	}, func(v *view) {
		unset(v.named(subnetType, "private-us-west-2a")[0], `tags["kubernetes.io/role/internal-elb"]`)
	}},

	{"E14 files can be mounted in every zone before there are nodes, and until they are deleted",
		func(v *view) (wrong []string) {
			mounts := v.of(mountType)
			zones := max(len(v.s.EKS.VPC.Zones), len(v.s.EKS.VPC.PrivateSubnets))
			wrong = append(count(mounts, zones), v.waitForGroups(mounts...)...)
			subnets := map[string]bool{}
			for _, m := range mounts {
				subnets[text(m, "subnetId")] = true
				if !slices.Contains(v.ready, mountType+" "+m.Name) {
					wrong = append(wrong, "nothing waits for "+m.Name)
				}
				if !m.Options.DeleteBeforeReplace {
					wrong = append(wrong, m.Name+" meets its successor, and there is one in a zone")
				}
			}
			if len(subnets) != zones {
				wrong = append(wrong, fmt.Sprintf("they are in %v", slices.Sorted(maps.Keys(subnets))))
			}
			return wrong
		}, func(v *view) { drop(&v.named(groupType, "system")[0].Options.DependsOn, mountType) }},

	{"E15 NFS is open to the cluster's nodes only", func(v *view) (wrong []string) {
		r := v.named(ruleType, "efs")[0]
		source := "sg-cluster"
		if v.preview {
			source = "(unknown)"
		}
		for path, want := range map[string]string{"ipProtocol": "tcp", "fromPort": "2049",
			"toPort": "2049", "cidrIpv4": "<none>", "referencedSecurityGroupId": source} {
			wrong = append(wrong, is(r, path, want)...)
		}
		for _, g := range v.of(sgType) {
			wrong = append(wrong, is(g, "ingress", "<none>")...)
		}
		return append(wrong, v.waitForGroups(r)...)
	}, func(v *view) { set(v.named(ruleType, "efs")[0], "cidrIpv4", "0.0.0.0/0") }},

	{"E16 files are encrypted, protected, and their throughput is meant", func(v *view) (wrong []string) {
		f := v.named(fileType, "data")[0]
		mode := v.s.EKS.EFS.ThroughputMode
		if mode == "" {
			mode = "elastic"
		}
		wrong = append(is(f, "encrypted", "true"), is(f, "throughputMode", mode)...)
		stay := append(v.of(repoType), f)
		for i := range v.all {
			// without its public access block a bucket may be made public
			if strings.HasPrefix(v.all[i].Type, "aws:s3/") {
				stay = append(stay, &v.all[i])
			}
		}
		for _, r := range stay {
			if r.Options.Protect != v.s.ProtectStorage {
				wrong = append(wrong, fmt.Sprintf("%s: protect is %v", r.Type, r.Options.Protect))
			}
		}
		for _, kind := range []string{vpcType, clusterType, subnetType} {
			for _, r := range v.of(kind) {
				// otherwise replacing one of those would replace the file system
				wrong = append(wrong, v.dontWait(f, r)...)
			}
		}
		if v.s.EKS.EFS.UID == nil {
			return append(wrong, count(v.of(pointType), 0)...)
		}
		p := v.named(pointType, "data")[0]
		for path, want := range map[string]string{"posixUser.uid": "65532", "posixUser.gid": "65532",
			"rootDirectory.path": "/data", "rootDirectory.creationInfo.ownerUid": "65532",
			"rootDirectory.creationInfo.permissions": "0755"} {
			wrong = append(wrong, is(p, path, want)...)
		}
		return wrong
	}, func(v *view) {
		v.named("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "code")[0].Options.Protect = false
	}},

	{"E17 the volume is the file system, or its access point", func(v *view) (wrong []string) {
		vol := v.cluster.Volume
		handle := vol.Source.CSI.VolumeHandle
		want := "data-id"
		if v.s.EKS.EFS.UID != nil {
			want = "data-id::data-id"
		}
		for hole := range vol.Holes {
			handle = strings.ReplaceAll(handle, hole, v.texts[hole])
		}
		if handle != want || vol.Claim != "efs-claim" || vol.Source.CSI.Driver != "efs.csi.aws.com" {
			wrong = append(wrong, fmt.Sprintf("%s of %s for %s", handle, vol.Source.CSI.Driver, vol.Claim))
		}
		return wrong
	}, func(v *view) { v.cluster.Volume.Source.CSI.VolumeHandle = "{file-system}:{access-point}" }},

	{"E18 pods get their roles by Pod Identity", func(v *view) (wrong []string) {
		for _, r := range v.of(roleType) {
			trust := text(r, "assumeRolePolicy")
			if strings.Contains(trust, "pods.eks") &&
				!strings.Contains(trust, `"Action":["sts:AssumeRole","sts:TagSession"]`) {
				wrong = append(wrong, r.Name+" trusts "+trust)
			}
		}
		driver := v.named(addonType, "aws-efs-csi-driver")[0]
		wrong = append(wrong, is(driver, "podIdentityAssociations[0].serviceAccount", "efs-csi-controller-sa")...)
		wrong = append(wrong, is(driver, "serviceAccountRoleArn", "<none>")...)
		wrong = append(wrong, count(v.of("aws:iam/openIdConnectProvider:OpenIdConnectProvider"), 0)...)
		if e := v.s.EKS; v.s.Job == nil || !e.CodeBucket && e.Bucket == nil && len(e.JobPolicies) == 0 {
			return append(wrong, count(v.of(isType), 0)...)
		}
		var got []string
		for _, r := range v.of(isType) {
			got = append(got, text(r, "namespace")+"/"+text(r, "serviceAccount"))
			if !slices.Contains(v.ready, isType+" "+r.Name) {
				wrong = append(wrong, "no pod waits for "+r.Name)
			}
		}
		want, err := jobAccounts(v.s.Job)
		if v.s.EKS.Nodes == settings.NodesKarpenter {
			want["kube-system/karpenter"] = true
		}
		if err != nil || !maps.Equal(toSet(got), want) {
			wrong = append(wrong, fmt.Sprintf("pods run as %v, associated are %v: %v", want, got, err))
		}
		return wrong
	}, func(v *view) { set(v.named(isType, "job")[0], "serviceAccount", "elasticdl") }},

	{"E19 the job may read the code, and nodes may not", func(v *view) (wrong []string) {
		for _, a := range v.of(attachType) {
			if strings.Contains(text(a, "policyArn"), "S3") && !strings.HasPrefix(a.Name, "job-") {
				wrong = append(wrong, text(a, "policyArn")+" is a node's")
			}
		}
		if v.s.Job == nil || !v.s.EKS.CodeBucket {
			return append(wrong, count(v.of(inlineType), 0)...)
		}
		policies := v.named(inlineType, "job")
		if v.preview {
			return wrong
		}
		wrong = append(wrong, is(policies[0], "role", "elasticdl-test-job")...)
		return append(wrong, is(policies[0], "policy", `{"Version":"2012-10-17","Statement":[`+
			`{"Effect":"Allow","Action":["s3:GetObject"],"Resource":["arn:aws:s3:::elasticdl-test-code-123456789012/*"]},`+
			`{"Effect":"Allow","Action":["s3:ListBucket"],"Resource":["arn:aws:s3:::elasticdl-test-code-123456789012"]}]}`)...)
	}, func(v *view) {
		set(v.named(attachType, "node-AmazonEKS_CNI_Policy")[0], "policyArn",
			"arn:aws:iam::aws:policy/AmazonS3ReadOnlyAccess")
	}},

	{"E20 logs end, and are there before the cluster", func(v *view) (wrong []string) {
		c, l := v.named(clusterType, "cluster"), v.named(logType, "cluster")
		wrong = append(is(l[0], "retentionInDays", fmt.Sprint(v.s.EKS.LogRetentionDays)), v.wait(c, l...)...)
		wrong = append(wrong, is(c[0], "enabledClusterLogTypes", "[{api} {audit} {authenticator}]")...)
		return append(wrong, is(l[0], "name", "/aws/eks/"+text(c[0], "name")+"/cluster")...)
	}, func(v *view) { set(v.named(logType, "cluster")[0], "name", "/aws/eks/other/cluster") }},

	{"E21 what protects storage says from the first up whether it may be deleted when it is full",
		func(v *view) (wrong []string) {
			may := fmt.Sprint(!v.s.ProtectStorage)
			for _, r := range v.of(repoType) {
				wrong = append(wrong, is(r, "forceDelete", may)...)
				wrong = append(wrong, is(r, "imageScanningConfiguration.scanOnPush", "true")...)
			}
			for _, r := range v.of(bucketType) {
				wrong = append(wrong, is(r, "forceDestroy", may)...)
			}
			for kind, path := range map[string]string{
				"aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock": "restrictPublicBuckets",
				"aws:s3/bucketVersioningV2:BucketVersioningV2":           "versioningConfiguration.status",
				"aws:s3/bucketServerSideEncryptionConfigurationV2:" +
					"BucketServerSideEncryptionConfigurationV2": "rules[0]." +
					"applyServerSideEncryptionByDefault.sseAlgorithm",
			} {
				all := v.of(kind)
				wrong = append(wrong, count(all, len(v.of(bucketType)))...)
				for _, r := range all {
					if _, ok := at(r, path); !ok {
						wrong = append(wrong, kind+" has no "+path)
					}
				}
			}
			return append(wrong, count(v.of("aws:ecr/lifecyclePolicy:LifecyclePolicy"), 1)...)
		}, func(v *view) { unset(v.named(bucketType, "code")[0], "forceDestroy") }},
}

func toSet(all []string) map[string]bool {
	m := map[string]bool{}
	for _, s := range all {
		m[s] = true
	}
	return m
}

// jobAccounts returns the ServiceAccounts of all pods of a job, as "namespace/name", by the job's
// objects.
func jobAccounts(j *job.Job) (map[string]bool, error) {
	all, err := manifest.Submit(j)
	if err != nil {
		return nil, err
	}
	m := map[string]bool{j.Namespace + "/" + all.Job.Spec.Template.Spec.ServiceAccountName: true}
	for _, role := range []pod.Role{pod.PS, pod.Worker} {
		p, err := manifest.Pod(j, manifest.PodSpec{ID: pod.ID{Role: role}, Incarnation: 1}, meta.OwnerReference{})
		if err != nil {
			return nil, err
		}
		name := p.Spec.ServiceAccountName
		if name == "" {
			name = "default"
		}
		m[j.Namespace+"/"+name] = true
	}
	return m, nil
}
