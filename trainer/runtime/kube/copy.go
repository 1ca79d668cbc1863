package kube

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/clientset"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// A directory is copied to or from a claim through a pod that mounts the claim. The pod runs the
// job's image, whose hidden commands receive and send are the other end of an exec stream. The
// image needs neither tar nor a shell.

const (
	claimMount = "/claim" // where the pod has the claim
	// for the pod to run: nodes may have to be added
	startLimit = 10 * time.Minute
	// a stream breaks when an API server is restarted
	copyAttempts = 3
)

// How often the pod is looked at until it runs, and then.
const (
	lookAgain  = 300 * time.Millisecond
	lookSeldom = 5 * time.Second
)

// Copy describes a copy to a PersistentVolumeClaim, or from one.
type Copy struct {
	// directory on this machine, or on the claim: "mnist"
	From  string
	Claim string
	// directory on the other side, which is not there yet, or holds the same files
	To string
	// of what is copied from a claim: the model that is there, exported or as a checkpoint, and
	// nothing else
	Model bool
	// of ElasticDL
	Image string
	// its pull policy; "": the cluster's choice
	Pull string

	// by which the user has named the claim; "": --to=claim:CLAIM
	Flag string
	// that the copy is for: its pod runs where the job's workers may, as they do; nil: anywhere
	Job *job.Job
}

// CopyProgress is the progress of one step, in bytes.
type CopyProgress struct {
	Step        string
	Done, Total int64
}

// stream runs a command in a container of a pod. Its error has no more than its exit code.
type stream func(ctx context.Context, pod string, command []string, stdin io.Reader, stdout, stderr io.Writer) error

// CopyToClaim copies a directory to a claim, where it is whole or not there. If the directory
// already exists with the same files, it is left unchanged (existed). The pod that it needs is
// deleted at the end, whatever the end is.
func (c *Client) CopyToClaim(ctx context.Context, what Copy, progress func(CopyProgress)) (existed bool, err error) {
	return c.copyToClaim(ctx, what, c.exec, progress)
}

func (c *Client) copyToClaim(ctx context.Context, what Copy, run stream,
	progress func(CopyProgress)) (existed bool, err error) {
	from, err := listFiles(ctx, what.From, func(done, total int64) {
		progress(CopyProgress{"sum up " + what.From, done, total})
	})
	if err != nil {
		return false, err
	}
	step := "copy to claim " + what.Claim
	if err := c.checkClaim(ctx, cmp.Or(what.Flag, "--to=claim:"+what.Claim), what.Claim, true); err != nil {
		return false, err
	}
	return c.throughPod(ctx, what, from.total(), step, progress, func(ctx context.Context, pod string) (bool, error) {
		return from.send(ctx, pod, path.Join(claimMount, what.To), run, func(done int64) {
			progress(CopyProgress{step, done, from.total()})
		})
	})
}

// throughPod copies through a pod that mounts the claim.
func (c *Client) throughPod(ctx context.Context, what Copy, bytes int64, step string,
	progress func(CopyProgress), do func(ctx context.Context, pod string) (bool, error)) (existed bool, err error) {
	progress(CopyProgress{Step: "start a pod that mounts claim " + what.Claim})
	p, err := copyPod(what, bytes)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, c.deletePod(ctx, p.Name)) }()
	if _, err := ask(ctx, c, "create pod "+p.Name, func(ctx context.Context) (*core.Pod, error) {
		return c.set.CoreV1().Pods(c.namespace).Create(ctx, p, meta.CreateOptions{})
	}); err != nil && !api.IsAlreadyExists(err) {
		// created by an attempt that was not answered
		return false, err
	}
	if err := c.awaitRunning(ctx, p.Name); err != nil {
		return false, err
	}
	existed, err = c.whileRunning(ctx, p.Name, func(ctx context.Context) (bool, error) { return do(ctx, p.Name) })
	if end, ended := errors.AsType[exec.CodeExitError](err); ended {
		return false, fmt.Errorf("%s: %s", step, strings.ReplaceAll(end.Error(), claimMount+"/",
			"claim:"+what.Claim+"/"))
	}
	if err != nil {
		return false, fmt.Errorf("%s: %w", step, c.explain("exec in pod "+p.Name, err))
	}
	return existed, nil
}

// whileRunning sends, from the beginning again where a stream breaks, until the pod ends.
func (c *Client) whileRunning(ctx context.Context, pod string,
	send func(context.Context) (bool, error)) (existed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { c.watchEnd(ctx, pod, cancel) })
	defer watching.Wait()
	defer cancel(nil)
	for attempt := 1; ; attempt++ {
		existed, err = send(ctx)
		if err == nil {
			return existed, nil
		}
		if _, ended := errors.AsType[exec.CodeExitError](err); ended || ctx.Err() != nil ||
			attempt == copyAttempts || api.ReasonForError(err) != meta.StatusReasonUnknown {
			return false, causeOr(ctx, err)
		}
		c.note("the stream to pod %s broke: %v; trying again", pod, err)
		if err := c.awaitRunning(ctx, pod); err != nil {
			return false, err
		}
	}
}

// watchEnd calls cancel when a pod has ended.
func (c *Client) watchEnd(ctx context.Context, name string, cancel context.CancelCauseFunc) {
	for {
		select {
		case <-time.After(lookSeldom):
		case <-ctx.Done():
			return
		}
		p, err := c.set.CoreV1().Pods(c.namespace).Get(ctx, name, meta.GetOptions{})
		if api.IsNotFound(err) || (err == nil && (p.DeletionTimestamp != nil || p.Status.Phase != core.PodRunning)) {
			cancel(fmt.Errorf("pod %s has ended meanwhile", name))
			return
		}
	}
}

// checkClaim returns an error if a claim, which flag has named, does not exist or cannot be written
// to. A claim that may not be read counts as correct.
func (c *Client) checkClaim(ctx context.Context, flag, claim string, write bool) error {
	there, err := ask(ctx, c, "get claim "+claim, func(ctx context.Context) (*core.PersistentVolumeClaim, error) {
		return c.set.CoreV1().PersistentVolumeClaims(c.namespace).Get(ctx, claim, meta.GetOptions{})
	})
	switch {
	case api.IsForbidden(err):
		return nil
	case api.IsNotFound(err):
		return fmt.Errorf("%s: namespace %s has no such PersistentVolumeClaim", flag, c.namespace)
	case err != nil:
		return err
	}
	if write && slices.Equal(there.Spec.AccessModes, []core.PersistentVolumeAccessMode{core.ReadOnlyMany}) {
		return fmt.Errorf("%s: the claim is %s: nothing can be copied to it; expected one that is %s",
			flag, core.ReadOnlyMany, core.ReadWriteMany)
	}
	return nil
}

// copyPod returns the pod that receives. If the command is killed before it deletes the pod, the
// pod ends on its own after some time.
func copyPod(what Copy, bytes int64) (*core.Pod, error) {
	const slowest = 1 << 20 // bytes per second
	confined := manifest.Confined()
	confined.ReadOnlyRootFilesystem = new(true) // it writes to the claim only
	p := &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: "elasticdl-copy-" + rand.String(6),
			Labels: map[string]string{"app": "elasticdl"}},
		Spec: core.PodSpec{
			RestartPolicy:                 core.RestartPolicyNever,
			ActiveDeadlineSeconds:         new(int64(startLimit/time.Second) + 3600 + bytes/slowest),
			TerminationGracePeriodSeconds: new(int64(1)),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			SecurityContext: &core.PodSecurityContext{
				SeccompProfile: &core.SeccompProfile{Type: core.SeccompProfileTypeRuntimeDefault}},
			Containers: []core.Container{{
				SecurityContext: confined,
				Name:            "copy", Image: what.Image, ImagePullPolicy: core.PullPolicy(what.Pull),
				Args: []string{"receive", "--hold"},
				Resources: core.ResourceRequirements{
					Requests: core.ResourceList{core.ResourceCPU: resource.MustParse("100m"),
						core.ResourceMemory: resource.MustParse("128Mi")},
					Limits: core.ResourceList{core.ResourceCPU: resource.MustParse("1"),
						core.ResourceMemory: resource.MustParse("512Mi")},
				},
				VolumeMounts: []core.VolumeMount{{Name: "claim", MountPath: claimMount}},
			}},
			Volumes: []core.Volume{{Name: "claim", VolumeSource: core.VolumeSource{
				PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: what.Claim},
			}}},
		},
	}
	if what.Job != nil {
		return p, manifest.LikeWorker(what.Job, &p.Spec)
	}
	return p, nil
}

// awaitRunning waits for a pod to run, and notes what it waits for.
func (c *Client) awaitRunning(ctx context.Context, name string) error {
	began, noted := time.Now(), ""
	for {
		p, err := ask(ctx, c, "get pod "+name, func(ctx context.Context) (*core.Pod, error) {
			return c.set.CoreV1().Pods(c.namespace).Get(ctx, name, meta.GetOptions{})
		})
		if err != nil {
			return err
		}
		why, hopeless := observe.Waiting(p)
		_, never := observe.ImageMissing(p)
		switch {
		case p.Status.Phase == core.PodRunning:
			return nil
		case p.Status.Phase == core.PodFailed || p.Status.Phase == core.PodSucceeded:
			return fmt.Errorf("pod %s ended before anything was copied: %s; is its image one of "+
				"elasticdl zoo build?", name, observe.Exit(p).Reason)
		case hopeless || never:
			return fmt.Errorf("pod %s cannot run: %s", name, why)
		case time.Since(began) > startLimit:
			return fmt.Errorf("pod %s does not run after %v: %s", name, startLimit, why)
		}
		if why != "" && why != noted {
			c.note("pod %s waits: %s", name, why)
			noted = why
		}
		select {
		case <-time.After(lookAgain):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// deletePod deletes a pod, also when ctx has ended.
func (c *Client) deletePod(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerLimit)
	defer cancel()
	_, err := ask(ctx, c, "delete pod "+name, func(ctx context.Context) (any, error) {
		return nil, c.set.CoreV1().Pods(c.namespace).Delete(ctx, name, meta.DeleteOptions{})
	})
	if api.IsNotFound(err) {
		return nil
	}
	return err
}

// exec is a stream through the cluster.
func (c *Client) exec(ctx context.Context, pod string, command []string, stdin io.Reader,
	stdout, stderr io.Writer) error {
	url := c.set.CoreV1().RESTClient().Post().Namespace(c.namespace).Resource("pods").Name(pod).SubResource("exec").
		VersionedParams(&core.PodExecOptions{Command: command, Stdin: true, Stdout: true, Stderr: true},
			clientset.ParameterCodec).URL()
	config := rest.CopyConfig(c.config)
	config.Timeout = 0
	sockets, err := remotecommand.NewWebSocketExecutor(config, "GET", url.String())
	if err != nil {
		return err
	}
	spdy, err := remotecommand.NewSPDYExecutor(config, "POST", url)
	if err != nil {
		return err
	}
	// Clusters before 1.30, and proxies that know no web sockets, know the other.
	refused := func(err error) bool {
		return httpstream.IsUpgradeFailure(err) || httpstream.IsHTTPSProxyError(err)
	}
	either, err := remotecommand.NewFallbackExecutor(sockets, spdy, refused)
	if err != nil {
		return err
	}
	ctx = klog.NewContext(ctx, logr.Discard()) // what it has to say comes as its error
	return either.StreamWithContext(ctx, remotecommand.StreamOptions{Stdin: stdin, Stdout: stdout, Stderr: stderr})
}

// send streams the files to the command receive in a pod, until that has answered.
func (f *files) send(ctx context.Context, pod, to string, run stream,
	progress func(done int64)) (existed bool, err error) {
	reader, writer := io.Pipe()
	wrote := make(chan error, 1)
	go func() {
		err := f.write(writer, progress)
		if wrote <- err; err != nil {
			writer.Close() // else when the answer is there
		}
	}()
	answer := &firstLine{done: func() { writer.Close() }}
	var said bytes.Buffer
	err = run(ctx, pod, []string{"/elasticdl", "receive", "--to=" + to}, reader, answer, &said)
	reader.Close()
	unread, got := <-wrote, answer.String()
	switch {
	case got == received:
		return false, nil
	case got == existing:
		return true, nil
	case unread != nil && !errors.Is(unread, io.ErrClosedPipe): // the pod reports it
		return false, exec.CodeExitError{Err: unread, Code: 1}
	case strings.HasPrefix(got, failed):
		return false, exec.CodeExitError{Err: errors.New(strings.TrimPrefix(got, failed)), Code: 1}
	case err != nil && said.Len() > 0:
		return false, fmt.Errorf("%w: %s", err, observe.LastLine(said.String()))
	case err != nil:
		return false, err
	}
	return false, fmt.Errorf("the pod answered %q", got)
}

// firstLine keeps a line, and tells when it is there.
type firstLine struct {
	text []byte
	done func()
}

func (l *firstLine) Write(p []byte) (int, error) {
	l.text = append(l.text, p...)
	if bytes.Contains(p, []byte("\n")) {
		l.done()
	}
	return len(p), nil
}

func (l *firstLine) String() string {
	text, _, _ := strings.Cut(string(l.text), "\n")
	return text
}
