//go:build e2e

package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// A stack on a cluster that was there before: with a namespace of its own, and in one that it
// shares.
func (s *site) testExisting(t *testing.T) {
	t.Run("own", s.testExistingOwn)
	t.Run("shared", s.testExistingShared)
}

// With the rights of an administrator the stack makes its own namespace, classes and claim, whose
// volume the cluster makes when a pod needs it. Nothing of it is left at its end, and the objects
// of others in the cluster stay unchanged.
func (s *site) testExistingOwn(t *testing.T) {
	t.Setenv("KUBECONFIG", s.kubeconfig)
	tr := s.newTrial(t, "existing", func(config section) {
		config["elasticdl:protectStorage"] = false
		config["elasticdl:existing"] = section{"volume": section{"capacityGb": 1, "storageClass": "of-nobody"}}
		delete(config, "elasticdl:image")
		delete(config, "elasticdl:data")
		maps.Copy(sub(config, "elasticdl:job"), section{"suspend": true, "image": "registry.invalid/elasticdl:none"})
	})
	neighbour := &trial{site: s, t: t, namespace: "next-to-" + tr.namespace}
	theirs := neighbour.others(s.data, map[string]int{"high-of-" + tr.namespace: 1000000})
	before := neighbour.versions(theirs)
	tr.run("kubectl", "create", "namespace", tr.namespace)
	tr.refuses("Namespace "+tr.namespace+" already exists, and is not of this stack", "platform.shareNamespace: true")
	tr.run("kubectl", "delete", "namespace", tr.namespace)
	tr.up()
	tr.unchanged()
	tr.refresh()
	tr.unchanged()
	claim := "v1/PersistentVolumeClaim data-claim"
	if phase := tr.run("kubectl", "get", "pvc", "data-claim", "-o", "jsonpath={.status.phase}"); phase != "Pending" {
		t.Errorf("the claim is %s", phase)
	}
	tr.configure(func(config section) { sub(config, "elasticdl:existing", "volume")["storageClass"] = "of-others" })
	tr.does("delete "+claim, "create "+claim)
	tr.unchanged()
	tr.destroy()
	if left := tr.left(); len(left) > 0 {
		t.Errorf("the cluster still has %v", left)
	}
	if out, err := tr.try("kubectl", "get", "namespace", tr.namespace); err == nil {
		t.Errorf("the namespace is there:\n%s", out)
	}
	neighbour.unchangedSince(before)
}

// In a shared namespace, a user with only the rights that the page lists brings a job from the
// source of its model to its end, changes it and destroys the stack. The objects of others stay
// unchanged: namespaces, classes, volumes, claims, Roles and jobs.
func (s *site) testExistingShared(t *testing.T) {
	registry, err := os.ReadFile(filepath.Join(s.dir, "registry"))
	if err != nil {
		t.Fatal(err)
	}
	namespace := fmt.Sprintf("research-%x", time.Now().UnixMilli()&0xffffff)
	admin := &trial{site: s, t: t, namespace: namespace}
	theirs := admin.others(s.data, map[string]int{"high": 1000000, "low": 1000})
	user := *s
	user.kubeconfig = admin.user(filepath.Join(s.repository, "docs", "infrastructure", "existing.md"))
	t.Setenv("KUBECONFIG", user.kubeconfig)
	tr := user.newTrial(t, "existing", func(config section) {
		config["elasticdl:existing"] = section{"registry": strings.TrimSpace(string(registry)),
			"volume": section{"name": "datasets"}}
		maps.Copy(sub(config, "elasticdl:platform"), section{"namespace": namespace, "shareNamespace": true,
			"sharePriorityClasses": []any{"high", "low"}})
		sub(config, "elasticdl:image")["name"] = "existing/" + namespace
		config["elasticdl:data"] = section{"dataset": "mnist", "path": "mnist", "command": s.elasticdl,
			"source": filepath.Join(s.repository, "examples/mnist/data")}
		j := sub(config, "elasticdl:job")
		maps.Copy(j, section{"modelDef": "mnist.mnist_mlp.custom_model", "numEpochs": 1, "numMinibatchesPerTask": 4,
			"numWorkers": 1, "volumes": []any{section{"claimName": "datasets", "mountPath": "/data"}}})
		for role, cpu := range map[string]string{"master": "50m", "ps": "50m", "worker": "20m"} {
			maps.Copy(sub(j, role), section{"request": section{"cpu": cpu, "memory": "64Mi"},
				"limit": section{"cpu": "500m", "memory": "512Mi"}})
		}
	})
	tr.namespace = namespace
	before := admin.versions(theirs)
	began := time.Now()
	tr.up()
	tr.run("elasticdl", "wait", jobName, "--timeout=4m")
	t.Logf("pulumi up to the end of the job: %v", time.Since(began).Round(100*time.Millisecond))
	first := tr.master()
	tr.unchanged()
	tr.refresh()
	tr.unchanged()
	if again := tr.master(); again != first {
		t.Fatal("the job that had ended was run again")
	}

	tr.configure(func(config section) { sub(config, "elasticdl:job")["numEpochs"] = 1000 })
	tr.does("update "+jobSpec, "delete "+jobMaster, "create "+jobMaster)
	tr.running("worker-0")
	worker := tr.uid("worker-0")
	tr.configure(func(config section) { sub(config, "elasticdl:job")["numWorkers"] = 2 })
	tr.does("update " + jobSpec)
	tr.running("worker-0", "worker-1")
	if tr.uid("worker-0") != worker {
		t.Error("worker-0 was disturbed")
	}
	tr.destroy()
	if left := tr.left(); len(left) > 0 {
		t.Errorf("the cluster still has %v", left)
	}
	admin.unchangedSince(before)
}

// others makes objects of other users: in the trial's namespace, and outside, classes with their
// values among them. It returns their names as kubectl accepts them.
func (tr *trial) others(data string, classes map[string]int) (names []string) {
	tr.t.Helper()
	volume := section{"apiVersion": "v1", "kind": "PersistentVolume", "metadata": section{"name": tr.namespace},
		"spec": section{"capacity": section{"storage": "1Gi"}, "accessModes": []any{"ReadWriteMany"},
			"persistentVolumeReclaimPolicy": "Retain", "storageClassName": "", "hostPath": section{"path": data}}}
	claim := section{"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": section{"name": "datasets"},
		"spec": section{"accessModes": []any{"ReadWriteMany"}, "storageClassName": "", "volumeName": tr.namespace,
			"resources": section{"requests": section{"storage": "1Gi"}}}}
	config := section{"apiVersion": "v1", "kind": "ConfigMap", "metadata": section{"name": "precious"}}
	role := section{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": section{"name": "theirs"},
		"rules": []any{}}
	job := section{"apiVersion": "batch/v1", "kind": "Job", "metadata": section{"name": "theirs"},
		"spec": section{"suspend": true, "template": section{"spec": section{"restartPolicy": "Never",
			"containers": []any{section{"name": "c", "image": "registry.invalid/theirs:1"}}}}}}
	all := []section{volume, claim, config, role, job}
	for name, value := range classes {
		all = append(all, section{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
			"metadata": section{"name": name}, "value": value})
	}
	tr.run("kubectl", "create", "namespace", tr.namespace)
	names = []string{"namespace/" + tr.namespace, "namespace/kube-system"}
	for _, o := range all {
		tr.apply(o)
		kind, name := strings.ToLower(o["kind"].(string)), o["metadata"].(section)["name"].(string)
		names = append(names, kind+"/"+name)
		tr.t.Cleanup(func() { tr.try("kubectl", "delete", kind, name, "--wait=false") })
	}
	tr.t.Cleanup(func() { tr.try("kubectl", "delete", "namespace", tr.namespace, "--wait=false") })
	tr.eventually("volume of the claim", func() bool {
		return tr.run("kubectl", "get", "pvc", "datasets", "-o", "jsonpath={.status.phase}") == "Bound"
	})
	return names
}

// apply applies an object in the trial's namespace.
func (tr *trial) apply(o section, flags ...string) {
	tr.t.Helper()
	text, err := json.Marshal(o)
	file := filepath.Join(tr.t.TempDir(), "object.json")
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		tr.t.Fatal(err)
	}
	tr.run("kubectl", append([]string{"apply", "-f", file}, flags...)...)
}

// versions returns the UID and version of each object.
func (tr *trial) versions(names []string) map[string]string {
	tr.t.Helper()
	all := map[string]string{}
	for _, name := range names {
		all[name] = tr.run("kubectl", "get", name, "-o", "jsonpath={.metadata.uid} {.metadata.resourceVersion}")
	}
	return all
}

// unchangedSince checks that objects have the UIDs and versions that they had.
func (tr *trial) unchangedSince(before map[string]string) {
	tr.t.Helper()
	if now := tr.versions(slices.Collect(maps.Keys(before))); !maps.Equal(now, before) {
		tr.t.Errorf("of others there were\n\t%v\nand there are\n\t%v", before, now)
	}
}

// user makes a user who has the rights of the Role on the page, and no others, and returns the path
// of the user's kubeconfig.
func (tr *trial) user(page string) string {
	tr.t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		tr.t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.*?)```").FindSubmatch(text)
	if block == nil {
		tr.t.Fatalf("%s has no Role", page)
	}
	tr.run("kubectl", "create", "serviceaccount", "somebody")
	account := "--serviceaccount=" + tr.namespace + ":somebody"
	for i, doc := range strings.Split(string(block[1]), "\n---\n") {
		var role section
		if err := yaml.Unmarshal([]byte(doc), &role); err != nil {
			tr.t.Fatal(err)
		}
		metadata, in := sub(role, "metadata"), "--namespace=kube-system"
		if i == 0 {
			metadata["namespace"], in = tr.namespace, "--namespace="+tr.namespace
		}
		name := metadata["name"].(string) + "-" + tr.namespace
		metadata["name"] = name
		tr.apply(role, in)
		tr.run("kubectl", "create", "rolebinding", name, "--role="+name, account, in)
		tr.t.Cleanup(func() { tr.try("kubectl", "delete", "role,rolebinding", name, "--ignore-not-found", in) })
	}
	token := strings.TrimSpace(tr.run("kubectl", "create", "token", "somebody", "--duration=2h"))
	admin, err := os.ReadFile(tr.kubeconfig)
	if err != nil {
		tr.t.Fatal(err)
	}
	var config section
	if err := yaml.Unmarshal(admin, &config); err != nil {
		tr.t.Fatal(err)
	}
	for _, u := range config["users"].([]any) {
		u.(section)["user"] = section{"token": token}
	}
	file := filepath.Join(tr.t.TempDir(), "kubeconfig")
	if text, err = yaml.Marshal(config); err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		tr.t.Fatal(err)
	}
	somebody := &trial{site: &site{kubectl: tr.kubectl, kubeconfig: file}, t: tr.t, namespace: tr.namespace}
	if out, err := somebody.try("kubectl", "get", "namespace", "kube-system"); err != nil {
		tr.t.Errorf("the user may not read the identity of the cluster: %v\n%s", err, out)
	}
	if out, err := somebody.try("kubectl", "get", "priorityclass", "high"); err == nil {
		tr.t.Errorf("the user may read classes of the cluster: %s", out)
	}
	return file
}
