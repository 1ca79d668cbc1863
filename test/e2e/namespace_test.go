//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// patience is the time limit of each wait without a limit of its own. It is generous, because the
// machine may be slow.
const patience = 4 * time.Minute

// wholeJob is the time limit of a job from its submission to its end, and of the pull of a large
// image.
const wholeJob = 8 * time.Minute

// namespace is a namespace of the cluster for one test.
type namespace struct {
	t    *testing.T
	name string
	pair // nodes of its pods
	*view
}

// createNamespace creates a namespace on a pair of nodes and watches it. It is deleted at the end
// of the test, and its objects are printed if the test has failed.
func createNamespace(t *testing.T, on pair) *namespace {
	t.Helper()
	name := strings.ToLower(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(t.Name(), "-"))
	name = fmt.Sprintf("e2e-%.40s-%x", strings.TrimPrefix(name, "test"), time.Now().UnixMilli()&0xffffff)
	ns := &namespace{t: t, name: name, pair: on}
	if err := on.createNamespace(name); err != nil {
		t.Fatal(err)
	}
	namespaces.Store(name, true)
	t.Cleanup(func() {
		if t.Failed() {
			ns.dump()
		}
		if t.Failed() && *keep {
			return
		}
		if err := command("kubectl", "delete", "namespace", name, "--timeout=10m"); err != nil {
			t.Error(err)
		}
	})
	ns.view = look(t.Context(), name, pods, configMaps, jobs, deployments)
	ns.until(t, "default ServiceAccount's certificates", patience, func() bool {
		return ns.now[configMaps]["kube-root-ca.crt"] != nil
	})
	ns.kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=60s")
	return ns
}

// namespaces has the namespaces that were created.
var namespaces sync.Map

// removeNamespaces deletes all namespaces when the run is interrupted before the tests do.
func removeNamespaces() {
	for name := range namespaces.Range {
		command("kubectl", "delete", "namespace", name.(string), "--ignore-not-found", "--wait=false")
	}
}

// kubectl runs kubectl in the namespace, and fails the test if the command fails.
func (ns *namespace) kubectl(args ...string) string {
	ns.t.Helper()
	out, err := ns.try("kubectl", args...)
	if err != nil {
		ns.t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// elasticdl runs the program in the namespace, and fails the test if the command fails.
func (ns *namespace) elasticdl(args ...string) string {
	ns.t.Helper()
	out, err := ns.try(*elasticdl, args...)
	if err != nil {
		ns.t.Fatalf("%v\n%s", err, out)
	}
	return out
}

// try runs a program with --namespace, before the arguments for other programs, and returns its
// output.
func (ns *namespace) try(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wholeJob+2*time.Minute)
	defer cancel()
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	args = slices.Insert(slices.Clone(args), end, "--namespace="+ns.name)
	cmd := exec.CommandContext(ctx, name, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s %s: %w", name, strings.Join(args, " "), err)
	}
	return string(out), err
}

// apply creates the objects in a file of testdata, with $NAME replaced.
func (ns *namespace) apply(file string, replace ...string) {
	ns.t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		ns.t.Fatal(err)
	}
	ns.create(strings.NewReplacer(replace...).Replace(string(text)))
}

// create creates or changes the objects of a text in YAML or JSON.
func (ns *namespace) create(text string) {
	ns.t.Helper()
	cmd := exec.Command("kubectl", "apply", "--namespace="+ns.name, "-f", "-")
	cmd.Stdin = strings.NewReader(text)
	if out, err := cmd.CombinedOutput(); err != nil {
		ns.t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}

// dump prints the objects in the namespace, and the logs.
func (ns *namespace) dump() {
	show := func(args ...string) {
		out, _ := ns.try("kubectl", args...)
		ns.t.Logf("kubectl %s\n%s", strings.Join(args, " "), out)
	}
	show("get",
		"all,configmaps,serviceaccounts,roles,rolebindings,poddisruptionbudgets,networkpolicies", "-o",
		"wide", "--show-labels")
	show("get", "events", "--sort-by=.metadata.creationTimestamp")
	show("get", "configmaps", "-l", "app=elasticdl", "-o", "yaml")
	out, _ := ns.try("kubectl", "get", "pods", "-o", "name")
	for pod := range strings.Lines(out) {
		show("logs", strings.TrimSpace(pod), "--tail=200")
	}
}

// submitted is a submitted job in its namespace.
type submitted struct {
	*namespace
	job string
	// each of its workers takes a slot of its node
	slotted bool
}

// small has the resources of pods for which the tutorials set none: two nodes share one machine.
// The CPU limit of workers sets their speed, which is about the same on any machine, so that there
// is time to disturb a job.
var small = []string{
	"--master_resource_request=cpu=20m,memory=64Mi", "--master_resource_limit=cpu=1,memory=512Mi",
	"--ps_resource_request=cpu=20m,memory=64Mi", "--ps_resource_limit=cpu=1,memory=512Mi",
	"--worker_resource_request=cpu=20m,memory=64Mi", "--worker_resource_limit=cpu=0.2,memory=512Mi",
}

// mlp is for tests in which the model does not matter.
const mlp = "--model_def=mnist.mnist_mlp.custom_model"

// train submits a training job with these flags and the flags of all training jobs.
func (ns *namespace) train(job string, flags ...string) *submitted {
	ns.t.Helper()
	return ns.submit("train", job,
		slices.Concat([]string{"--training_data=/data/mnist/train", "--validation_data=/data/mnist/test"}, flags)...)
}

// submit submits a job with these flags and the flags of all jobs.
func (ns *namespace) submit(command, job string, flags ...string) *submitted {
	ns.t.Helper()
	j := &submitted{namespace: ns, job: job}
	began := time.Now()
	common := []string{command, "--job_name=" + job, "--image_name=" + image, "--model_zoo=model_zoo"}
	if !slices.ContainsFunc(flags, func(f string) bool { return strings.HasPrefix(f, "--volume=") }) {
		common = append(common, "--volume=host_path="+digits+",mount_path=/data")
	}
	out := ns.elasticdl(append(common, flags...)...)
	ns.t.Logf("elasticdl %s: %v\n%s", command, time.Since(began).Round(time.Millisecond), out)
	return j
}

// status returns the job's status as the master has last written it, or nil if it has not. Like pod
// and workers it reads what is watched, and is called in conditions only.
func (j *submitted) status() *wire.JobStatus {
	state := j.last["elasticdl-"+j.job+"-state"]
	if state == nil || state.Data["status.json"] == "" {
		return nil
	}
	s := &wire.JobStatus{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal(
		[]byte(state.Data["status.json"]), s); err != nil {
		j.t.Errorf("status.json: %v", err)
	}
	return s
}

// eventReported reports whether there is an event of that type and reason about the master's Job.
func (j *submitted) eventReported(kind, reason string) bool {
	out, err := j.try("kubectl", "get", "events", "-o", "name",
		"--field-selector=involvedObject.kind=Job,involvedObject.name=elasticdl-"+j.job+"-master,type="+
			kind+",reason="+reason)
	return err == nil && strings.HasPrefix(out, "event/")
}

// pod returns the pod of the job with that name, such as "master" or "worker-0", nil if there is
// none.
func (j *submitted) pod(name string) *object { return j.now[pods]["elasticdl-"+j.job+"-"+name] }

// found returns a pod of the job in its present state, which must exist.
func (j *submitted) found(name string) (o *object) {
	j.ask(func() bool {
		o = j.pod(name)
		return true
	})
	return o
}

// tells returns the job's present status, which must exist.
func (j *submitted) tells() (s *wire.JobStatus) {
	j.t.Helper()
	j.awaits("status", patience, func() bool {
		s = j.status()
		return s != nil
	})
	return s
}

// workers returns the job's workers for which is returns true.
func (j *submitted) workers(is func(*object) bool) (found []string) {
	for name, o := range j.now[pods] {
		if worker, ok := strings.CutPrefix(name, "elasticdl-"+j.job+"-"); ok &&
			strings.HasPrefix(worker, "worker-") && is(o) {
			found = append(found, worker)
		}
	}
	slices.Sort(found)
	return found
}

func pending(o *object) bool { return o.Status.Phase == "Pending" && !o.leaving() }

// progresses waits until a condition is true. The limit is the time in which no further record is
// trained on: a job on a slow machine takes longer, one that stands still does not.
func (j *submitted) progresses(what string, limit time.Duration, is func() bool) {
	j.t.Helper()
	if !j.advances(limit, is) {
		j.miss(j.t, what, limit)
	}
}

// advances reports whether a condition becomes true before no further record is trained on for the
// limit.
func (j *submitted) advances(limit time.Duration, is func() bool) (done bool) {
	for records, more := int64(-1), true; more && !done; {
		more = j.within(limit, func() bool {
			s := j.status()
			further := s != nil && s.RecordsDone > records
			if further {
				records = s.RecordsDone
			}
			done = is()
			return done || further
		})
	}
	return done
}

// awaits waits until a condition is true; the job must not end before.
func (j *submitted) awaits(what string, limit time.Duration, is func() bool) {
	j.t.Helper()
	j.progresses(what+" of "+j.job, limit, func() bool {
		if is() {
			return true
		}
		if root := j.now[jobs]["elasticdl-"+j.job+"-master"]; root.is("Complete", "True") || root.is("Failed", "True") {
			j.t.Fatalf("job %s ended before %s: %v", j.job, what, j.status())
		}
		return false
	})
}

// runs waits until these pods are running: "master", "ps-0", "worker-0".
func (j *submitted) runs(pods ...string) {
	j.t.Helper()
	for _, name := range pods {
		j.awaits("running "+name, patience, func() bool { return j.pod(name).running() })
	}
}

// trains waits until a fraction of the records is done.
func (j *submitted) trains(fraction float64) {
	j.t.Helper()
	j.awaits(fmt.Sprintf("%.0f %% of the records", 100*fraction), patience, func() bool {
		s := j.status()
		return s != nil && s.RecordsTotal > 0 && float64(s.RecordsDone) >= fraction*float64(s.RecordsTotal)
	})
}

// goesOn waits until n more records are done.
func (j *submitted) goesOn(n int64) {
	j.t.Helper()
	var from int64 = -1
	j.awaits("further training", patience, func() bool {
		s := j.status()
		if s != nil && from < 0 {
			from = s.RecordsDone
		}
		return s != nil && s.RecordsDone >= from+n
	})
}

// hurries shortens the rest of a job that will not be disturbed any more: it gets eight workers.
func (j *submitted) hurries() {
	j.t.Helper()
	if j.slotted {
		setSlots(j.t, j.nodes[0], 4)
		setSlots(j.t, j.nodes[1], 4)
	}
	s := j.tells()
	figure(j.t, "records done when the job has no further faults",
		fmt.Sprintf("%.0f %%", 100*float64(s.RecordsDone)/float64(s.RecordsTotal)), "")
	if out, err := j.try(*elasticdl, "scale", j.job, "--num_workers=8"); err != nil {
		j.t.Logf("%v\n%s", err, out) // the job may have ended
	}
}

// ends waits until the job succeeds, with every record of every epoch credited once.
func (j *submitted) ends(epochs int64) *wire.JobStatus {
	j.t.Helper()
	root := "elasticdl-" + j.job + "-master"
	j.progresses("end of "+j.job, wholeJob, func() bool {
		o := j.now[jobs][root]
		return o.is("Complete", "True") || o.is("Failed", "True")
	})
	if out, err := j.try(*elasticdl, "wait", j.job, "--timeout=30s"); err != nil {
		j.t.Fatalf("%v\n%s", err, out)
	}
	s := j.reported()
	if want := epochs * trainingDigits; s.State != "Succeeded" || s.RecordsDone != want || s.RecordsTotal != want {
		j.t.Errorf("%s %q with %d records of %d done, want %d", s.State, s.Reason, s.RecordsDone, s.RecordsTotal, want)
	}
	figure(j.t, "records done", strconv.FormatInt(s.RecordsDone, 10), fmt.Sprintf("= %d x %d", epochs, trainingDigits))
	return s
}

// reported returns the status that elasticdl reports. Of a job that has just ended the watched
// status may be older.
func (j *submitted) reported() *wire.JobStatus {
	j.t.Helper()
	text := j.elasticdl("status", j.job, "-o", "json")
	s := &wire.JobStatus{}
	if err := (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), s); err != nil {
		j.t.Fatalf("status: %v\n%s", err, text)
	}
	return s
}

// log returns the log of a pod, such as "worker-0".
func (j *submitted) log(pod string) string {
	j.t.Helper()
	return j.kubectl("logs", "elasticdl-"+j.job+"-"+pod)
}

// grep returns the lines of a text that match.
func grep(text, pattern string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); regexp.MustCompile(pattern).MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// everything returns the objects of the namespace of every kind, except for events.
func (ns *namespace) everything(labels string) []string {
	ns.t.Helper()
	kinds := strings.Fields(ns.kubectl("api-resources", "--verbs=list", "--namespaced", "-o", "name"))
	kinds = slices.DeleteFunc(kinds, func(k string) bool { return strings.HasPrefix(k, "events") })
	args := []string{"get", strings.Join(kinds, ","), "-o", "name", "--ignore-not-found"}
	if labels != "" {
		args = append(args, "-l", labels)
	}
	var found []string
	for line := range strings.Lines(ns.kubectl(args...)) {
		if !strings.HasPrefix(line, "Warning:") {
			found = append(found, strings.TrimSpace(line))
		}
	}
	slices.Sort(found)
	return found
}

// slots sets how many units of the tests' own resource each of the namespace's nodes has, which
// pods request. At the end of the test the nodes have none.
func (ns *namespace) slots(count ...int) {
	ns.t.Helper()
	cluster := look(ns.t.Context(), "", nodes)
	for i, n := range count {
		setSlots(ns.t, ns.nodes[i], n)
		ns.t.Cleanup(func() { setSlots(ns.t, ns.nodes[i], 0) })
	}
	cluster.until(ns.t, "slots", patience, func() bool {
		for i, n := range count {
			if o := cluster.now[nodes][ns.nodes[i]]; o == nil ||
				o.Status.Allocatable["elastic.dev/slot"] != strconv.Itoa(n) {
				return false
			}
		}
		return true
	})
}

func setSlots(t *testing.T, node string, n int) {
	patch, err := json.Marshal(
		map[string]any{"status": map[string]any{"capacity": map[string]string{"elastic.dev/slot": strconv.Itoa(n)}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := command("kubectl", "patch", "node", node, "--subresource=status", "--type=merge", "-p",
		string(patch)); err != nil {
		t.Error(err)
	}
}

// eventually polls a condition that cannot be watched, until it is true.
func eventually(t *testing.T, what string, limit time.Duration, is func() bool) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(limit); !is(); <-tick.C {
		if time.Now().After(deadline) {
			missed(t, what, limit, "")
		}
	}
}

// exitCode returns the exit code of a program that try has run.
func exitCode(err error) int {
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return 0
}
