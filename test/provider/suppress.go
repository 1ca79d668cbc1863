package provider

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"strings"
	"time"
)

// The schemas say which attributes have code of the provider that suppresses differences, and not
// what it does. This table has that code for the attributes that the stacks use; other such
// attributes are compared as if they had none. The paths are Terraform's.
var suppress = map[string]func(resource Props, state, now any) bool{
	"aws_budgets_budget.limit_amount":                 sameAmount,
	"aws_ecr_lifecycle_policy.policy":                 sameJSON,
	"aws_ecr_repository.encryption_configuration":     notAsked,
	"aws_ecr_repository.image_scanning_configuration": notAsked,
	"aws_iam_policy.policy":                           sameJSON,
	"aws_iam_role.assume_role_policy":                 sameJSON,
	"aws_iam_role_policy.policy":                      sameJSON,
	"aws_sqs_queue_policy.policy":                     sameJSON,
	"aws_cloudwatch_event_rule.event_pattern":         sameJSON,
	"aws_vpc_endpoint.policy":                         sameJSON,
	"aws_vpc_endpoint.dns_options":                    notAsked,

	"google_compute_global_address.network":      sameLink,
	"google_compute_router.network":              sameLink,
	"google_compute_router.region":               sameLink,
	"google_compute_router_nat.region":           sameLink,
	"google_compute_router_nat.router":           sameLink,
	"google_compute_subnetwork.network":          sameLink,
	"google_compute_subnetwork.region":           sameLink,
	"google_container_cluster.network":           sameLink,
	"google_container_cluster.subnetwork":        sameLink,
	"google_filestore_instance.networks.network": sameLink,

	"google_container_cluster.node_config.guest_accelerator.type":   sameLink,
	"google_container_node_pool.node_config.guest_accelerator.type": sameLink,

	"google_artifact_registry_repository.format":                                sameCase,
	"google_container_cluster.node_config.image_type":                           sameCase,
	"google_container_node_pool.node_config.image_type":                         sameCase,
	"google_artifact_registry_repository_iam_member.member":                     sameCase,
	"google_project_iam_member.member":                                          sameCase,
	"google_service_account_iam_member.member":                                  sameCase,
	"google_artifact_registry_repository.cleanup_policies.condition.newer_than": sameDuration,
	"google_artifact_registry_repository.cleanup_policies.condition.older_than": sameDuration,

	"google_storage_bucket.location":          sameCase,
	"google_storage_bucket_iam_member.member": sameCase,
	"google_storage_bucket_iam_member.bucket": sameLast,

	"google_artifact_registry_repository_iam_member.repository": sameLast,
	"google_project_iam_member.project":                         sameLast,
	"google_project_service.project":                            sameLast,

	// A missing block is the same as one that turns nothing on.
	"google_container_cluster.binary_authorization": off,
	"google_container_cluster.network_policy":       off,
	"google_container_cluster.fleet":                off,
	"google_container_cluster.dns_config":           off,
	"google_container_cluster.private_cluster_config": func(resource Props, state, now any) bool {
		return now == nil && at(state, "enablePrivateNodes") != true && at(state, "enablePrivateEndpoint") != true
	},

	// The values that Google returns if none was requested.
	"google_container_cluster.datapath_provider": orDefault(
		"DATAPATH_PROVIDER_UNSPECIFIED", "LEGACY_DATAPATH"),
	"google_compute_global_address.ip_version":                               orDefault("IPV4"),
	"google_compute_global_address.address_type":                             orDefault("EXTERNAL"),
	"google_container_cluster.ip_allocation_policy.cluster_ipv4_cidr_block":  sizeOnly,
	"google_container_cluster.ip_allocation_policy.services_ipv4_cidr_block": sizeOnly,

	// 3:00 is 03:00
	"google_container_cluster.maintenance_policy.daily_maintenance_window.start_time": func(_ Props,
		state, now any) bool {
		s, ok := state.(string)
		n, ok2 := now.(string)
		return ok && ok2 && strings.TrimPrefix(s, "0") == strings.TrimPrefix(n, "0")
	},
}

// suppressed reports whether the provider ignores a difference.
func suppressed(a *attribute, resource Props, state, now any) bool {
	rule := suppress[a.path]
	return rule != nil && now != Unknown && rule(resource, state, now)
}

// sameLink reports whether two links are the same. Google returns full links; inputs may have the
// short name, or a link from "projects/" on.
func sameLink(_ Props, state, now any) bool {
	s, ok := state.(string)
	n, ok2 := now.(string)
	if !ok || !ok2 {
		return false
	}
	if !strings.Contains(n, "/") {
		return last(s) == n
	}
	return relative(s) == relative(n)
}

// relative returns a link from "projects/" on.
func relative(link string) string {
	if i := strings.Index(link, "projects/"); i >= 0 {
		return link[i:]
	}
	return link
}

func sameLast(_ Props, state, now any) bool {
	s, ok := state.(string)
	n, ok2 := now.(string)
	return ok && ok2 && last(s) == last(n)
}

func sameCase(_ Props, state, now any) bool {
	s, ok := state.(string)
	n, ok2 := now.(string)
	return ok && ok2 && strings.EqualFold(s, n)
}

// sameJSON reports whether two documents have the same meaning. IAM and ECR change the text.
func sameJSON(_ Props, state, now any) bool {
	document := func(v any) (d any) {
		text, _ := v.(string)
		if json.Unmarshal([]byte(text), &d) != nil {
			return v
		}
		return d
	}
	return reflect.DeepEqual(document(state), document(now))
}

func notAsked(_ Props, _, now any) bool { return now == nil }

// sameDuration reports whether two durations are the same: 30d is 2592000s.
func sameDuration(_ Props, state, now any) bool {
	s, err := duration(state)
	n, err2 := duration(now)
	return err == nil && err2 == nil && s == n
}

func duration(v any) (time.Duration, error) {
	text, _ := v.(string)
	if days, ok := strings.CutSuffix(text, "d"); ok {
		d, err := time.ParseDuration(days + "h")
		return 24 * d, err
	}
	return time.ParseDuration(text)
}

func off(_ Props, state, now any) bool {
	return now == nil && at(state, "enabled") != true && text(state, "project") == "" && text(state, "clusterDns") == ""
}

func orDefault(defaults ...string) func(Props, any, any) bool {
	is := func(v any) bool {
		for _, d := range defaults {
			if v == d {
				return true
			}
		}
		return v == nil || v == ""
	}
	return func(_ Props, state, now any) bool { return is(state) && is(now) }
}

// sizeOnly reports whether an input such as "/16" matches the range of that size that Google has
// assigned.
func sizeOnly(_ Props, state, now any) bool {
	s, ok := state.(string)
	n, ok2 := now.(string)
	return ok && ok2 && strings.HasPrefix(n, "/") && strings.HasSuffix(s, n)
}

// forcing has attributes that are not ForceNew although some of their changes replace the resource,
// by code of the provider.
var forcing = map[string]func(resource Props, state, now any) bool{
	"aws_eks_cluster.compute_config.node_role_arn": func(_ Props, state, _ any) bool {
		return state != nil && state != ""
	},
	// encryption cannot be turned off
	"aws_eks_cluster.encryption_config": func(_ Props, _, now any) bool { return now == nil },
	"aws_vpc.instance_tenancy": func(_ Props, state, now any) bool {
		return state != "dedicated" || now != "default"
	},

	"aws_vpc_endpoint.private_dns_enabled": func(endpoint Props, _, _ any) bool {
		return endpoint["vpcEndpointType"] != "Interface"
	},

	// The kind of a rule's source cannot change.
	"aws_vpc_security_group_ingress_rule.cidr_ipv4":                    comesOrGoes,
	"aws_vpc_security_group_ingress_rule.cidr_ipv6":                    comesOrGoes,
	"aws_vpc_security_group_ingress_rule.prefix_list_id":               comesOrGoes,
	"aws_vpc_security_group_ingress_rule.referenced_security_group_id": comesOrGoes,

	"google_compute_subnetwork.ip_cidr_range": shrinks,
	"google_container_cluster.enable_l4_ilb_subsetting": func(_ Props, state, now any) bool {
		return state == true && now != true
	},
}

func comesOrGoes(_ Props, state, now any) bool {
	return (state == nil || state == "") != (now == nil || now == "")
}

func replaces(a *attribute, resource Props, state, now any) bool {
	rule := forcing[a.path]
	return rule != nil && rule(resource, state, now)
}

// shrinks reports whether the old range of addresses is not contained in the new one.
func shrinks(_ Props, state, now any) bool {
	s, _ := state.(string)
	n, _ := now.(string)
	was, err := netip.ParsePrefix(s)
	is, err2 := netip.ParsePrefix(n)
	return err != nil || err2 != nil || is.Bits() > was.Bits() || !is.Contains(was.Addr())
}
