package kube

import (
	"bytes"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/util/exec"

	"github.com/elasticdl/elasticdl/test/flags"
	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

var twoFiles = map[string]string{"train/data-00000": strings.Repeat("train", 1000),
	"test/data-00000": "test", ".dataset.json": "{}"}

// tree makes files in a new directory, and returns the directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "mnist")
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// holds returns the files in a directory and their contents, nil if there is no directory.
func holds(t *testing.T, dir string) map[string]string {
	t.Helper()
	if _, err := os.Stat(dir); err != nil {
		return nil
	}
	found := make(map[string]string)
	if err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		found[name] = string(text)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return found
}

func streamOf(t *testing.T, dir string) []byte {
	t.Helper()
	from, err := listFiles(t.Context(), dir, func(done, total int64) {})
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	if err := from.write(&stream, func(int64) {}); err != nil {
		t.Fatal(err)
	}
	return stream.Bytes()
}

// cluster returns a client of a cluster with a claim. Its pods get the status on creation.
func cluster(status core.PodStatus) (*Client, *fake.Clientset) {
	set := fake.NewClientset(&core.PersistentVolumeClaim{ObjectMeta: meta.ObjectMeta{Name: "files", Namespace: "n"}})
	set.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		action.(clienttesting.CreateAction).GetObject().(*core.Pod).Status = status
		return false, nil, nil
	})
	return &Client{set: kubetest.Set(set), namespace: "n"}, set
}

var running = core.PodStatus{Phase: core.PodRunning}

// noPods checks that no pods are left, and how many were created.
func noPods(t *testing.T, set *fake.Clientset, created int) {
	t.Helper()
	pods, err := set.CoreV1().Pods("n").List(context.Background(), meta.ListOptions{})
	if err != nil || len(pods.Items) > 0 {
		t.Errorf("pods %v, %v are left", pods, err)
	}
	n := 0
	for _, action := range set.Actions() {
		if action.Matches("create", "pods") {
			n++
		}
	}
	if n != created {
		t.Errorf("%d pods created, want %d", n, created)
	}
}

// receiver returns a stream to the command in the pod, with a directory in the place of its claim.
func receiver(claim string) stream {
	return func(_ context.Context, _ string, command []string, stdin io.Reader, stdout, stderr io.Writer) error {
		to := strings.Replace(strings.TrimPrefix(command[2], "--to="), claimMount, claim, 1)
		if err := Receive(stdin, stdout, to); err != nil {
			return exec.CodeExitError{Err: errors.New("command terminated with exit code 1"), Code: 1}
		}
		return nil
	}
}

func TestCopyToClaim(t *testing.T) {
	what := Copy{From: tree(t, twoFiles), Claim: "files", To: "a/mnist", Image: "r/elasticdl:1", Pull: "Never"}
	claim := t.TempDir()
	client, set := cluster(running)
	var pod *core.Pod
	run := func(ctx context.Context, name string, command []string, stdin io.Reader,
		stdout, stderr io.Writer) (err error) {
		if pod, err = set.CoreV1().Pods("n").Get(ctx, name, meta.GetOptions{}); err != nil {
			return err
		}
		return receiver(claim)(ctx, name, command, stdin, stdout, stderr)
	}
	var last CopyProgress
	for _, existed := range []bool{false, true} {
		got, err := client.copyToClaim(t.Context(), what, run, func(p CopyProgress) { last = p })
		if err != nil || got != existed {
			t.Fatalf("existed %v, %v, want %v", got, err, existed)
		}
		if got := holds(t, filepath.Join(claim, "a/mnist")); !maps.Equal(got, twoFiles) {
			t.Errorf("copied %v, want %v", got, twoFiles)
		}
		if !existed && (last.Done != last.Total || last.Total != 5006) {
			t.Errorf("progress ended with %+v", last)
		}
	}
	noPods(t, set, 2)
	c := pod.Spec.Containers[0]
	if c.Image != what.Image || c.ImagePullPolicy != core.PullNever || len(c.VolumeMounts) != 1 ||
		c.VolumeMounts[0].MountPath != claimMount ||
		pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName != "files" || pod.Spec.ActiveDeadlineSeconds == nil {
		t.Errorf("pod %+v", pod.Spec)
	}
	os.Remove(filepath.Join(claim, "a/mnist/test/data-00000"))
	_, err := client.copyToClaim(t.Context(), what, run, func(CopyProgress) {})
	if err == nil || !strings.Contains(err.Error(),
		"claim:files/a/mnist already exists and holds other files") && !strings.Contains(err.Error(), claim) {
		t.Errorf("%v, want what is in the way", err)
	}
	noPods(t, set, 3)
}

// The pod of a copy for a job runs on a node on which the job's workers can run, so that a new
// volume is in their zone, and as their user.
func TestCopyForAJob(t *testing.T) {
	const spec = `{"pod_spec":{"imagePullSecrets":[{"name":"pull"}],"affinity":{"nodeAffinity":{},"podAntiAffinity":{}}},"worker_pod_spec":{"containers":[{"name":"worker","securityContext":{"runAsUser":1000}}]}}`
	c, err := flags.Job(job.Run, "--job_name=j", "--image_name=r/mine:1",
		"--agent_image_name=r/elasticdl:1", "--gpus=1", "--node_selector=pool=gpu",
		"--tolerations=key=team,operator=Exists",
		"--service_account=trainer", "--cluster_spec_json="+spec, "--", "main.py")
	if err != nil {
		t.Fatal(err)
	}
	p, err := copyPod(Copy{Claim: "files", Image: "r/elasticdl:1", Job: c.Job}, 0)
	if err != nil {
		t.Fatal(err)
	}
	is := p.Spec
	tolerates := func(key string) bool {
		return slices.ContainsFunc(is.Tolerations, func(t core.Toleration) bool { return t.Key == key })
	}
	if is.NodeSelector["pool"] != "gpu" || !tolerates("team") || !tolerates("nvidia.com/gpu") ||
		is.Affinity.NodeAffinity == nil || is.Affinity.PodAntiAffinity != nil {
		t.Errorf("runs on other nodes: %+v", is)
	}
	if is.ServiceAccountName != "trainer" || is.ImagePullSecrets[0].Name != "pull" || is.SecurityContext == nil {
		t.Errorf("runs as another: %+v", is)
	}
	only := is.Containers[0]
	if len(is.Containers) != 1 || len(is.InitContainers) > 0 || only.Image != "r/elasticdl:1" ||
		only.Args[0] != "receive" || len(only.Resources.Limits) != 2 || len(is.Volumes) != 1 ||
		*only.SecurityContext.RunAsUser != 1000 {
		t.Errorf("is a worker: %+v", is)
	}
	if p, err := copyPod(Copy{Claim: "files"}, 0); err != nil || p.Spec.NodeSelector != nil ||
		p.Spec.Tolerations != nil || p.Spec.SecurityContext.RunAsUser != nil {
		t.Errorf("%+v, %v", p.Spec, err)
	}
}

// A copy to a read-only claim is refused, with an error that names the flag; a copy from one is
// not.
func TestCopyToAClaimThatIsReadOnly(t *testing.T) {
	client, set := cluster(running)
	claim := &core.PersistentVolumeClaim{ObjectMeta: meta.ObjectMeta{Name: "fixed", Namespace: "n"},
		Spec: core.PersistentVolumeClaimSpec{AccessModes: []core.PersistentVolumeAccessMode{core.ReadOnlyMany}}}
	if err := set.Tracker().Add(claim); err != nil {
		t.Fatal(err)
	}
	what := Copy{From: tree(t, twoFiles), Claim: "fixed", To: "mnist", Flag: "--workdir=code"}
	_, err := client.copyToClaim(t.Context(), what, receiver(t.TempDir()), func(CopyProgress) {})
	if want := "--workdir=code: the claim is ReadOnlyMany: nothing can be copied to it; expected " +
		"one that is ReadWriteMany"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	noPods(t, set, 0)
	if err := client.checkClaim(t.Context(), "", "fixed", false); err != nil {
		t.Error(err)
	}
}

// A copy whose stream breaks is tried again; one whose pod answers with an error is not.
func TestCopyAgain(t *testing.T) {
	what := Copy{From: tree(t, twoFiles), Claim: "files", To: "mnist", Image: "r/elasticdl:1"}
	client, set := cluster(running)
	claim, attempts := t.TempDir(), 0
	breaks := func(ctx context.Context, pod string, command []string, stdin io.Reader, stdout, stderr io.Writer) error {
		if attempts++; attempts < copyAttempts {
			receiver(claim)(ctx, pod, command, io.LimitReader(stdin, 1000), io.Discard, stderr)
			return io.ErrUnexpectedEOF
		}
		return receiver(claim)(ctx, pod, command, stdin, stdout, stderr)
	}
	if _, err := client.copyToClaim(t.Context(), what, breaks, func(CopyProgress) {}); err != nil ||
		attempts != copyAttempts {
		t.Errorf("%v after %d attempts", err, attempts)
	}
	if got := holds(t, filepath.Join(claim, "mnist")); !maps.Equal(got, twoFiles) {
		t.Errorf("copied %v, want %v", got, twoFiles)
	}
	attempts = 0
	refuses := func(_ context.Context, _ string, _ []string, _ io.Reader, stdout, _ io.Writer) error {
		attempts++
		io.WriteString(stdout, failed+"disk full\n")
		return exec.CodeExitError{Err: errors.New("exit code 1"), Code: 1}
	}
	if _, err := client.copyToClaim(t.Context(), what, refuses, func(CopyProgress) {}); err == nil ||
		!strings.HasSuffix(err.Error(), "disk full") || attempts != 1 {
		t.Errorf("%v after %d attempts, want what the pod said, once", err, attempts)
	}
	noPods(t, set, 2)
}

func TestCopyLeavesNoPod(t *testing.T) {
	what := Copy{From: tree(t, twoFiles), Claim: "files", To: "mnist", Image: "r/elasticdl:1"}
	blocks := func(ctx context.Context, _ string, _ []string, _ io.Reader, _, _ io.Writer) error {
		<-ctx.Done()
		return ctx.Err()
	}
	waits := func(reason string) core.PodStatus {
		return core.PodStatus{Phase: core.PodPending, ContainerStatuses: []core.ContainerStatus{
			{State: core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: reason,
				Message: "no such image"}}}}}
	}
	for name, test := range map[string]struct {
		status core.PodStatus
		want   string
		pods   int
		change func(*Copy)
	}{
		"no claim": {running, "--to=claim:other: namespace n has no such PersistentVolumeClaim", 0, func(c *Copy) {
			c.Claim = "other"
		}},
		"no files":      {running, "read /nothing", 0, func(c *Copy) { c.From = "/nothing" }},
		"ends at once":  {core.PodStatus{Phase: core.PodFailed, Message: "no such command"}, "no such command", 1, nil},
		"never pulled":  {waits("ErrImageNeverPull"), "cannot run: ErrImageNeverPull: no such image", 1, nil},
		"invalid image": {waits("InvalidImageName"), "cannot run: InvalidImageName", 1, nil},
	} {
		client, set := cluster(test.status)
		copied := what
		if test.change != nil {
			test.change(&copied)
		}
		if _, err := client.copyToClaim(t.Context(), copied, blocks,
			func(CopyProgress) {}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
		noPods(t, set, test.pods)
	}
	ctx, cancel := context.WithCancel(t.Context())
	client, set := cluster(running)
	interrupted := func(ctx context.Context, pod string, command []string, stdin io.Reader,
		stdout, stderr io.Writer) error {
		cancel()
		return blocks(ctx, pod, command, stdin, stdout, stderr)
	}
	if _, err := client.copyToClaim(ctx, what, interrupted, func(CopyProgress) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("interrupted: %v", err)
	}
	noPods(t, set, 1)
}

// A copy ends with an error when its pod ends, although the stream hangs.
func TestCopyEndsWithItsPod(t *testing.T) {
	from := tree(t, twoFiles)
	synctest.Test(t, func(t *testing.T) {
		client, set := cluster(running)
		hangs := func(ctx context.Context, pod string, _ []string, _ io.Reader, _, _ io.Writer) error {
			set.CoreV1().Pods("n").UpdateStatus(ctx,
				&core.Pod{ObjectMeta: meta.ObjectMeta{Name: pod, Namespace: "n"},
					Status: core.PodStatus{Phase: core.PodFailed}}, meta.UpdateOptions{})
			<-ctx.Done()
			return ctx.Err()
		}
		_, err := client.copyToClaim(t.Context(), Copy{From: from, Claim: "files", To: "mnist"}, hangs,
			func(CopyProgress) {})
		if err == nil || !strings.Contains(err.Error(), "has ended meanwhile") {
			t.Errorf("%v, want that the pod has ended", err)
		}
		noPods(t, set, 1)
	})
}

// When reading a file fails, the error of the copy is that of the file, not that of the pod.
func TestCopyOfAFileThatShrinks(t *testing.T) {
	what := Copy{From: tree(t, twoFiles), Claim: "files", To: "mnist"}
	client, set := cluster(running)
	claim := t.TempDir()
	shrinks := func(ctx context.Context, pod string, command []string, stdin io.Reader,
		stdout, stderr io.Writer) error {
		if err := os.Truncate(filepath.Join(what.From, "train/data-00000"), 1); err != nil {
			return err
		}
		return receiver(claim)(ctx, pod, command, stdin, stdout, stderr)
	}
	_, err := client.copyToClaim(t.Context(), what, shrinks, func(CopyProgress) {})
	if err == nil || !strings.Contains(err.Error(), "train/data-00000: is shorter than it was") {
		t.Errorf("%v, want the file", err)
	}
	if got := holds(t, filepath.Join(claim, "mnist")); got != nil {
		t.Errorf("there is %v", got)
	}
	noPods(t, set, 1)
}

// The pod of a copy has no rights but to write to the claim.
func TestCopyPodIsConfined(t *testing.T) {
	p, err := copyPod(Copy{Image: "i", Claim: "c"}, 1)
	if err != nil {
		t.Fatal(err)
	}
	c := p.Spec.Containers[0].SecurityContext
	if *p.Spec.AutomountServiceAccountToken ||
		p.Spec.SecurityContext.SeccompProfile.Type != core.SeccompProfileTypeRuntimeDefault ||
		*c.AllowPrivilegeEscalation || !*c.ReadOnlyRootFilesystem || len(c.Capabilities.Drop) != 1 ||
		c.Capabilities.Drop[0] != "ALL" {
		t.Errorf("%+v", p.Spec)
	}
}
