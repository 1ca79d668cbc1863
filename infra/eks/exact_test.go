package eks

import (
	"fmt"
	"slices"
	"strings"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// moreLaws has laws about exact contents: routes, rules of expiry, and the policies of roles.
var moreLaws = []law{
	{"E22 private subnets go out by NAT, public ones by the gateway, and no other way", func(v *view) (wrong []string) {
		routes := v.of("aws:ec2/route:Route")
		joined := v.of("aws:ec2/routeTableAssociation:RouteTableAssociation")
		zones := len(v.s.EKS.VPC.Zones)
		if wrong = append(count(routes, zones+min(zones, 1)), count(joined, 2*zones)...); v.preview {
			return wrong // no IDs are known
		}
		for _, j := range joined {
			table := "public-id"
			if strings.HasPrefix(j.Name, "private-") {
				table = j.Name + "-id"
			}
			wrong = append(wrong, append(is(j, "routeTableId", table), is(j, "subnetId", j.Name+"-id")...)...)
		}
		for _, r := range routes {
			gateway, nat := "<none>", "<none>"
			switch zone, private := strings.CutPrefix(r.Name, "private-"); {
			case !private:
				gateway = "internet-id"
			case v.s.EKS.VPC.NATPerZone:
				nat = "nat-" + zone + "-id"
			default:
				nat = "nat-" + v.s.EKS.VPC.Zones[0] + "-id"
			}
			for path, want := range map[string]string{"routeTableId": r.Name + "-id", "gatewayId": gateway,
				"natGatewayId": nat, "destinationCidrBlock": "0.0.0.0/0"} {
				wrong = append(wrong, is(r, path, want)...)
			}
		}
		return wrong
	}, func(v *view) {
		set(v.named("aws:ec2/routeTableAssociation:RouteTableAssociation", "private-us-west-2a")[0],
			"routeTableId", "public-id")
	}},

	{"E23 images with a tag do not expire", func(v *view) (wrong []string) {
		wrong = count(v.of("aws:ecr/lifecyclePolicy:LifecyclePolicy"), 1)
		for _, r := range v.of("aws:ecr/lifecyclePolicy:LifecyclePolicy") {
			wrong = append(wrong, is(r, "policy", `{"rules":[{"action":{"type":"expire"},"description":`+
				`"the last 100 without a tag","rulePriority":1,"selection":{"countNumber":100,"countType":`+
				`"imageCountMoreThan","tagStatus":"untagged"}}]}`)...)
		}
		return wrong
	}, func(v *view) {
		set(v.named("aws:ecr/lifecyclePolicy:LifecyclePolicy", "images")[0], "policy",
			`{"rules":[{"tagStatus":"any"}]}`)
	}},

	{"E24 each role has the listed policies and no other", func(v *view) (wrong []string) {
		if v.preview {
			return nil // names of roles are not known
		}
		got := map[string][]string{}
		for _, a := range v.of(attachType) {
			role := text(a, "role")
			got[role] = append(got[role], strings.TrimPrefix(text(a, "policyArn"), "arn:aws:iam::aws:policy/"))
		}
		listed := map[string]string{
			"cluster":    "[AmazonEKSClusterPolicy]",
			"node":       "[AmazonEC2ContainerRegistryPullOnly AmazonEKSWorkerNodePolicy AmazonEKS_CNI_Policy]",
			"efs-driver": "[service-role/AmazonEFSCSIDriverPolicy]",
		}
		if v.auto() {
			delete(listed, "node")
			listed["auto-node"] = "[AmazonEC2ContainerRegistryPullOnly AmazonEKSWorkerNodeMinimalPolicy]"
			listed["cluster"] = "[AmazonEKSBlockStoragePolicy AmazonEKSClusterPolicy AmazonEKSComputePolicy " +
				"AmazonEKSLoadBalancingPolicy AmazonEKSNetworkingPolicy]"
		}
		for name, want := range listed {
			role := "elasticdl-test-" + name
			if all := fmt.Sprint(slices.Sorted(slices.Values(got[role]))); all != want {
				wrong = append(wrong, fmt.Sprintf("the role %s has %s, not %s", role, all, want))
			}
			delete(got, role)
		}
		for role, policies := range got {
			if !slices.Equal(policies, v.s.EKS.JobPolicies) {
				wrong = append(wrong, fmt.Sprintf("the role %s has %v", role, policies))
			}
		}
		return wrong
	}, func(v *view) {
		set(v.named(attachType, "node-AmazonEC2ContainerRegistryPullOnly")[0], "policyArn",
			"arn:aws:iam::aws:policy/AmazonEC2ContainerRegistryPowerUser")
	}},

	{"E25 the job's role may use the bucket for data, and no other bucket", func(v *view) (wrong []string) {
		if v.s.Job == nil || v.s.EKS.Bucket == nil {
			return count(v.of(bucketType), 0)
		}
		may := v.named(inlineType, "job-data")[0]
		wrong = v.wait(v.named(isType, "job"), may)
		if v.preview {
			return wrong
		}
		wrong = append(wrong, is(may, "role", "elasticdl-test-job")...)
		return append(wrong, is(may, "policy", `{"Version":"2012-10-17","Statement":[`+
			`{"Effect":"Allow","Action":["s3:GetObject","s3:PutObject","s3:DeleteObject",`+
			`"s3:AbortMultipartUpload"],"Resource":["arn:aws:s3:::elasticdl-test-data-123456789012/*"]},`+
			`{"Effect":"Allow","Action":["s3:ListBucket"],`+
			`"Resource":["arn:aws:s3:::elasticdl-test-data-123456789012"]}]}`)...)
	}, func(v *view) {
		may := v.named(inlineType, "job-data")[0]
		set(may, "policy", strings.ReplaceAll(text(may, "policy"), "elasticdl-test-data-123456789012", "*"))
	}},

	{"E26 nodes are deleted before the bucket to which their pods write, and what is deleted there expires",
		func(v *view) (wrong []string) {
			if v.s.EKS.Bucket == nil {
				return count(v.of(expiryType), 0)
			}
			b, e := v.named(bucketType, "data")[0], v.named(expiryType, "data")[0]
			wrong = append(v.wait(v.nodes(), b), is(b, "bucket", "elasticdl-test-data-123456789012")...)
			wrong = append(wrong, is(e, "rules[0].abortIncompleteMultipartUpload.daysAfterInitiation", "1")...)
			wrong = append(wrong, is(e, "rules[1].noncurrentVersionExpiration.noncurrentDays", "7")...)
			wrong = append(wrong, is(v.named("aws:s3/bucketVersioningV2:BucketVersioningV2", "data")[0],
				"versioningConfiguration.status", "Enabled")...)
			// no rule may delete objects that a job still has
			wrong = append(wrong, is(e, "rules[0].expiration", "<none>")...)
			return append(wrong, is(e, "rules[1].expiration", "<none>")...)
		}, func(v *view) { set(v.named(expiryType, "data")[0], "rules[1].expiration", map[string]any{"days": 30}) }},

	{"E27 the policies of roles that the stack writes are the listed ones, with rights on its own things",
		func(v *view) (wrong []string) {
			want := []string{}
			if e := v.s.EKS; v.s.Job != nil && e.CodeBucket {
				want = append(want, "job", "job-data")
			}
			switch v.s.EKS.Nodes {
			case settings.NodesAuto:
				want = append(want, "cluster-tags")
			case settings.NodesKarpenter:
				want = append(want, "karpenter")
			}
			var got []string
			for _, r := range v.of(inlineType) {
				got = append(got, r.Name)
			}
			slices.Sort(got)
			slices.Sort(want)
			if !slices.Equal(got, want) {
				wrong = append(wrong, fmt.Sprintf("policies %v, not %v", got, want))
			}
			if v.preview || !v.auto() {
				return wrong
			}
			// only what Auto Mode makes for this cluster gets the stack's tags
			const ofCluster = `"StringEquals":{"aws:RequestTag/eks:eks-cluster-name":` +
				`"${aws:PrincipalTag/eks:eks-cluster-name}"}`
			const arn = `"arn:aws:ec2:us-west-2:*:`
			return append(wrong, is(v.named(inlineType, "cluster-tags")[0], "policy", `{"Version":"2012-10-17",`+
				`"Statement":[{"Effect":"Allow","Action":["ec2:CreateNetworkInterface"],"Resource":[`+arn+
				`network-interface/*"],"Condition":{`+ofCluster+`,"StringLike":{`+
				`"aws:RequestTag/eks:kubernetes-cni-node-name":"*"}}},{"Effect":"Allow","Action":["ec2:CreateFleet",`+
				`"ec2:RunInstances","ec2:CreateLaunchTemplate"],"Resource":[`+arn+`fleet/*",`+arn+`instance/*",`+arn+
				`volume/*",`+arn+`network-interface/*",`+arn+`launch-template/*",`+arn+`spot-instances-request/*"],`+
				`"Condition":{`+ofCluster+`,"StringLike":{"aws:RequestTag/eks:kubernetes-node-class-name":"*",`+
				`"aws:RequestTag/eks:kubernetes-node-pool-name":"*"}}}]}`)...)
		}, func(v *view) { v.named(inlineType, "job")[0].Name = "other" }},
}
