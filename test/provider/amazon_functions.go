package provider

import (
	"fmt"
	"slices"
	"time"
)

// amazonFunctions returns the data sources of Amazon's provider. Those about resources answer from
// the simulated cloud.
func amazonFunctions(c *Cloud) map[string]func(Props) (Props, error) {
	live := func(f func(*Cloud, Props) (Props, error)) func(Props) (Props, error) {
		return func(args Props) (Props, error) {
			c.Amazon.mu.Lock()
			defer c.Amazon.mu.Unlock()
			return f(c, args)
		}
	}
	return map[string]func(Props) (Props, error){
		"aws:index/getAvailabilityZones:getAvailabilityZones": func(Props) (Props, error) {
			// unsorted, as Amazon returns them
			return Props{"id": AmazonRegion, "names": []string{"us-west-2c", "us-west-2a", "us-west-2d",
				"us-west-2b"}, "zoneIds": []string{"usw2-az3", "usw2-az1", "usw2-az4", "usw2-az2"},
				"groupNames": []string{AmazonRegion}}, nil
		},
		"aws:index/getPartition:getPartition": func(Props) (Props, error) {
			return Props{"id": "aws", "partition": "aws", "dnsSuffix": "amazonaws.com",
				"reverseDnsPrefix": "com.amazonaws"}, nil
		},
		"aws:index/getCallerIdentity:getCallerIdentity": func(Props) (Props, error) {
			return Props{"id": AmazonAccount, "accountId": AmazonAccount, "arn": "arn:aws:sts::" +
				AmazonAccount + ":assumed-role/deployer/session", "userId": "AROA:session"}, nil
		},
		"aws:index/getRegion:getRegion": func(Props) (Props, error) {
			return Props{"id": AmazonRegion, "name": AmazonRegion, "description": "US West (Oregon)",
				"endpoint": "ec2." + AmazonRegion + ".amazonaws.com"}, nil
		},
		"aws:iam/getSessionContext:getSessionContext": func(a Props) (Props, error) {
			return Props{"id": a["arn"], "arn": a["arn"], "issuerArn": "arn:aws:iam::" + AmazonAccount +
				":role/deployer", "issuerId": "AROA", "issuerName": "deployer", "sessionName": "session"}, nil
		},
		"aws:ec2/getVpc:getVpc": func(a Props) (Props, error) {
			return Props{"id": a["id"], "cidrBlock": "10.0.0.0/16", "enableDnsHostnames": true,
				"enableDnsSupport": true, "arn": "arn", "tags": Props{}}, nil
		},
		"aws:ec2/getSubnet:getSubnet":                                       live(getSubnet),
		"aws:efs/getFileSystem:getFileSystem":                               getFileSystem,
		"aws:ec2/getNetworkInterfaces:getNetworkInterfaces":                 getNetworkInterfaces,
		"aws:ec2/getNetworkInterface:getNetworkInterface":                   getNetworkInterface,
		"aws:kms/getKey:getKey":                                             getKey,
		"aws:iam/getRole:getRole":                                           getRole,
		"aws:iam/getPrincipalPolicySimulation:getPrincipalPolicySimulation": simulatePolicies,
		"aws:ecr/getRepository:getRepository":                               getECR,
		"aws:s3/getBucket:getBucket":                                        getAmazonBucket,
		"aws:eks/getAddonVersion:getAddonVersion": func(a Props) (Props, error) {
			return Props{"id": a["addonName"], "addonName": a["addonName"],
				"kubernetesVersion": a["kubernetesVersion"], "version": "v1.2.3-eksbuild.4", "mostRecent": true}, nil
		},
		"aws:eks/getClusterVersions:getClusterVersions": live(getClusterVersions),

		"aws:eks/getClusters:getClusters":     live(getClusters),
		"aws:eks/getCluster:getCluster":       live(getCluster),
		"aws:eks/getNodeGroups:getNodeGroups": live(getNodeGroups),
		"aws:eks/getNodeGroup:getNodeGroup":   live(getNodeGroup),
	}
}

// getSubnet returns a subnet of the stack, or of the VPC that no stack has created: the last letter
// of its ID is its zone.
func getSubnet(c *Cloud, args Props) (Props, error) {
	id := text(args, "id")
	if r := c.Amazon.live["aws:ec2/subnet:Subnet "+id]; r != nil {
		return Props{"id": id, "vpcId": r.In["vpcId"], "availabilityZone": r.In["availabilityZone"],
			"cidrBlock": r.In["cidrBlock"], "tags": Props{}}, nil
	}
	return Props{"id": id, "vpcId": existingVPC, "availabilityZone": AmazonRegion + id[len(id)-1:],
		"cidrBlock": "10.0.0.0/20", "tags": Props{}}, nil
}

func getCluster(c *Cloud, args Props) (Props, error) {
	r := c.Amazon.live[eksCluster+" "+text(args, "name")]
	if r == nil {
		return nil, fmt.Errorf("reading EKS Cluster (%s): couldn't find resource", text(args, "name"))
	}
	out := Props{"id": r.ID, "vpcConfig": r.Is["vpcConfig"]}
	for _, k := range []string{"arn", "endpoint", "name", "platformVersion", "roleArn", "status", "tags", "version"} {
		out[k] = r.Is[k]
	}
	if mode, ok := r.Is["computeConfig"].(Props); ok {
		out["computeConfigs"] = []any{mode}
	}
	return out, nil
}

func getClusters(c *Cloud, _ Props) (Props, error) {
	names := []string{}
	for r := range c.all(eksCluster) {
		names = append(names, r.ID)
	}
	return Props{"id": AmazonRegion, "names": names}, nil
}

// releases has the versions of Kubernetes with the last days of their standard support; extended
// support lasts a year longer. Days after that of 1.35 are invented.
var releases = []struct{ version, until string }{
	{"1.33", "2026-07-29"}, {"1.34", "2026-12-02"}, {"1.35", "2027-03-27"}, {"1.36", "2027-08-02"},
	{"1.37", "2028-12-31"},
}

// getClusterVersions returns all versions. The default is the oldest in standard support that has
// it for a month or longer.
func getClusterVersions(c *Cloud, _ Props) (Props, error) {
	now := c.Now()
	all, chosen := []any{}, false
	for _, r := range releases {
		end, err := time.Parse(time.DateOnly, r.until)
		if err != nil {
			return nil, err
		}
		extended, status := end.AddDate(1, 0, 0), "STANDARD_SUPPORT"
		switch {
		case !now.Before(extended.AddDate(0, 0, 1)):
			status = "UNSUPPORTED"
		case !now.Before(end.AddDate(0, 0, 1)):
			status = "EXTENDED_SUPPORT"
		}
		isDefault := !chosen && now.Before(end.AddDate(0, -1, 0))
		chosen = chosen || isDefault
		all = append(all, Props{"clusterType": "eks", "clusterVersion": r.version, "versionStatus": status,
			"defaultVersion": isDefault, "defaultPlatformVersion": "eks.1", "kubernetesPatchVersion": r.version + ".2",
			"releaseDate":              "2026-01-01T00:00:00Z",
			"endOfStandardSupportDate": end.Format(time.RFC3339),
			"endOfExtendedSupportDate": extended.Format(time.RFC3339)})
	}
	return Props{"id": AmazonRegion, "clusterVersions": all}, nil
}

func getNodeGroups(c *Cloud, args Props) (Props, error) {
	cluster := text(args, "clusterName")
	if clusters, _ := getClusters(c, nil); !slices.Contains(clusters["names"].([]string), cluster) {
		return nil, fmt.Errorf("listing EKS Node Groups: operation error EKS: ListNodegroups, https "+
			"response error StatusCode: 404, ResourceNotFoundException: No cluster found for name: %s", cluster)
	}
	names := []string{}
	for r := range c.all(eksGroup) {
		if text(r.In, "clusterName") == cluster {
			names = append(names, text(r.In, "nodeGroupName"))
		}
	}
	return Props{"id": cluster, "clusterName": cluster, "names": names}, nil
}

func getNodeGroup(c *Cloud, args Props) (Props, error) {
	id := text(args, "clusterName") + ":" + text(args, "nodeGroupName")
	r := c.Amazon.live[eksGroup+" "+id]
	if r == nil {
		return nil, fmt.Errorf("reading EKS Node Group (%s): couldn't find resource", id)
	}
	out := Props{"id": id, "scalingConfigs": []any{r.Is["scalingConfig"]}, "launchTemplates": []any{},
		"remoteAccesses": []any{}, "diskSize": 0.0}
	if t := r.Is["launchTemplate"]; t != nil {
		out["launchTemplates"] = []any{t}
	}
	for _, k := range []string{"amiType", "arn", "capacityType", "clusterName", "instanceTypes",
		"labels", "nodeGroupName", "nodeRoleArn", "releaseVersion", "resources", "status", "subnetIds",
		"tags", "taints", "version"} {
		out[k] = r.Is[k]
	}
	fill(out, Props{"labels": Props{}, "tags": Props{}, "taints": []any{}})
	return out, nil
}
