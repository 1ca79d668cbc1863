//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/test/torch"
)

// pushTorch pushes the image of all programs, once, and returns its name. The image has Python,
// PyTorch and the scripts, but no elasticdl.
var pushTorch = sync.OnceValues(func() (string, error) {
	began := time.Now()
	scripts, err := filepath.Glob("testdata/*.py")
	if err != nil {
		return "", err
	}
	reference := registry + "/torch:debian"
	size, err := torch.PushImage(context.Background(), reference,
		append(scripts, "../local/testdata/plain.py", "../local/testdata/counts.py")...)
	note("an image of Debian's PyTorch made and pushed", rounded(time.Since(began)), "")
	note("its size", fmt.Sprintf("%d MB", size/1e6), "")
	return reference, err
})

// torchPulls has the pull of that image by each node, which is done once: functions that return an
// error, by the node's name.
var torchPulls sync.Map

// torchImage returns the name of an image with PyTorch, which the namespace's nodes have on their
// disks. It is so large that a slow disk writes it for minutes: meanwhile a job's first worker may
// do the work of all, and pods of any job start late.
func (ns *namespace) torchImage() string {
	ns.t.Helper()
	reference, err := pushTorch()
	if err != nil {
		ns.t.Fatal(err)
	}
	var group errgroup.Group
	for _, node := range ns.nodes {
		pull, _ := torchPulls.LoadOrStore(node, sync.OnceValue(func() error { return ns.pull(node, reference) }))
		group.Go(pull.(func() error))
	}
	if err := group.Wait(); err != nil {
		ns.t.Fatal(err)
	}
	return reference
}

// pull makes a node pull an image, and returns when the disk has it.
func (ns *namespace) pull(node, reference string) error {
	began, pod := time.Now(), "pull-on-"+node
	ns.t.Logf("%s pulls %s", node, reference)
	for _, args := range [][]string{
		{"run", pod, "--image=" + reference, "--restart=Never", "--command", "--overrides=" +
			`{"spec": {"nodeName": "` + node + `"}}`, "--", "sh", "-c", ":"},
		{"wait", "pod/" + pod, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=" + wholeJob.String()},
		{"delete", "pod", pod},
	} {
		if out, err := ns.try("kubectl", args...); err != nil {
			return fmt.Errorf("%w\n%s", err, out)
		}
	}
	unix.Sync()
	note("its pull by "+node, rounded(time.Since(began)), "")
	return nil
}

// running is a job that runs a program. Its scripts share a directory of this machine.
type running struct {
	*submitted
	home string
}

// smallProgram has the resources of a program's pods.
var smallProgram = []string{
	"--master_resource_request=cpu=20m,memory=64Mi", "--master_resource_limit=cpu=1,memory=512Mi",
	"--worker_resource_request=cpu=20m,memory=128Mi", "--worker_resource_limit=cpu=1,memory=1Gi",
}

// program submits a job that runs a script of the image with arguments; the first argument is the
// script's directory.
func (ns *namespace) program(job string, flags []string, script string, args ...string) *running {
	ns.t.Helper()
	reference := ns.torchImage()
	r := &running{&submitted{namespace: ns, job: job}, ns.directory()}
	began := time.Now()
	out := ns.elasticdl(slices.Concat([]string{"run", "--job_name=" + job, "--image_name=" + reference,
		"--agent_image_name=" + image,
		"--envs=OMP_NUM_THREADS=1", "--volume=host_path=" + r.home + ",mount_path=/home"}, smallProgram, flags,
		[]string{"--", "python3", "/scripts/" + script, "/home"}, args)...)
	ns.t.Logf("elasticdl run: %v\n%s", time.Since(began).Round(time.Millisecond), out)
	return r
}

// directory returns a directory in which pods of any user may write.
func (ns *namespace) directory() string {
	ns.t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(digits), "home-")
	if err == nil {
		ns.t.Cleanup(func() { os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		ns.t.Fatal(err)
	}
	return dir
}

// leave creates an empty file in the scripts' directory, as a signal to them.
func (r *running) leave(name string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.home, name), nil, 0o644); err != nil {
		r.t.Fatal(err)
	}
}

// stepped is a step as a script's process reports it, with its time.
type stepped struct {
	at                     time.Time
	worker                 string
	step, rank, world, pid int
}

var steppedLine = regexp.MustCompile(`(?m)^(\S+) std(?:out|err) F .*\bstep (\d+) rank (\d+) world (\d+) pid (\d+)`)

// steps returns the steps that the processes of the present workers have reported, from the logs
// that the nodes' kubelets keep.
func (r *running) steps() (all []stepped) {
	files, _ := filepath.Glob(filepath.Join(*cluster, "node-*", "pod-logs", r.name+"_elasticdl-"+r.job+
		"-worker-*_*", "worker", "*.log"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // its pod was deleted at this moment
		}
		pod := filepath.Base(filepath.Dir(filepath.Dir(file)))
		worker := strings.TrimPrefix(strings.Split(pod, "_")[1], "elasticdl-"+r.job+"-")
		for _, m := range steppedLine.FindAllSubmatch(text, -1) {
			s := stepped{worker: worker}
			s.at, _ = time.Parse(time.RFC3339Nano, string(m[1]))
			for i, to := range []*int{&s.step, &s.rank, &s.world, &s.pid} {
				*to, _ = strconv.Atoi(string(m[2+i])) // the pattern matches digits only
			}
			all = append(all, s)
		}
	}
	return all
}

// steppers has the processes of a world.
type steppers struct {
	at  time.Time      // time at which each had stepped
	pid map[string]int // by worker
	to  int            // the newest step
}

// all waits until all processes of a world of that size have stepped since a time, and returns when
// they had. Each worker has one process; the workers in without must not be among them.
func (r *running) all(size int, since time.Time, without ...string) steppers {
	r.t.Helper()
	var found steppers
	eventually(r.t, fmt.Sprintf("step of %d processes of %s", size, r.job), patience, func() bool {
		r.ask(func() bool {
			if root := r.now[jobs]["elasticdl-"+r.job+"-master"]; root.is("Complete", "True") ||
				root.is("Failed", "True") {
				r.t.Fatalf("job %s ended before %d processes stepped: %v", r.job, size, r.status())
			}
			return true
		})
		found = steppers{pid: make(map[string]int)}
		type slot struct {
			rank   int
			worker string
		}
		// a rank may have belonged to another worker in the world before
		first, last := make(map[slot]stepped), make(map[int]stepped)
		for _, s := range r.steps() {
			if s.world != size || !s.at.After(since) || slices.Contains(without, s.worker) {
				continue
			}
			at := slot{s.rank, s.worker}
			if was, ok := first[at]; !ok || s.at.Before(was.at) {
				first[at] = s
			}
			if s.at.After(last[s.rank].at) {
				last[s.rank] = s
			}
			found.to = max(found.to, s.step)
		}
		for rank, s := range last {
			found.pid[s.worker] = s.pid
			if began := first[slot{rank, s.worker}].at; began.After(found.at) {
				found.at = began
			}
		}
		return len(last) == size && len(found.pid) == size
	})
	return found
}

// after waits as all does, and records how long it took.
func (r *running) after(what string, size int, since time.Time, without ...string) steppers {
	r.t.Helper()
	s := r.all(size, since, without...)
	figure(r.t, what, rounded(s.at.Sub(since)), "")
	return s
}

// ended waits for the job's success.
func (r *running) ended() {
	r.t.Helper()
	if out, err := r.try(*elasticdl, "wait", r.job, "--timeout=10m"); err != nil {
		r.t.Fatalf("%v\n%s", err, out)
	}
}

// last returns the lines of the workers' logs that match.
func (r *running) last(pattern string) (lines []string) {
	r.t.Helper()
	out, err := r.try(*elasticdl, "logs", r.job)
	if err != nil {
		r.t.Fatal(err)
	}
	return grep(out, pattern)
}

// A script that does not use ElasticDL: one of its two workers is deleted, it is scaled up and
// down, and its master is killed, by its process and by its pod. TestProgramsLoseANode has the loss
// of a node.
func TestProgramAsItStands(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	began := time.Now()
	r := ns.program("plain", []string{"--num_workers=2", "--max_workers=3"}, "plain.py", "0.1")
	r.after("elasticdl run to both workers stepping", 2, began)

	began = time.Now()
	ns.kubectl("delete", "pod", "elasticdl-plain-worker-0", "--wait=false")
	s := r.after("worker-0 deleted to both stepping", 2, began, "worker-0")
	if s.pid["worker-1"] == 0 || s.pid["worker-2"] == 0 {
		t.Errorf("worker-0 was deleted, and %v step", s.pid)
	}
	began = time.Now()
	ns.elasticdl("scale", "plain", "--num_workers=3")
	r.after("elasticdl scale to three stepping", 3, began)
	began = time.Now()
	ns.elasticdl("scale", "plain", "--num_workers=1")
	one := r.after("elasticdl scale to one stepping", 1, began)

	former := r.uids("master")[0]
	if !crash(r.found("master")) {
		t.Fatal("the master has no process")
	}
	r.awaits("another master", patience, func() bool {
		return r.pod("master").running() && r.pod("master").Metadata.UID != former
	})
	master, began := r.uids("master")[0], time.Now()
	ns.kubectl("delete", "pod", r.found("master").Metadata.Name, "--grace-period=0", "--force")
	r.awaits("another master", patience, func() bool {
		return r.pod("master").running() && r.pod("master").Metadata.UID != master
	})
	took(t, "master deleted to another one running", began)
	if now := r.all(1, time.Now()); !maps.Equal(now.pid, one.pid) {
		t.Errorf("%v step after the master's losses, before %v", now.pid, one.pid)
	}
	began = time.Now()
	ns.elasticdl("scale", "plain", "--num_workers=2")
	last := r.after("the next master scales to two stepping", 2, began)
	r.leave("enough")
	r.ended()
	r.learnt(last)
}

// learnt checks that a plain script has ended with two ranks, which have continued with its
// snapshots and learnt.
func (r *running) learnt(last steppers) {
	r.t.Helper()
	lines := r.last(`rank \d ends after step (\d+) with loss`)
	r.t.Log(strings.Join(lines, "\n"))
	if len(lines) != 2 {
		r.t.Fatalf("%d ranks say what they have learnt, want 2", len(lines))
	}
	m := regexp.MustCompile(`step (\d+) with loss (\S+)`).FindStringSubmatch(lines[0])
	step, _ := strconv.Atoi(m[1])
	loss, _ := strconv.ParseFloat(m[2], 64)
	figure(r.t, "steps", m[1], fmt.Sprintf("> %d", last.to))
	figure(r.t, "loss", m[2], "< 0.05")
	if step < last.to || loss > 0.05 {
		r.t.Errorf("%s: want at least %d steps, and a loss below 0.05", lines[0], last.to)
	}
}

// counted is the number of records on which counts.py trains, twice.
const counted = 8000

// A node is lost with the workers of two jobs. One runs a script that gets its records from the
// package: two of its four workers are lost, and then its master. The other workers keep their
// processes, and each record is in the model as often as it should be. The other job runs a script
// that does not use ElasticDL: one of its two workers is lost. The other one continues alone with
// the newest snapshot, and both do when another has taken the place of the lost one on the node
// that is left.
func TestProgramsLoseANode(t *testing.T) {
	t.Parallel()
	ns := newNamespaceApart(t)
	plain := ns.onEach("plain", "plain.py", "0.1")
	var r *running
	began := time.Now()
	ns.halves(func() *submitted {
		r = ns.program("counts",
			[]string{"--num_workers=4", "--worker_resource_request=cpu=20m,memory=128Mi,elastic.dev/slot=1",
				"--worker_resource_limit=cpu=1,memory=1Gi,elastic.dev/slot=1"}, "counts.py",
			strconv.Itoa(counted), "0.3")
		return r.submitted
	}, "master")
	before := r.after("elasticdl run to four workers stepping", 4, began)
	survivors := r.runningOn(ns.nodes[0])

	began = time.Now()
	back := killed(t, ns.nodes[1])
	r.same(r.after("node killed to the others stepping", 2, began), before, survivors)
	alone := plain.after("node killed to the plain script's other worker stepping", 1, began, "worker-1")
	again := plain.after("node killed to the plain script's worker replaced, and both stepping", 2, began, "worker-1")
	if alone.pid["worker-0"] == 0 || again.pid["worker-0"] == 0 {
		t.Errorf("worker-1 of the plain script was lost; then %v step, and then %v", alone.pid, again.pid)
	}
	r.awaits("replacements of the workers of the lost node", patience, func() bool {
		return len(r.workers(pending)) == 2
	})
	took(t, "node killed to its workers replaced", began)
	back()
	began = time.Now()
	four := r.after("node back to four workers stepping", 4, began)
	r.same(four, before, survivors)

	master, began := r.uids("master")[0], time.Now()
	ns.kubectl("delete", "pod", r.found("master").Metadata.Name, "--grace-period=0", "--force")
	r.awaits("another master", patience, func() bool {
		return r.pod("master").running() && r.pod("master").Metadata.UID != master
	})
	took(t, "master deleted to another one running", began)
	r.same(r.all(4, time.Now()), four, slices.Collect(maps.Keys(four.pid)))
	done := r.done()
	r.awaits("further records", patience, func() bool { return r.status().RecordsDone > done })
	took(t, "master deleted to further records credited", began)
	plain.leave("enough")
	r.leave("enough")
	plain.ended()
	plain.learnt(again)
	r.countedRight(t, 4)
}

// countedRight waits for the success of a job of counts.py, and checks that the model of each rank
// has each record twice.
func (r *running) countedRight(t *testing.T, ranks int) {
	t.Helper()
	r.ended()
	if s := r.reported(); s.RecordsDone != 2*counted || s.RecordsTotal != 2*counted {
		t.Errorf("%d records of %d done, want %d", s.RecordsDone, s.RecordsTotal, 2*counted)
	}
	lines := r.last("counted ")
	for _, line := range lines {
		if !strings.Contains(line, fmt.Sprintf("counted %d right, 0 wrong", counted)) {
			t.Error(line)
		}
	}
	figure(t, "ranks whose model has each record twice", strconv.Itoa(len(lines)), fmt.Sprint("= ", ranks))
	if len(lines) != ranks {
		t.Errorf("%d ranks say what their model has, want %d", len(lines), ranks)
	}
}

// onEach submits a job that runs a script with a worker on each node, worker-1 on the second, and
// the master on the first.
func (ns *namespace) onEach(job, script string, args ...string) *running {
	ns.t.Helper()
	ns.cordon(ns.nodes[1])
	r := ns.program(job, []string{"--num_workers=1", "--max_workers=2"}, script, args...)
	r.runs("master", "worker-0")
	ns.kubectl("uncordon", ns.nodes[1])
	ns.cordon(ns.nodes[0])
	ns.elasticdl("scale", job, "--num_workers=2")
	r.awaits("worker-1 on the second node", patience, func() bool {
		o := r.pod("worker-1")
		return o.running() && o.Spec.NodeName == ns.nodes[1]
	})
	ns.kubectl("uncordon", ns.nodes[0])
	r.all(2, time.Time{})
	return r
}

// same checks that workers have the same processes as before.
func (r *running) same(now, before steppers, workers []string) {
	r.t.Helper()
	for _, w := range workers {
		if now.pid[w] == 0 || now.pid[w] != before.pid[w] {
			r.t.Errorf("%s steps as process %d, before as %d", w, now.pid[w], before.pid[w])
		}
	}
}

// A script that fails on its own fails its job, which reports the first failure, and not those that
// followed from it in other processes. When the cause is removed the job continues, also after it
// was suspended.
func TestProgramFails(t *testing.T) {
	t.Parallel()
	const why = "ValueError: the vocabulary has no word 17"
	ns := newNamespace(t)
	r := ns.program("sick", []string{"--num_workers=2", "--max_restarts=1"}, "cured.py")
	out, err := r.try(*elasticdl, "wait", "sick", "--timeout=10m")
	if exitCode(err) != 1 || len(grep(out, "sick Failed: .*"+why)) == 0 {
		t.Errorf("elasticdl wait sick: exit code %d\n%s", exitCode(err), out)
	}
	if out := ns.elasticdl("status", "sick"); len(grep(out, why)) == 0 {
		t.Errorf("elasticdl status sick does not say why it failed:\n%s", out)
	}
	r.leave("cured")
	began := time.Now()
	t.Log(ns.elasticdl("resume", "sick"))
	r.until(t, "next Job", patience, func() bool {
		root := r.now[jobs]["elasticdl-sick-master"]
		return root != nil && !root.is("Failed", "True")
	})
	if s := r.after("elasticdl resume to both stepping", 2, began); s.to < 10 {
		t.Errorf("the program continues with step %d, want that of its snapshot", s.to)
	}

	began = time.Now()
	t.Log(ns.elasticdl("suspend", "sick"))
	r.alone()
	took(t, "elasticdl suspend to the end of all pods", began)
	began = time.Now()
	t.Log(ns.elasticdl("resume", "sick"))
	r.after("elasticdl resume of the suspended to both stepping", 2, began)
	r.leave("enough")
	r.ended()
}

// A namespace with the restricted Pod Security level accepts the pods of such a program, which run
// as the user that the job names. Their shared memory is larger than the runtime's default of 64
// MiB.
func TestProgramRestricted(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	reference := ns.torchImage()
	ns.kubectl("label", "namespace", ns.name, "pod-security.kubernetes.io/enforce=restricted")
	r := &running{&submitted{namespace: ns, job: "large"}, ""}
	t.Log(ns.elasticdl(slices.Concat([]string{"run", "--job_name=large", "--num_workers=1",
		"--image_name=" + reference, "--agent_image_name=" + image}, smallProgram,
		[]string{"--run_as_user=65532", "--", "python3", "/scripts/shm.py"})...))
	r.ended()
	if lines := r.last("160 MiB came through shared memory, user 65532"); len(lines) != 1 {
		t.Errorf(
			"the program does not say that all came through shared memory, or is another user:\n%s",
			ns.elasticdl("logs", "large"))
	}
}

// The status reports the problem of an image: that of the agent, which the master uses too, that of
// the program, and that of an image without elasticdl.
func TestProgramImagesAreNamed(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	absent, busybox := registry+"/nobody/has-pushed:this", registry+"/busybox:1"
	for _, test := range []struct {
		job, want string
		flags     []string
	}{
		{"agentless", `(?s)(ErrImagePull|ImagePullBackOff).*nobody/has-pushed`,
			[]string{"--image_name=" + busybox, "--agent_image_name=" + absent}},
		{"imageless", `worker-0 .*(ErrImagePull|ImagePullBackOff).*nobody/has-pushed`,
			[]string{"--image_name=" + absent, "--agent_image_name=" + image}},
		{"pythonless", `worker-\d .*python3: (not found|install)`,
			[]string{"--image_name=" + busybox, "--agent_image_name=" + image}},
		{"incomplete", `launcher was lost .*has no elasticdl.*--agent_image_name`, []string{"--image_name=" + busybox}},
	} {
		ns.elasticdl(slices.Concat([]string{"run", "--job_name=" + test.job}, smallProgram, test.flags,
			[]string{"--", "python3", "main.py"})...)
		defer ns.elasticdl("stop", test.job)
		eventually(t, "word of the image in elasticdl status "+test.job, patience, func() bool {
			return regexp.MustCompile(test.want).MatchString(ns.elasticdl("status", test.job))
		})
		t.Log(ns.elasticdl("status", test.job))
	}
}
