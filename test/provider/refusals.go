package provider

import (
	"reflect"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"
	fields "k8s.io/apimachinery/pkg/util/validation/field"
)

// refusal describes a field that the API server refuses to change.
type refusal struct {
	// path within the object; several paths, if an object has one of them
	path string
	// name of the field in the message, if it is not the path
	as   string
	why  string
	form func(path *fields.Path, value any, why string) *fields.Error
}

func invalid(path *fields.Path, value any, why string) *fields.Error {
	return fields.Invalid(path, value, why)
}
func forbidden(path *fields.Path, _ any, why string) *fields.Error {
	return fields.Forbidden(path, why)
}

func immutable(paths ...string) []refusal {
	var all []refusal
	for _, p := range paths {
		all = append(all, refusal{path: p, why: validation.FieldImmutableErrorMsg, form: invalid})
	}
	return all
}

// refusals has the immutable fields of each kind that stacks use, with the messages of the API
// server (Kubernetes 1.36.3, pkg/apis/*/validation). The texts matter: in a preview Pulumi's
// provider replaces an object only if the message contains "field is immutable", and otherwise
// fails.
var refusals = map[string][]refusal{
	"apps/v1/DaemonSet":  immutable("spec.selector"),
	"apps/v1/Deployment": immutable("spec.selector"),
	"batch/v1/Job": immutable("spec.selector", "spec.template", "spec.completions",
		"spec.completionMode", "spec.podFailurePolicy",
		"spec.backoffLimitPerIndex", "spec.managedBy", "spec.successPolicy"),
	kueueVersion + "/LocalQueue":                      immutable("spec.clusterQueue"),
	"rbac.authorization.k8s.io/v1/ClusterRoleBinding": {{path: "roleRef", why: "cannot change roleRef", form: invalid}},
	"rbac.authorization.k8s.io/v1/RoleBinding":        {{path: "roleRef", why: "cannot change roleRef", form: invalid}},
	"scheduling.k8s.io/v1/PriorityClass": append(immutable("preemptionPolicy"),
		refusal{path: "value", why: "may not be changed in an update.", form: forbidden}),
	"storage.k8s.io/v1/StorageClass": immutable("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
	"v1/ConfigMap":                   ifImmutable("data", "binaryData", "immutable"),
	"v1/PersistentVolume": {
		{path: "spec.csi spec.hostPath spec.local spec.nfs", as: "spec.persistentvolumesource", form: forbidden,
			why: "spec.persistentvolumesource is immutable after creation"},
		{path: "spec.volumeMode", as: "volumeMode", why: validation.FieldImmutableErrorMsg, form: invalid},
	},
	"v1/PersistentVolumeClaim": {
		{path: "spec.accessModes spec.selector spec.storageClassName spec.volumeName " +
			"spec.volumeMode spec.dataSource", as: "spec", form: forbidden,
			why: "spec is immutable after creation except resources.requests and " +
				"volumeAttributesClassName for bound claims"},
	},
	"v1/ResourceQuota": immutable("spec.scopes"),
	"v1/Secret":        append(immutable("type"), ifImmutable("data", "immutable")...),
	"v1/Service": {{path: "spec.clusterIP", as: "spec.clusterIPs[0]",
		why: "may not change once set", form: invalid}},
}

func ifImmutable(paths ...string) []refusal {
	var all []refusal
	for _, p := range paths {
		all = append(all, refusal{path: p, why: "field is immutable when `immutable` is set", form: forbidden})
	}
	return all
}

// refused returns the API server's error for a change of an object, or nil if it accepts the
// change.
func refused(was, now Props) error {
	kind := kindOf(now)
	var errs fields.ErrorList
	for _, r := range refusals[kind] {
		if strings.Contains(r.why, "`immutable`") && was["immutable"] != true {
			continue
		}
		for path := range strings.FieldsSeq(r.path) {
			keys := pathKeys(path)
			if value := at(now, keys...); !reflect.DeepEqual(at(was, keys...), value) {
				name := path
				if r.as != "" {
					name = r.as
				}
				errs = append(errs, r.form(fields.NewPath(name), value, r.why))
				break
			}
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewInvalid(schema.FromAPIVersionAndKind(text(now, "apiVersion"),
		text(now, "kind")).GroupKind(), text(now, "metadata", "name"), errs)
}

func pathKeys(path string) []any {
	var keys []any
	for key := range strings.SplitSeq(path, ".") {
		keys = append(keys, key)
	}
	return keys
}
