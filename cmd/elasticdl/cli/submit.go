package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// settleCluster completes a command with the content of --cluster_spec and the namespace of the
// kubeconfig's context. It returns a client of the cluster, nil if no cluster is configured and the
// command does not need one.
func settleCluster(cmd *cobra.Command, c *job.Command) (*kube.Client, error) {
	var problems []error
	if c.ClusterSpec != "" {
		text, err := kube.ReadClusterSpec(c.ClusterSpec)
		if err != nil {
			problems = append(problems, fmt.Errorf("--cluster_spec=%s: %w", c.ClusterSpec, err))
		}
		c.Job.ClusterSpecJSON = text
		c.Job.SettleCheckpoints(c.Job.ClaimDir(), c.Given) // which may be mounted read-only by it
	}
	settleAgentImage(c)
	at := kube.Place{Kubeconfig: c.Kubeconfig, Context: c.Context, Notes: notes{cmd.ErrOrStderr()}}
	if c.Given("retry_timeout") {
		at.Patience = patience(c.RetryTimeout.Duration)
	}
	if c.Given("namespace") {
		at.Namespace = c.Job.Namespace
	}
	client, err := kube.Connect(at)
	switch {
	case err == nil:
		c.Job.Namespace = client.Namespace()
	case !errors.Is(err, kube.ErrNoCluster):
		problems = append(problems, err)
	case !c.DryRun && c.YAML == "":
		problems = append(problems,
			fmt.Errorf("%w; give --kubeconfig=FILE, or --runtime=local to %s on this machine", err, c.Job.Type))
	}
	return client, errors.Join(problems...)
}

// envAgentImage is the environment variable with the default of --agent_image_name.
const envAgentImage = "ELASTICDL_AGENT_IMAGE"

// settleAgentImage sets the default of --agent_image_name, or adds a note that the job's own image
// must contain elasticdl. An empty --agent_image_name confirms that it does.
func settleAgentImage(c *job.Command) {
	j := c.Job
	if !j.Runs() || c.Given("agent_image_name") {
		return
	}
	if j.Program.AgentImage = os.Getenv(envAgentImage); j.Program.AgentImage == "" && j.Image != "" {
		c.Notes = append(c.Notes, fmt.Sprintf("image %s must contain elasticdl (elasticdl zoo build adds "+
			"it); otherwise set --agent_image_name or %s", j.Image, envAgentImage))
	}
}

// noteModel adds a note if a job's model is not built into this binary. The binary in the image may
// have it.
func noteModel(c *job.Command) {
	if j := c.Job; !j.Runs() && j.ModelDef != "" {
		if _, err := zoo.Lookup(j.ModelDef); err != nil {
			c.Notes = append(c.Notes,
				fmt.Sprintf("--model_def=%s: not built into this binary; the image must contain it (%v)",
					j.ModelDef, err))
		}
	}
}

// rehearse makes the checks of a submission. If the cluster does not answer, a note reports that
// the job was not checked against it.
func rehearse(cmd *cobra.Command, client *kube.Client, j *job.Job) error {
	if _, err := kube.Manifests(j); err != nil {
		return command.Usage(err)
	}
	if client == nil {
		fmt.Fprintln(cmd.ErrOrStderr(), "note: the job was not checked against a cluster: no cluster is configured")
		return nil
	}
	problems, err := client.Preflight(cmd.Context(), j)
	if errors.Is(err, kube.ErrUnreachable) {
		fmt.Fprintf(notes{cmd.ErrOrStderr()}, "note: the job was not checked against the cluster: %v\n", err)
		return nil
	}
	return errors.Join(command.Usage(problems), err)
}

// submit starts a job on a cluster, after uploading its code if there is any. It returns the job's
// status at its end if the command waits for it, or at its start for --format=json.
func submit(cmd *cobra.Command, client *kube.Client, c *job.Command, code *uploading,
	out io.Writer) (*wire.JobStatus, error) {
	ctx, j := cmd.Context(), c.Job
	problems, err := client.Preflight(ctx, j)
	if err = errors.Join(command.Usage(problems), err); err != nil {
		return nil, err
	}
	if code != nil {
		if err := code.run(ctx, client, j, out, cmd.ErrOrStderr()); err != nil {
			return nil, err
		}
	}
	created, err := client.Submit(ctx, j)
	if err != nil {
		return nil, err
	}
	verb := "submitted"
	if j.Suspend {
		verb = "created, suspended"
	}
	fmt.Fprintf(out, "job %s %s (%s), namespace %s of %s\n", j.Name, verb, crew(j), client.Namespace(), client.Server())
	fmt.Fprint(out, createdText(created), j.Places(), "\n")
	switch {
	case c.Follow:
		return follow(ctx, client, j, out)
	case c.Watch:
		return watchThere(ctx, client, j, out)
	}
	if j.Suspend {
		fmt.Fprintf(out, "start it with: elasticdl resume %[1]s%[2]s, or: kubectl patch job "+
			"elasticdl-%[1]s-master%[2]s --type=merge -p '{\"spec\":{\"suspend\":false}}'\n", j.Name, client.Flags())
	}
	fmt.Fprintf(out, `next:
  elasticdl status %[1]s%[2]s     # its state, and why pods are pending
  elasticdl logs -f %[1]s%[2]s    # or: kubectl logs -f elasticdl-%[1]s-master%[2]s
  elasticdl wait %[1]s%[2]s       # exit code 0 if it succeeds
  elasticdl stop %[1]s%[2]s       # or: kubectl delete job elasticdl-%[1]s-master%[2]s
`, j.Name, client.Flags())
	if c.Format != "json" {
		return nil, nil
	}
	return client.Status(ctx, j.Name)
}

// watchThere shows a job of a cluster until it has ended. The end of ctx leaves it running.
func watchThere(ctx context.Context, client *kube.Client, j *job.Job, out io.Writer) (*wire.JobStatus, error) {
	s, err := watching{
		status: func(ctx context.Context) (*wire.JobStatus, error) { return client.Status(ctx, j.Name) },
		wait: func(ctx context.Context) (*wire.JobStatus, error) {
			return client.Wait(ctx, j.Name, func() {}) // that it is suspended is shown
		},
		every: 4 * refresh,
	}.show(ctx, out)
	return s, concludeThere(ctx, client, j, s, err, out)
}

// concludeThere prints the summary of a job of a cluster at its end or, after an interruption, a
// line that the job keeps running.
func concludeThere(ctx context.Context, client *kube.Client, j *job.Job, last *wire.JobStatus,
	failed error, out io.Writer) error {
	switch {
	case ctx.Err() != nil:
		fmt.Fprintf(out, "job %s keeps running without this command; see elasticdl status, logs -f, wait "+
			"and stop %[1]s%[2]s\n", j.Name, client.Flags())
		return command.Fail(command.ErrSilent, command.ExitInterrupted)
	case failed != nil:
		return hint(failed)
	}
	if _, err := io.WriteString(out, summary(last, "elasticdl logs "+j.Name+client.Flags())); err != nil {
		return err
	}
	return outcome(ctx, last)
}

// createdText returns the objects that were created, such as "service/a", "service/b", a line for
// each kind.
func createdText(created []string) string {
	const most = 5
	var kinds []string
	names := make(map[string][]string)
	for _, c := range created {
		kind, name, _ := strings.Cut(c, "/")
		if names[kind] == nil {
			kinds = append(kinds, kind)
		}
		names[kind] = append(names[kind], name)
	}
	var b strings.Builder
	for _, kind := range kinds {
		all := names[kind]
		line := strings.Join(all[:min(len(all), most)], ", ")
		if n := len(all) - most; n > 0 {
			line += fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(&b, "  %s %s\n", kind, line)
	}
	return b.String()
}

// writeManifests writes the manifests of a job to the file of --yaml.
func writeManifests(j *job.Job, path string, out io.Writer) error {
	if j.Queue != "" && j.QueuePriorities == "" {
		return command.Usage(fmt.Errorf("--yaml asks no cluster for its priority classes: --queue=%s needs "+
			"--queue_priorities, too: %s, %s or %s", j.Queue, job.PrioritiesWorkload, job.PrioritiesPod,
			job.PrioritiesNone))
	}
	text, err := kube.Manifests(j)
	if err != nil {
		return command.Usage(err)
	}
	if path == "-" {
		_, err = out.Write(text)
		return err
	}
	if err := writePrivate(path, text); err != nil {
		return fmt.Errorf("--yaml=%s: %w", path, err)
	}
	_, err = fmt.Fprintf(out, "%s written; submit it with: kubectl apply -f %[1]s\n%[2]s\n", path, j.Places())
	return err
}

// writePrivate writes a file that only its owner can read. It also restricts an existing file.
func writePrivate(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() { // not /dev/stdout
		err = file.Chmod(0o600)
	}
	if err == nil {
		_, err = file.Write(text)
	}
	return errors.Join(err, file.Close())
}

// follow prints the logs and the state changes of a job's pods until the job has ended. The end of
// ctx leaves the job running.
func follow(ctx context.Context, client *kube.Client, j *job.Job, out io.Writer) (*wire.JobStatus, error) {
	shared := &together{out: forLogs(out)}
	watched, cancel := context.WithCancel(ctx)
	defer cancel()
	var (
		all        sync.WaitGroup
		seen, last *wire.JobStatus
		failed     error
	)
	all.Go(func() {
		seen = following{
			status: func(ctx context.Context) (*wire.JobStatus, error) { return client.Status(ctx, j.Name) },
			news:   followNews,
			every:  4 * refresh,
		}.show(watched, shared)
	})
	all.Go(func() { last, failed = client.Wait(ctx, j.Name, func() { fmt.Fprintln(shared, resting(j.Name)) }) })
	err := client.Logs(ctx, j.Name, role.LogOptions{Follow: true, Tail: -1}, logline.Unsourced{Out: shared})
	if err != nil && ctx.Err() == nil {
		fmt.Fprintf(shared, "note: no more logs: %v\n", err)
	}
	cancel()
	all.Wait()
	if failed == nil {
		last = asSeen(last, seen)
	}
	return last, concludeThere(ctx, client, j, last, failed, out)
}

// together is a writer of lines for several goroutines.
type together struct {
	mu  sync.Mutex
	out io.Writer
}

func (t *together) Write(line []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.out.Write(line)
}
