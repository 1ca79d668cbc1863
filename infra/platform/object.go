package platform

import (
	"fmt"
	"maps"
	"strings"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

func kind(version, name string) meta.TypeMeta {
	return meta.TypeMeta{APIVersion: version, Kind: name}
}

// object returns the metadata of an object in a namespace, or of a cluster-wide object if the
// namespace is "".
func object(in, name string) meta.ObjectMeta {
	return meta.ObjectMeta{Name: name, Namespace: in, Labels: map[string]string{manifest.LabelApp: manifest.App}}
}

// namespace returns a namespace that enforces a level of Pod Security, and records violations of
// the strictest level in the audit log.
func namespace(name, level string) *core.Namespace {
	const label = "pod-security.kubernetes.io/"
	n := &core.Namespace{TypeMeta: kind("v1", "Namespace"), ObjectMeta: object("", name)}
	for mode, level := range map[string]string{"enforce": level, "warn": level, "audit": restricted} {
		n.Labels[label+mode] = level
		n.Labels[label+mode+"-version"] = podSecurityVersion
	}
	return n
}

// The names of the priority classes that jobs use: --worker_pod_priority=0.5 gives high to one half
// of the workers.
const (
	high = 1000000
	low  = 1000
)

// priorities returns the given priority classes, and adds high and low if they are missing.
func priorities(given map[string]int32) map[string]int32 {
	all := map[string]int32{"high": high, "low": low}
	maps.Copy(all, given)
	return all
}

func priorityClass(name string, value int32) *scheduling.PriorityClass {
	return &scheduling.PriorityClass{
		TypeMeta: kind("scheduling.k8s.io/v1", "PriorityClass"), ObjectMeta: object("", name), Value: value,
		Description:      "For ElasticDL's pods with this priority; never a default.",
		PreemptionPolicy: new(core.PreemptLowerPriority),
	}
}

// holeVolume is the placeholder for the name of a claim's volume.
const holeVolume = "{volume}"

// volumeName returns the name of a volume, which must be unique in the cluster.
func volumeName(in, claim string) string { return in + "-" + claim }

func capacity(gb int) core.ResourceList {
	return core.ResourceList{core.ResourceStorage: *resource.NewQuantity(int64(gb)<<30, resource.BinarySI)}
}

// persistentVolume returns a volume that is reserved for one claim, and retained when the claim is
// deleted: the cluster must not delete its data.
func persistentVolume(in string, v *infra.Volume) *core.PersistentVolume {
	return &core.PersistentVolume{
		TypeMeta: kind("v1", "PersistentVolume"), ObjectMeta: object("", volumeName(in, v.Claim)),
		Spec: core.PersistentVolumeSpec{
			Capacity: capacity(v.CapacityGB), AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteMany},
			PersistentVolumeSource: v.Source, VolumeMode: new(core.PersistentVolumeFilesystem),
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimRetain,
			ClaimRef: &core.ObjectReference{APIVersion: "v1",
				Kind: "PersistentVolumeClaim", Namespace: in, Name: v.Claim},
		},
	}
}

// persistentVolumeClaim returns a claim that is bound to that volume, whatever the volume's size:
// the API does not let a static claim grow, so the claim requests a minimal size. Its class is
// explicitly "": without it the cluster's default class would create a new disk.
func persistentVolumeClaim(in string, v *infra.Volume) *core.PersistentVolumeClaim {
	return &core.PersistentVolumeClaim{
		TypeMeta: kind("v1", "PersistentVolumeClaim"), ObjectMeta: object(in, v.Claim),
		Spec: core.PersistentVolumeClaimSpec{
			AccessModes:      []core.PersistentVolumeAccessMode{core.ReadWriteMany},
			VolumeMode:       new(core.PersistentVolumeFilesystem),
			Resources:        core.VolumeResourceRequirements{Requests: capacity(1)},
			StorageClassName: new(""), VolumeName: volumeName(in, v.Claim),
		},
	}
}

// claimOnDemand returns a claim for which the cluster makes the volume. Its size may grow, if its
// class allows that. Pulumi does not wait until it is bound: with many classes a volume is made for
// the first pod that uses it.
func claimOnDemand(in string, v *infra.Volume) *core.PersistentVolumeClaim {
	c := &core.PersistentVolumeClaim{
		TypeMeta: kind("v1", "PersistentVolumeClaim"), ObjectMeta: object(in, v.Claim),
		Spec: core.PersistentVolumeClaimSpec{
			AccessModes: []core.PersistentVolumeAccessMode{v.OnDemand.AccessMode},
			Resources:   core.VolumeResourceRequirements{Requests: capacity(v.CapacityGB)},
		},
	}
	c.Annotations = map[string]string{"pulumi.com/skipAwait": "true"}
	if class := v.OnDemand.StorageClass; class != "" {
		c.Spec.StorageClassName = &class
	}
	return c
}

const efsDriver = "efs.csi.aws.com"

// storageClass returns a class that creates volumes on demand, as directories of the stack's EFS,
// each with its own access point. The driver deletes the access point with its claim, and keeps the
// directory.
func storageClass(name string, v *infra.Volume) (*storage.StorageClass, error) {
	if v == nil || v.Source.CSI == nil || v.Source.CSI.Driver != efsDriver {
		return nil, fmt.Errorf("platform.storageClass: %s: %s", name, needsEFS)
	}
	// the text after the file system is its access point
	fileSystem, _, _ := strings.Cut(v.Source.CSI.VolumeHandle, "::")
	return &storage.StorageClass{
		TypeMeta: kind("storage.k8s.io/v1", "StorageClass"), ObjectMeta: object("", name), Provisioner: efsDriver,
		Parameters: map[string]string{
			"provisioningMode": "efs-ap", "fileSystemId": fileSystem, "directoryPerms": "700",
			// a UUID is appended; the path of an access point has at most 100 characters
			"basePath": "/volumes", "subPathPattern": "${.PVC.name}",
		},
		ReclaimPolicy: new(core.PersistentVolumeReclaimDelete), VolumeBindingMode: new(storage.VolumeBindingImmediate),
	}, nil
}

// quota returns a ResourceQuota of valid quantities.
func quota(in string, most map[string]string) *core.ResourceQuota {
	hard := core.ResourceList{}
	for name, amount := range most {
		hard[core.ResourceName(name)] = resource.MustParse(amount)
	}
	return &core.ResourceQuota{TypeMeta: kind("v1", "ResourceQuota"),
		ObjectMeta: object(in, manifest.App), Spec: core.ResourceQuotaSpec{Hard: hard}}
}

// DevicePluginImage is the image of NVIDIA's device plugin, with the digest of its version.
const DevicePluginImage = "nvcr.io/nvidia/k8s-device-plugin:v0.20.0" +
	"@sha256:a61ba9fd8efb82f3a79f877f7580e02c1e8e7593f62473644bc9c79e315c3312"

// devicePlugin returns the DaemonSet that reports the GPUs of each node to its kubelet. It is in
// kube-system, where pods may be critical to their nodes and mount host directories.
func devicePlugin(image string, nodes map[string]string) *apps.DaemonSet {
	const name, directory = "nvidia-device-plugin", "/var/lib/kubelet/device-plugins"
	if image == "" {
		image = DevicePluginImage
	}
	labels := map[string]string{"app.kubernetes.io/name": name}
	pod := core.PodSpec{
		PriorityClassName: "system-node-critical", AutomountServiceAccountToken: new(false),
		EnableServiceLinks: new(false),
		NodeSelector:       nodes,
		// the label says where it runs
		Tolerations: []core.Toleration{{Operator: core.TolerationOpExists}},
		Containers: []core.Container{{
			Name: name, Image: image,
			// without the driver of its node it waits instead of exiting
			Env: []core.EnvVar{{Name: "FAIL_ON_INIT_ERROR", Value: "false"}},
			SecurityContext: &core.SecurityContext{
				AllowPrivilegeEscalation: new(false), Capabilities: &core.Capabilities{Drop: []core.Capability{"ALL"}},
			},
			VolumeMounts: []core.VolumeMount{{Name: "device-plugins", MountPath: directory}},
		}},
		Volumes: []core.Volume{{Name: "device-plugins", VolumeSource: core.VolumeSource{
			HostPath: &core.HostPathVolumeSource{Path: directory, Type: new(core.HostPathDirectory)},
		}}},
	}
	return &apps.DaemonSet{
		TypeMeta: kind("apps/v1", "DaemonSet"), ObjectMeta: object("kube-system", manifest.App+"-"+name),
		Spec: apps.DaemonSetSpec{
			Selector:       &meta.LabelSelector{MatchLabels: labels},
			UpdateStrategy: apps.DaemonSetUpdateStrategy{Type: apps.RollingUpdateDaemonSetStrategyType},
			Template:       core.PodTemplateSpec{ObjectMeta: meta.ObjectMeta{Labels: labels}, Spec: pod},
		},
	}
}

// Names of the Roles that an administrator binds to people.
const (
	Submitter = manifest.App + "-submitter" // may submit jobs by the command line
	// may also copy to and from claims: elasticdl dataset --to=claim:…, run --workdir, download
	Data = manifest.App + "-data"
)

// roles returns Roles with the rights that the command line needs, and no others. A submission
// creates the Role of its job's master, and nobody may grant more rights than they have: so a
// submitter may do all that a master may.
func roles(in string) []*rbac.Role {
	rule := func(group, resources, verbs string) rbac.PolicyRule {
		return rbac.PolicyRule{APIGroups: []string{group}, Resources: strings.Fields(resources),
			Verbs: strings.Fields(verbs)}
	}
	role := func(name string, rules ...rbac.PolicyRule) *rbac.Role {
		return &rbac.Role{TypeMeta: kind("rbac.authorization.k8s.io/v1", "Role"),
			ObjectMeta: object(in, name), Rules: rules}
	}
	return []*rbac.Role{
		role(Submitter,
			rule("batch", "jobs", "create delete get list patch watch"),
			rule("batch", "jobs/status", "patch"),
			rule("", "configmaps", "create delete get list patch update watch"),
			// only an account with all rights of a Role may grant it
			rule("", "secrets", "create delete get update"),
			rule("", "services serviceaccounts", "create delete get list"),
			rule("rbac.authorization.k8s.io", "rolebindings roles", "create delete get list"),
			rule("policy", "poddisruptionbudgets", "create delete get list"),
			rule("networking.k8s.io", "networkpolicies", "create delete get list"),
			rule("", "pods", "create delete get list watch"),
			rule("", "pods/log persistentvolumeclaims", "get"),
			rule("", "events", "create list"),
			// why a job in a queue waits
			rule("kueue.x-k8s.io", "localqueues workloads", "get list")),
		role(Data, rule("", "pods/exec", "create get")),
	}
}
