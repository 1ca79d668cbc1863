package provider

import "encoding/json"

// What Amazon fills in on its own: [Type.Fill] as soon as a resource is created, [Type.Drift] after
// a while.

func fillEIP(r *Resource) {
	fill(r.Is, Props{"publicIp": "198.51.100.7", "networkBorderGroup": AmazonRegion,
		"publicIpv4Pool": "amazon", "domain": "vpc", "allocationId": r.ID})
}

// driftEIP adds to an address the resource that uses it.
func driftEIP(r *Resource) {
	for nat := range r.cloud.all(natGateway) {
		if nat.In["allocationId"] == r.ID {
			r.Is["associationId"], r.Is["networkInterface"], r.Is["privateIp"] = "eipassoc-1", "eni-1", "10.0.0.4"
		}
	}
}

func fillNAT(r *Resource) {
	fill(r.Is, Props{"publicIp": "198.51.100.7", "privateIp": "10.0.0.4", "networkInterfaceId": "eni-1",
		"secondaryPrivateIpAddresses": []any{}})
}

// driftRoutes adds to a table the routes that are resources of their own.
func driftRoutes(r *Resource) {
	routes := []any{}
	for way := range r.cloud.all(route) {
		if way.In["routeTableId"] == r.ID {
			routes = append(routes, Props{
				"cidrBlock": text(way.In, "destinationCidrBlock"), "ipv6CidrBlock": "", "destinationPrefixListId": "",
				"gatewayId": text(way.In, "gatewayId"), "natGatewayId": text(way.In, "natGatewayId"),
			})
		}
	}
	r.Is["routes"], r.Is["propagatingVgws"] = routes, []any{}
}

func fillEndpoint(r *Resource) {
	fill(r.Is, Props{
		"state": "available", "prefixListId": "pl-68a54001", "cidrBlocks": []any{"52.92.0.0/17"},
		"serviceRegion": AmazonRegion,
		"policy": `{"Version":"2008-10-17",` +
			`"Statement":[{"Effect":"Allow","Principal":"*","Action":"*","Resource":"*"}]}`,
		"subnetIds": []any{}, "securityGroupIds": []any{}, "networkInterfaceIds": []any{}, "dnsEntries": []any{},
		"dnsOptions": Props{"dnsRecordIpType": "", "privateDnsOnlyForInboundResolverEndpoint": false},
	})
}

// driftRules adds to a group the rules that are resources of their own.
func driftRules(r *Resource) {
	rules := []any{}
	for rule := range r.cloud.all(ingressRule) {
		if rule.In["securityGroupId"] == r.ID {
			rules = append(rules, Props{
				"fromPort": rule.In["fromPort"], "toPort": rule.In["toPort"],
				"protocol": rule.In["ipProtocol"], "self": false,
				"securityGroups": []any{rule.In["referencedSecurityGroupId"]}, "cidrBlocks": []any{},
			})
		}
	}
	r.Is["ingress"], r.Is["egress"] = rules, []any{}
}

func fillTemplate(r *Resource) {
	if options, ok := r.Is["metadataOptions"].(Props); ok {
		fill(options, Props{"httpProtocolIpv6": "", "instanceMetadataTags": ""})
	}
	for _, device := range list(r.Is, "blockDeviceMappings") {
		if ebs, ok := at(device, "ebs").(Props); ok {
			fill(ebs, Props{"iops": 0.0, "throughput": 0.0})
		}
	}
}

// driftRole adds to a role its policies, and writes documents in the form of IAM.
func driftRole(r *Resource) {
	rewritten("assumeRolePolicy")(r)
	arns, inline := []any{}, []any{}
	for a := range r.cloud.all(roleAttached) {
		if a.In["role"] == r.In["name"] {
			arns = append(arns, a.In["policyArn"])
		}
	}
	for p := range r.cloud.all(rolePolicy) {
		if p.In["role"] == r.In["name"] {
			inline = append(inline, Props{"name": p.In["name"], "policy": p.In["policy"]})
		}
	}
	r.Is["managedPolicyArns"], r.Is["inlinePolicies"] = arns, inline
}

// rewritten returns a drift that changes the form of a JSON document, and not its meaning.
func rewritten(property string) func(r *Resource) {
	return func(r *Resource) {
		var document any
		if json.Unmarshal([]byte(text(r.Is, property)), &document) != nil {
			return
		}
		if again, err := json.MarshalIndent(document, "", " "); err == nil {
			r.Is[property] = string(again)
		}
	}
}

func fillLogs(r *Resource) { fill(r.Is, Props{"logGroupClass": "STANDARD"}) }

func fillEKS(r *Resource) {
	fill(r.Is, Props{
		"version": "1.35", "createdAt": "2026-11-22T00:00:00Z",
		"kubernetesNetworkConfig": Props{"ipFamily": "ipv4", "serviceIpv4Cidr": "172.20.0.0/16",
			"serviceIpv6Cidr": "", "elasticLoadBalancing": Props{"enabled": false}},
		"accessConfig": Props{"authenticationMode": "CONFIG_MAP",
			"bootstrapClusterCreatorAdminPermissions": true},
		"upgradePolicy": Props{"supportType": "EXTENDED"},
	})
	access := Props{}
	if at(r.Is, "vpcConfig", "endpointPublicAccess") == true {
		access["publicAccessCidrs"] = []any{"0.0.0.0/0"}
	}
	fill(r.Is, Props{"vpcConfig": access})
}

// driftEKS updates the version of the platform, as Amazon does. Properties that the API does not
// return stay as in the state.
func driftEKS(r *Resource) { r.Is["platformVersion"] = "eks.9" }

func fillGroup(r *Resource) {
	unavailable := 1.0
	if at(r.Is, "updateConfig", "maxUnavailablePercentage") != nil {
		unavailable = 0
	}
	fill(r.Is, Props{
		"amiType": "AL2023_x86_64_STANDARD", "capacityType": "ON_DEMAND",
		"instanceTypes": []any{"t3.medium"}, "nodeGroupNamePrefix": "", "version": "1.35",
		"updateConfig":     Props{"maxUnavailable": unavailable, "maxUnavailablePercentage": 0.0},
		"nodeRepairConfig": Props{"enabled": false},
		"resources": []any{
			Props{"autoscalingGroups": []any{Props{"name": "eks-" + digest(r.ID)}}, "remoteAccessSecurityGroupId": ""}},
	})
	if r.Is["launchTemplate"] == nil {
		fill(r.Is, Props{"diskSize": 20.0})
		return
	}
	for t := range r.cloud.all("aws:ec2/launchTemplate:LaunchTemplate") {
		if t.ID == text(r.Is, "launchTemplate", "id") {
			fill(r.Is, Props{"launchTemplate": Props{"name": text(t.In, "name")}})
		}
	}
}

func fillAddon(r *Resource) {
	fill(r.Is, Props{"configurationValues": "", "createdAt": "2026-11-22T00:00:00Z",
		"modifiedAt": "2026-11-22T00:00:00Z"})
}

func fillEntry(r *Resource) {
	fill(r.Is, Props{"kubernetesGroups": []any{}})
	r.Is["userName"] = text(r.Is, "principalArn")
	r.Is["accessEntryArn"] = arnOf("eks", "access-entry/"+text(r.In, "clusterName")+"/"+digest(r.ID))
}

func fillEFS(r *Resource) {
	fill(r.Is, Props{
		"creationToken": "terraform-" + r.ID, "performanceMode": "generalPurpose", "encrypted": false,
		"ownerId": AmazonAccount, "name": text(r.Is, "tags", "Name"),
		"protection":  Props{"replicationOverwrite": "ENABLED"},
		"sizeInBytes": []any{Props{"value": 6144.0, "valueInIa": 0.0, "valueInStandard": 6144.0}},
	})
	if r.Is["encrypted"] == true {
		fill(r.Is, Props{"kmsKeyId": arnOf("kms", "key/of-amazon")})
	}
}

// driftEFS changes the size, as if files had been written to the file system.
func driftEFS(r *Resource) {
	targets := 0
	for t := range r.cloud.all(mountTarget) {
		if t.In["fileSystemId"] == r.ID {
			targets++
		}
	}
	r.Is["numberOfMountTargets"] = targets
	r.Is["sizeInBytes"] = []any{Props{"value": 7e9, "valueInIa": 6e9, "valueInStandard": 1e9}}
}

func fillBucket(r *Resource) {
	fill(r.Is, Props{"region": AmazonRegion, "hostedZoneId": "Z3BJ6K6RIION7M",
		"requestPayer": "BucketOwner", "acl": "", "objectLockEnabled": false})
}

// driftBucket adds to a bucket the settings that are resources of their own.
func driftBucket(r *Resource) {
	r.Is["grants"] = []any{Props{"id": "of the account", "type": "CanonicalUser",
		"permissions": []any{"FULL_CONTROL"}, "uri": ""}}
	r.Is["serverSideEncryptionConfigurations"] = []any{Props{"rules": []any{Props{
		"bucketKeyEnabled":                    false,
		"applyServerSideEncryptionByDefaults": []any{Props{"sseAlgorithm": "AES256", "kmsMasterKeyId": ""}},
	}}}}
	enabled := false
	for v := range r.cloud.all(bucketVersion) {
		enabled = enabled || v.In["bucket"] == r.ID && text(v.In, "versioningConfiguration", "status") == "Enabled"
	}
	r.Is["versionings"] = []any{Props{"enabled": enabled, "mfaDelete": false}}
}

func fillVersioning(r *Resource) {
	fill(r.Is, Props{"versioningConfiguration": Props{"mfaDelete": ""}})
}

// fillExpiry adds what Amazon returns for each rule.
func fillExpiry(r *Resource) {
	fill(r.Is, Props{"transitionDefaultMinimumObjectSize": "all_storage_classes_128K"})
	for _, rule := range list(r.Is, "rules") {
		fill(rule.(Props), Props{"prefix": "", "filter": Props{"prefix": ""}})
	}
}

func fillECR(r *Resource) {
	fill(r.Is, Props{
		"encryptionConfigurations":   []any{Props{"encryptionType": "AES256", "kmsKey": ""}},
		"imageScanningConfiguration": Props{"scanOnPush": false},
	})
}
