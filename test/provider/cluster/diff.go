package cluster

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// forceNew lists the fields whose change makes the real provider replace an object, besides its
// name and namespace. A change of other fields that the API server does not allow, such as the
// value of a PriorityClass, is sent as an update, which the server refuses in the preview.
var forceNew = map[string][]string{
	"DaemonSet":  {"spec.selector"},
	"Deployment": {"spec.selector"},
	"StatefulSet": {"spec.podManagementPolicy", "spec.revisionHistoryLimit", "spec.selector",
		"spec.serviceName", "spec.volumeClaimTemplates"},
	"Job":                   {"spec.completions", "spec.parallelism", "spec.selector", "spec.template"},
	"ClusterRoleBinding":    {"roleRef"},
	"RoleBinding":           {"roleRef"},
	"StorageClass":          {"parameters", "provisioner"},
	"PersistentVolume":      sources,
	"PersistentVolumeClaim": {"spec.accessModes", "spec.selector", "spec.storageClassName", "spec.volumeName"},
	"ResourceQuota":         {"spec.scopes"},
	"Secret":                {"type"},
	"Service":               {"spec.clusterIP"},
	"Pod": append(within("spec.", "affinity automountServiceAccountToken dnsConfig dnsPolicy "+
		"enableServiceLinks hostAliases hostIPC hostNetwork hostPID hostname"+
		" imagePullSecrets nodeName nodeSelector overhead preemptionPolicy priority "+
		"priorityClassName readinessGates restartPolicy runtimeClassName schedulerName"+
		" securityContext serviceAccount serviceAccountName shareProcessNamespace subdomain "+
		"terminationGracePeriodSeconds volumes"),
		append(container("spec.containers[*]."), container("spec.initContainers[*].")...)...),
}

var sources = within("spec.", "awsElasticBlockStore azureDisk azureFile cephfs cinder csi fc "+
	"flexVolume flocker gcePersistentDisk glusterfs hostPath iscsi"+
	" local nfs photonPersistentDisk portworxVolume quobyte rbd scaleIO storageos vsphereVolume")

func container(path string) []string {
	return within(path, "args command env image imagePullPolicy lifecycle livenessProbe ports "+
		"readinessProbe resources securityContext"+
		" stdin stdinOnce terminationMessagePath terminationMessagePolicy tty volumeDevices volumeMounts workingDir")
}

func within(path, names string) []string {
	var paths []string
	for name := range strings.FieldsSeq(names) {
		paths = append(paths, path+name)
	}
	return paths
}

// replaces reports whether a change at a path replaces an object.
func (s Settings) replaces(o object, path string) bool {
	fields := append([]string{"apiVersion", "kind", "metadata.name", "metadata.namespace"}, forceNew[o.kind()]...)
	immutable := o["immutable"] == true
	if o.kind() == "ConfigMap" && (!s.ConfigMapMutable || immutable) {
		fields = append(fields, "data", "binaryData")
	}
	if o.kind() == "Secret" && (!s.SecretMutable || immutable) {
		fields = append(fields, "data", "stringData")
	}
	path = index.ReplaceAllString(path, "[*]")
	return slices.ContainsFunc(fields, func(f string) bool {
		return path == f || strings.HasPrefix(path, f+".") || strings.HasPrefix(path, f+"[")
	})
}

var index = regexp.MustCompile(`\[\d+\]`)

// difference is a changed value, with its path in the syntax of property paths:
// `metadata.labels["a/b"]`.
type difference struct {
	path string
	kind pulumirpc.PropertyDiff_Kind
}

// differences returns the differences from old to now.
func differences(old, now map[string]any) []difference {
	var all []difference
	walk("", old, now, &all)
	return all
}

func walk(path string, old, now any, all *[]difference) {
	switch {
	case reflect.DeepEqual(old, now):
	case old == nil:
		*all = append(*all, difference{path, pulumirpc.PropertyDiff_ADD})
	case now == nil:
		*all = append(*all, difference{path, pulumirpc.PropertyDiff_DELETE})
	default:
		oldMap, ok1 := old.(map[string]any)
		// the real provider treats an unknown value as having no fields; so if one of the old
		// fields needs a replacement, so does this
		if ok1 && now == unknown {
			for _, key := range slices.Sorted(maps.Keys(oldMap)) {
				*all = append(*all, difference{below(path, key), pulumirpc.PropertyDiff_DELETE})
			}
			return
		}
		nowMap, ok2 := now.(map[string]any)
		if ok1 && ok2 {
			keys := maps.Clone(oldMap)
			maps.Copy(keys, nowMap)
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				walk(below(path, key), oldMap[key], nowMap[key], all)
			}
			return
		}
		oldList, ok1 := old.([]any)
		nowList, ok2 := now.([]any)
		if ok1 && ok2 {
			for i := range max(len(oldList), len(nowList)) {
				walk(fmt.Sprintf("%s[%d]", path, i), at(oldList, i), at(nowList, i), all)
			}
			return
		}
		*all = append(*all, difference{path, pulumirpc.PropertyDiff_UPDATE})
	}
}

var word = regexp.MustCompile(`^[A-Za-z_]\w*$`)

func below(path, key string) string {
	switch {
	case !word.MatchString(key):
		return fmt.Sprintf("%s[%q]", path, key)
	case path == "":
		return key
	}
	return path + "." + key
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// pruned returns a live value without the fields that the inputs do not have: the server sets
// those.
func pruned(live, inputs any) any {
	switch in := inputs.(type) {
	case map[string]any:
		have, ok := live.(map[string]any)
		if !ok {
			return live
		}
		out := map[string]any{}
		for key, e := range in {
			if have[key] != nil {
				out[key] = pruned(have[key], e)
			}
		}
		return out
	case []any:
		have, ok := live.([]any)
		if !ok {
			return live
		}
		out := []any{}
		for i := range min(len(have), len(in)) {
			out = append(out, pruned(have[i], in[i]))
		}
		return out
	}
	return live
}

// Settings has the arguments of the provider resource that affect which changes replace an object.
type Settings struct{ ConfigMapMutable, SecretMutable bool }

// SettingsOf reads the settings from the arguments of the provider resource.
func SettingsOf(args map[string]any) Settings {
	return Settings{
		ConfigMapMutable: fmt.Sprint(args["enableConfigMapMutable"]) == "true",
		SecretMutable:    fmt.Sprint(args["enableSecretMutable"]) == "true",
	}
}

// Diff returns the result of [Settings.Diff].
func (p *Provider) Diff(_ context.Context, r *pulumirpc.DiffRequest) (*pulumirpc.DiffResponse, error) {
	return p.set().Diff(r), nil
}

// Diff compares the existing object, as far as it was requested, with the new inputs.
func (s Settings) Diff(r *pulumirpc.DiffRequest) *pulumirpc.DiffResponse {
	live, now := object(plain(r.Olds)), object(plain(r.News))
	have := object(pruned(map[string]any(live), plain(r.OldInputs)).(map[string]any))
	if have.namespace() == "default" && now.namespace() == "" {
		delete(have.metadata(), "namespace")
	}
	return s.diff(have, now, r.IgnoreChanges)
}

func (s Settings) diff(have, now object, ignored []string) *pulumirpc.DiffResponse {
	answer := &pulumirpc.DiffResponse{Changes: pulumirpc.DiffResponse_DIFF_NONE, HasDetailedDiff: true,
		DetailedDiff: map[string]*pulumirpc.PropertyDiff{}}
	for _, d := range differences(have, now) {
		if slices.ContainsFunc(ignored, func(i string) bool {
			return d.path == i || strings.HasPrefix(d.path, i+".") || strings.HasPrefix(d.path, i+"[")
		}) {
			continue
		}
		answer.Changes = pulumirpc.DiffResponse_DIFF_SOME
		answer.Diffs = append(answer.Diffs, d.path)
		if s.replaces(now, d.path) {
			answer.Replaces = append(answer.Replaces, d.path)
			d.kind++ // the next kind means a replacement
		}
		answer.DetailedDiff[d.path] = &pulumirpc.PropertyDiff{Kind: d.kind}
	}
	answer.DeleteBeforeReplace = len(answer.Replaces) > 0 && now.annotation("autonamed") != "true" &&
		have.id() == now.id()
	return answer
}
