//go:build e2e

package e2e

import (
	"encoding/json"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A pod that is started like a worker's pod, with the same ServiceAccount and token, gets no
// certificate if the master has not created it: neither in the job's namespace nor in another. The
// job is not affected.
func TestStrangersGetNothing(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	other := newNamespace(t)
	j := ns.train("stranger",
		slices.Concat(small, []string{mlp, "--num_epochs=20", "--num_ps_pods=1", "--num_workers=1",
			"--minibatch_size=64"})...)
	j.trains(0.02)
	master := j.found("master").Status.PodIP + ":" + strconv.Itoa(manifest.MasterPort)
	neighbour := j.stranger(ns, "elasticdl-stranger-worker-1", j.serviceAccount(), master)
	foreigner := j.stranger(other, "elasticdl-stranger-worker-1", "default", master)
	for _, c := range []struct {
		in         *namespace
		pod, wants string
	}{
		{ns, neighbour, "pod " + neighbour + ` \(.*\) is not known`},
		{other, foreigner, "expected one that is bound to a pod of namespace " + `.*` + ns.name},
	} {
		eventually(t, "refusal in the log of "+c.in.name+"/"+c.pod, 3*time.Minute, func() bool {
			out, _ := c.in.try("kubectl", "logs", c.pod)
			return len(grep(out, c.wants)) > 0
		})
	}
	for _, p := range j.tells().Pods {
		if p.Role == wire.Role_WORKER && p.Index != 0 {
			t.Errorf("worker %d is of the job", p.Index)
		}
	}
	j.ends(20)
	if lines := grep(j.log("master"), "Pod joined.*worker-1"); len(lines) > 0 {
		t.Errorf("a stranger was let in:\n%s", strings.Join(lines, "\n"))
	}
}

// serviceAccount returns the ServiceAccount of the job's pods.
func (j *submitted) serviceAccount() string {
	j.t.Helper()
	return strings.TrimSpace(j.kubectl("get", "pod", "elasticdl-"+j.job+"-worker-0", "-o",
		"jsonpath={.spec.serviceAccountName}"))
}

// stranger starts a copy of the job's worker in a namespace, which calls the master by its address,
// and returns the pod's name.
func (j *submitted) stranger(in *namespace, name, account, master string) string {
	j.t.Helper()
	var o map[string]any
	if err := json.Unmarshal(
		[]byte(j.kubectl("get", "pod", "elasticdl-"+j.job+"-worker-0", "-o", "json")), &o); err != nil {
		j.t.Fatal(err)
	}
	spec := o["spec"].(map[string]any)
	delete(spec, "nodeName")
	spec["serviceAccountName"], spec["serviceAccount"] = account, account
	container := spec["containers"].([]any)[0].(map[string]any)
	var args []any
	for _, arg := range container["args"].([]any) {
		switch flag, _, _ := strings.Cut(arg.(string), "="); flag {
		case "--master_address":
			arg = flag + "=" + master
		case "--index":
			arg = flag + "=1"
		case "--log_level":
			arg = flag + "=DEBUG" // the log then has each refusal
		}
		args = append(args, arg)
	}
	container["args"] = args
	text, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name}, "spec": spec})
	if err != nil {
		j.t.Fatal(err)
	}
	cmd := exec.Command("kubectl", "create", "--namespace="+in.name, "-f", "-")
	cmd.Stdin = strings.NewReader(string(text))
	if out, err := cmd.CombinedOutput(); err != nil {
		j.t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	return name
}
