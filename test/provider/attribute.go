package provider

import (
	"embed"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

//go:embed schemas/*.txt
var schemaFiles embed.FS

// attribute is an attribute of a resource, or of a block in it, as the schema of Terraform's
// provider defines it.
type attribute struct {
	// Terraform's path: "google_container_cluster.network"
	path string
	// "TypeString"
	kind     string
	optional bool
	required bool
	// the cloud may fill it in
	computed bool
	// a change replaces the resource
	forceNew bool
	// the provider has code that ignores some differences
	suppress bool
	// its Default, or nil
	initial any
	// greatest number of elements of a list, or 0
	max int

	// Pulumi's name
	name string
	// Pulumi has the single element instead of a list
	flat bool
	// attributes of a block, else nil
	parts parts
}

// parts has the attributes of a resource or of a block, by Pulumi's names.
type parts map[string]*attribute

// attributes returns the attributes of all types in test/provider/schemas, by Terraform's names of
// the types.
var attributes = sync.OnceValues(func() (map[string]parts, error) {
	files, err := schemaFiles.ReadDir("schemas")
	if err != nil {
		return nil, err
	}
	all := map[string]parts{}
	for _, f := range files {
		text, err := schemaFiles.ReadFile("schemas/" + f.Name())
		if err != nil {
			return nil, err
		}
		some, err := parseAttributes(string(text))
		if err != nil {
			return nil, fmt.Errorf("test/provider/schemas/%s: %w", f.Name(), err)
		}
		for name, p := range some {
			if all[name] != nil {
				return nil, fmt.Errorf("test/provider/schemas/%s: %s is in another file, too", f.Name(), name)
			}
			all[name] = p
		}
	}
	return all, nil
})

// parseAttributes returns the attributes in lines "resource.path Kind Flags", by resource. Lines
// that begin with # are comments.
func parseAttributes(text string) (map[string]parts, error) {
	var lines []*attribute
	for i, line := range strings.Split(text, "\n") {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		a, err := parseAttribute(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		lines = append(lines, a)
	}
	// A block comes before its attributes.
	slices.SortStableFunc(lines, func(a, b *attribute) int {
		return strings.Count(a.path, ".") - strings.Count(b.path, ".")
	})
	all, blocks := map[string]parts{}, map[string]*attribute{}
	for _, a := range lines {
		if blocks[a.path] != nil {
			return nil, fmt.Errorf("%s is there twice", a.path)
		}
		blocks[a.path] = a
		a.name, a.flat = pulumiName(a)
		of := a.path[:strings.LastIndex(a.path, ".")]
		if !strings.Contains(of, ".") {
			if all[of] == nil {
				all[of] = parts{}
			}
			if err := all[of].add(a); err != nil {
				return nil, err
			}
			continue
		}
		block := blocks[of]
		if block == nil || block.kind != "TypeList" && block.kind != "TypeSet" {
			return nil, fmt.Errorf("%s: expected a list or set %s", a.path, of)
		}
		if block.parts == nil {
			block.parts = parts{}
		}
		if err := block.parts.add(a); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (p parts) add(a *attribute) error {
	if other := p[a.name]; other != nil {
		return fmt.Errorf("%s and %s have the same name in Pulumi: %s", other.path, a.path, a.name)
	}
	p[a.name] = a
	return nil
}

func parseAttribute(line string) (*attribute, error) {
	fields := strings.Fields(line)
	if len(fields) != 3 {
		return nil, fmt.Errorf("%q: expected resource.path, kind and flags", line)
	}
	a := &attribute{path: fields[0], kind: fields[1]}
	if !strings.Contains(a.path, ".") || slices.Contains(strings.Split(a.path, "."), "") {
		return nil, fmt.Errorf("%s: expected a resource and a path", a.path)
	}
	if !slices.Contains([]string{"TypeString", "TypeBool", "TypeInt", "TypeFloat", "TypeList",
		"TypeSet", "TypeMap"}, a.kind) {
		return nil, fmt.Errorf("%s: unknown kind %s", a.path, a.kind)
	}
	for flag := range strings.SplitSeq(fields[2], ",") {
		if err := a.set(flag); err != nil {
			return nil, fmt.Errorf("%s: flag %s: %w", a.path, flag, err)
		}
	}
	return a, nil
}

func (a *attribute) set(flag string) (err error) {
	name, value, _ := strings.Cut(flag, "=")
	switch name {
	case "Optional":
		a.optional = true
	case "Required":
		a.required = true
	case "Computed":
		a.computed = true
	case "ForceNew":
		a.forceNew = true
	case "Suppress":
		a.suppress = true
	case "Max":
		if a.max, err = strconv.Atoi(value); err == nil && a.max < 1 {
			return fmt.Errorf("expected 1 or more")
		}
	case "Default":
		a.initial, err = a.parse(value)
	default:
		return fmt.Errorf("expected Optional, Required, Computed, ForceNew, Suppress, Max= or Default=")
	}
	return err
}

// parse returns a value of an attribute that is neither a list nor a map.
func (a *attribute) parse(value string) (any, error) {
	switch a.kind {
	case "TypeString":
		return value, nil
	case "TypeBool":
		return strconv.ParseBool(value)
	case "TypeInt", "TypeFloat":
		return strconv.ParseFloat(value, 64)
	}
	return nil, fmt.Errorf("%s has no default", a.kind)
}

// primitive reports whether a is neither a list, nor a set, nor a map.
func (a *attribute) primitive() bool {
	return a.kind != "TypeList" && a.kind != "TypeSet" && a.kind != "TypeMap"
}

// zero returns the value of an attribute that is not set; nil for lists and maps.
func (a *attribute) zero() any {
	switch a.kind {
	case "TypeString":
		return ""
	case "TypeBool":
		return false
	case "TypeInt", "TypeFloat":
		return 0.0
	}
	return nil
}

// named has the attributes whose name or form in Pulumi differs from the rule, by Terraform's
// paths.
var named = map[string]struct {
	name string
	flat bool
}{
	"aws_s3_bucket.lifecycle_rule.expiration":                        {"expirations", false},
	"aws_s3_bucket.lifecycle_rule.noncurrent_version_expiration":     {"noncurrentVersionExpirations", false},
	"aws_s3_bucket.logging":                                          {"loggings", false},
	"aws_s3_bucket.object_lock_configuration.rule":                   {"rules", false},
	"aws_s3_bucket.object_lock_configuration.rule.default_retention": {"defaultRetentions", false},
	"aws_s3_bucket.replication_configuration.rules.destination":      {"destinations", false},
	"aws_s3_bucket.replication_configuration.rules.destination.access_control_translation": {
		"accessControlTranslations", false,
	},
	"aws_s3_bucket.replication_configuration.rules.destination.metrics":          {"metrics", false},
	"aws_s3_bucket.replication_configuration.rules.destination.replication_time": {"replicationTimes", false},
	"aws_s3_bucket.replication_configuration.rules.filter":                       {"filters", false},
	"aws_s3_bucket.replication_configuration.rules.source_selection_criteria":    {"sourceSelectionCriterias", false},
	"aws_s3_bucket.replication_configuration.rules.source_selection_criteria.sse_kms_encrypted_objects": {
		"sseKmsEncryptedObjects", false,
	},
	"aws_s3_bucket.server_side_encryption_configuration.rule": {"rules", false},
	"aws_s3_bucket.server_side_encryption_configuration.rule.apply_server_side_encryption_by_default": {
		"applyServerSideEncryptionByDefaults", false,
	},
	"aws_s3_bucket.replication_configuration":            {"replicationConfigurations", false},
	"aws_s3_bucket.server_side_encryption_configuration": {"serverSideEncryptionConfigurations", false},
	"aws_s3_bucket.versioning":                           {"versionings", false},
	"aws_s3_bucket.website":                              {"websites", false},
	"aws_security_group.egress":                          {"egress", false},
	"aws_security_group.ingress":                         {"ingress", false},

	"google_artifact_registry_repository.terraform_labels": {"pulumiLabels", false},
	"google_compute_global_address.terraform_labels":       {"pulumiLabels", false},
	"google_filestore_instance.terraform_labels":           {"pulumiLabels", false},
	"google_storage_bucket.terraform_labels":               {"pulumiLabels", false},
	// Pulumi keeps this a list, which it was before it had a limit.
	"google_container_cluster.monitoring_config.advanced_datapath_observability_config": {
		"advancedDatapathObservabilityConfigs", false,
	},
}

// pulumiName returns Pulumi's name of an attribute, and whether a list of at most one element is
// flattened to its element. Names of lists are plural.
func pulumiName(a *attribute) (name string, flat bool) {
	if exception, ok := named[a.path]; ok {
		return exception.name, exception.flat
	}
	words := strings.Split(a.path[strings.LastIndex(a.path, ".")+1:], "_")
	list := a.kind == "TypeList" || a.kind == "TypeSet"
	flat = list && a.max == 1
	if list && !flat {
		words[len(words)-1] = plural(words[len(words)-1])
	}
	for i, w := range words {
		if i > 0 && w != "" {
			words[i] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, ""), flat
}

func plural(word string) string {
	switch {
	case strings.HasSuffix(word, "ss"), strings.HasSuffix(word, "x"), strings.HasSuffix(word, "ch"):
		return word + "es"
	case strings.HasSuffix(word, "s"):
		return word
	case strings.HasSuffix(word, "y") && !strings.HasSuffix(word, "ey"):
		return strings.TrimSuffix(word, "y") + "ies"
	}
	return word + "s"
}
