//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Patterns of the log lines that the tutorials show.
const (
	lossLine       = `Loss = \d+\.\d+, steps = \d+`
	evaluationLine = `Evaluation metrics\[v=\d+\]: \{'accuracy': \d\.\d+`
)

// The minikube tutorial: data in a directory of the node, one server and one worker, then a ring of
// two.
func TestMinikubeTutorial(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	began := time.Now()
	j := ns.train("test-mnist",
		"--model_def=mnist.mnist_functional_api.custom_model",
		"--num_epochs=2",
		"--master_resource_request=cpu=0.2,memory=1024Mi",
		"--master_resource_limit=cpu=1,memory=2048Mi",
		"--worker_resource_request=cpu=0.4,memory=1024Mi",
		"--worker_resource_limit=cpu=1,memory=2048Mi",
		"--ps_resource_request=cpu=0.2,memory=1024Mi",
		"--ps_resource_limit=cpu=1,memory=2048Mi",
		"--minibatch_size=64",
		"--num_minibatches_per_task=2",
		"--num_ps_pods=1",
		"--num_workers=1",
		"--evaluation_steps=50",
		"--distribution_strategy=ParameterServerStrategy")
	j.runs("master", "ps-0", "worker-0")
	took(t, "elasticdl train to the worker running", began)
	j.trains(0.8)
	losses, evaluations := grep(j.log("worker-0"), lossLine), grep(j.log("master"), evaluationLine)
	t.Logf("%s\n%s", strings.Join(losses, "\n"), strings.Join(evaluations, "\n"))
	if len(losses) == 0 || len(evaluations) < 2 {
		t.Errorf("%d losses in the log of worker-0, %d evaluations in the master's, want several",
			len(losses), len(evaluations))
	}
	s := j.ends(2)
	took(t, "1 server, 1 worker, 2 epochs", began)
	accurate(t, s.Evaluations[len(s.Evaluations)-1].Metrics["accuracy"])

	began = time.Now()
	j = ns.train("test-mnist-allreduce",
		"--model_def=mnist.mnist_functional_api.custom_model",
		"--num_epochs=1",
		"--master_resource_request=cpu=0.2,memory=1024Mi",
		"--master_resource_limit=cpu=1,memory=2048Mi",
		"--worker_resource_request=cpu=0.4,memory=1024Mi",
		"--worker_resource_limit=cpu=1,memory=2048Mi",
		"--minibatch_size=64",
		"--num_minibatches_per_task=2",
		"--num_workers=2",
		"--distribution_strategy=AllreduceStrategy")
	j.runs("master", "worker-0", "worker-1")
	s = j.ends(1)
	took(t, "a ring of 2, 1 epoch", began)
	accurate(t, s.Evaluations[len(s.Evaluations)-1].Metrics["accuracy"])
	out := ns.elasticdl("list")
	for _, name := range []string{"test-mnist ", "test-mnist-allreduce "} {
		if len(grep(out, name+".*Succeeded")) == 0 {
			t.Errorf("elasticdl list does not say that %ssucceeded:\n%s", name, out)
		}
	}
}

func accurate(t *testing.T, accuracy float64) {
	t.Helper()
	figure(t, "accuracy", fmt.Sprintf("%.4f", accuracy), "> 0.85")
	if accuracy < 0.85 {
		t.Errorf("accuracy %.4f, want 0.85 at least", accuracy)
	}
}

// The GKE tutorial: data on a claim, 2 servers and 4 workers, with high priority for the master,
// the servers and some workers.
func TestGKETutorial(t *testing.T) {
	t.Parallel()
	const epochs = 2
	ns := newNamespace(t)
	ns.claim()
	began := time.Now()
	ns.elasticdl("dataset", "mnist", "--source=../../examples/mnist/data",
		"--to=claim:fileserver-claim/mnist", "--image_name="+image)
	took(t, "elasticdl dataset --to claim:", began)
	j := ns.train("test-mnist", slices.Concat(small, []string{mlp, "--num_epochs=2",
		"--master_pod_priority=high", "--worker_pod_priority=low", "--ps_pod_priority=high",
		"--minibatch_size=64", "--num_minibatches_per_task=64", "--num_ps_pods=2", "--num_workers=4",
		"--evaluation_steps=200", "--grads_to_wait=1", "--log_level=INFO", "--image_pull_policy=Always",
		"--volume=mount_path=/data,claim_name=fileserver-claim",
		"--distribution_strategy=ParameterServerStrategy",
	})...)
	s := j.ends(epochs)
	accurate(t, s.Evaluations[len(s.Evaluations)-1].Metrics["accuracy"])

	began = time.Now()
	model, predicted := filepath.Join(t.TempDir(), "model"), filepath.Join(t.TempDir(), "predicted")
	ns.predicts("test-mnist", predicted)
	took(t, "elasticdl predict, and the download of its file", began)
	began = time.Now()
	t.Log(ns.elasticdl("download", "test-mnist", model))
	took(t, "elasticdl download of the model", began)
	alike(t, model, filepath.Join(predicted, "out.csv"))
}

// predicts runs a prediction job with the trained model on the claim and the test digits, and
// downloads its results. One of the workers is deleted while it runs.
func (ns *namespace) predicts(job, to string) {
	ns.t.Helper()
	j := ns.submit("predict", "guess",
		slices.Concat(small, []string{mlp, "--num_workers=2", "--minibatch_size=1", "--num_minibatches_per_task=1",
			"--volume=mount_path=/data,claim_name=fileserver-claim",
			"--checkpoint_dir_for_init=/data/elasticdl-" + job + "/checkpoints",
			"--prediction_data=/data/mnist/test", "--prediction_outputs=/data/predicted/out.csv"})...)
	j.runs("worker-0")
	ns.kubectl("delete", "pod", "elasticdl-guess-worker-0", "--grace-period=0", "--force", "--ignore-not-found")
	if out, err := ns.try(*elasticdl, "wait", "guess", "--timeout="+wholeJob.String()); err != nil {
		ns.t.Fatalf("%v\n%s", err, out)
	}
	if s := j.reported(); s.Relaunched != 1 || s.RecordsDone != testDigits {
		ns.t.Errorf("%d records predicted with %d pods replaced, want %d and 1", s.RecordsDone,
			s.Relaunched, testDigits)
	}
	ns.t.Log(ns.elasticdl("download", "claim:fileserver-claim/predicted", to, "--image_name="+image))
}

// alike checks that a file of predictions equals what the model in a directory predicts on this
// machine: each record once, in order.
func alike(t *testing.T, model, file string) {
	t.Helper()
	here := filepath.Join(t.TempDir(), "out.csv")
	cmd := exec.Command(*elasticdl, "predict", "--runtime=local", "--job_name=here", mlp,
		"--num_workers=1", "--minibatch_size=1",
		"--checkpoint_dir_for_init="+model, "--prediction_data="+filepath.Join(digits, "mnist", "test"),
		"--prediction_outputs="+here)
	cmd.Env = append(os.Environ(), "ELASTICDL_HOME="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	want, err := os.ReadFile(here)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows := len(grep(string(got), `^\d,(0\.\d+|1)$`))
	figure(t, "digits predicted", strconv.Itoa(rows), fmt.Sprintf("= %d", testDigits))
	if rows != testDigits || string(got) != string(want) {
		t.Errorf("%d rows of predictions, want %d; as this machine predicts, in order: %t", rows,
			testDigits, string(got) == string(want))
	}
}

// The tutorial's part on fault tolerance: worker-0 is deleted, and worker-4 starts at once.
func TestFaultTolerance(t *testing.T) {
	const epochs = 40
	ns := newNamespace(t)
	j := ns.train("test-mnist",
		slices.Concat(small, []string{mlp, "--num_epochs=40", "--num_ps_pods=2", "--num_workers=4",
			"--minibatch_size=64", "--num_minibatches_per_task=4", "--evaluation_steps=500", "--grads_to_wait=1"})...)
	j.runs("master", "ps-0", "ps-1", "worker-0", "worker-1", "worker-2", "worker-3")
	j.trains(0.05)
	pods := []string{"worker-0", "worker-1", "worker-2", "worker-3", "ps-0", "ps-1"}
	before := j.uids(pods...)
	lost := j.replaces(4)
	j.goesOn(trainingDigits / 10)
	if now := j.uids(pods[lost:]...); !slices.Equal(now, before[lost:]) {
		t.Errorf("others were disturbed: %v, before %v", now, before[lost:])
	}
	s := j.ends(epochs)
	if s.Relaunched != int64(lost) {
		t.Errorf("%d pods replaced, want %d", s.Relaunched, lost)
	}
	if lines := grep(j.log("master"), "worker-0"); len(grep(strings.Join(lines, "\n"), "deleted")) == 0 {
		t.Errorf("the master does not say that worker-0 was deleted:\n%s", strings.Join(lines, "\n"))
	}
}

// replaces deletes worker-0 of a job of n, and worker-n must run in its place at once. A machine
// that is busy at that moment delays that, so up to three workers are deleted, until one is
// replaced in time; it returns how many were.
func (j *submitted) replaces(n int) (deleted int) {
	j.t.Helper()
	const limit = 3 * time.Second
	for {
		gone, next := fmt.Sprintf("worker-%d", deleted), fmt.Sprintf("worker-%d", n+deleted)
		done := make(chan string, 1)
		typed := time.Now()
		go func() {
			out, _ := j.try("kubectl", "delete", "pod", "elasticdl-"+j.job+"-"+gone)
			done <- out
		}()
		j.awaits("deletion of "+gone, patience, func() bool { return j.pod(gone) == nil || j.pod(gone).leaving() })
		asked := time.Now()
		j.awaits(next, patience, func() bool { return j.pod(next).running() })
		elapsed := time.Since(asked)
		took(j.t, gone+" deleted to "+next+" running, from the command typed", typed)
		j.t.Log(<-done)
		took(j.t, "kubectl delete pod", typed)
		if deleted++; elapsed < limit || deleted == 3 {
			within(j.t, gone+" deleted to "+next+" running", elapsed, limit)
			return deleted
		}
		took(j.t, "too long, so once more: "+gone+" deleted to "+next+" running", asked)
	}
}

// The same in a ring: the survivors continue, and a newcomer joins.
func TestRingLosesAWorker(t *testing.T) {
	const epochs = 40
	ns := newNamespace(t)
	j := ns.train("ring", slices.Concat(small, []string{mlp, "--num_epochs=40", "--num_workers=3",
		"--min_workers=1", "--max_workers=4",
		"--minibatch_size=64", "--num_minibatches_per_task=4", "--distribution_strategy=AllreduceStrategy"})...)
	j.runs("worker-0", "worker-1", "worker-2")
	j.trains(0.05)
	pods := []string{"worker-0", "worker-1", "worker-2"}
	before := j.uids(pods...)
	lost := j.replaces(3)
	j.awaits("a ring of 3 again", patience, func() bool { return j.status().WorldSize == 3 && j.status().World > 1 })

	out := ns.elasticdl("scale", "ring", "--num_workers=4")
	began := time.Now()
	j.awaits("a ring of 4", patience, func() bool { return j.status().WorldSize == 4 })
	took(t, "scaled to a ring of 4", began)
	t.Log(out)
	if now := j.uids(pods[lost:]...); !slices.Equal(now, before[lost:]) {
		t.Errorf("others were disturbed: %v, before %v", now, before[lost:])
	}
	j.ends(epochs)
}

// --follow streams the pods' logs until the end, and returns the job's exit code.
func TestFollow(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	began := time.Now()
	j := ns.train("followed",
		slices.Concat(small, []string{mlp, "--num_epochs=3", "--num_ps_pods=1", "--num_workers=2", "--follow",
			"--log_loss_steps=20", "--minibatch_size=64"})...)
	took(t, "train --follow, 3 epochs of the MLP", began)
	j.ends(3)
	out, err := ns.try(*elasticdl, "logs", "followed")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`worker-[01].*` + lossLine, `master.*` + evaluationLine} {
		if len(grep(out, want)) == 0 {
			t.Errorf("elasticdl logs has no line of %s", want)
		}
	}
}

// claim creates the tutorial's claim, and returns the directory of this machine that it is.
func (ns *namespace) claim() (dir string) {
	ns.t.Helper()
	dir, err := os.MkdirTemp(filepath.Dir(digits), "claim-")
	if err != nil {
		ns.t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		ns.t.Fatal(err)
	}
	ns.t.Cleanup(func() {
		command("kubectl", "delete", "persistentvolume", ns.name, "--ignore-not-found", "--wait=false")
	})
	ns.apply("testdata/fileserver.yaml", "$VOLUME", ns.name, "$DIRECTORY", dir, "$NAMESPACE", ns.name)
	return dir
}

// uids returns the pods' UIDs, "" for a pod that does not exist.
func (j *submitted) uids(names ...string) []string {
	found := make([]string, len(names))
	j.ask(func() bool {
		for i, name := range names {
			if o := j.pod(name); o != nil {
				found[i] = o.Metadata.UID
			}
		}
		return true
	})
	return found
}
