package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Errors of commands that have waited for --timeout.
var (
	errNotDeleted = errors.New("timed out waiting for deletion; the remaining pods are deleted in the background")
)

func listCommand() *cobra.Command {
	var (
		format     format
		location   location
		everywhere bool
	)
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the jobs of this machine and of the cluster",
		Args:    command.Words(0, 0),
		PreRunE: checks(format.check, location.check),
		RunE: command.Does(func(cmd *cobra.Command, _ []string) error {
			jobs, err := location.list(cmd, everywhere)
			if err != nil {
				return err
			}
			if !format.json() {
				_, err := fmt.Fprint(cmd.OutOrStdout(), listText(jobs, everywhere, time.Now()))
				return err
			}
			all := make([]json.RawMessage, len(jobs))
			for i, s := range jobs {
				all[i] = statusJSON(s)
			}
			return printJSON(cmd.OutOrStdout(), all)
		}),
	}
	format.flags(cmd)
	location.flags(cmd)
	cmd.Flags().BoolVarP(&everywhere, "all_namespaces", "A", false, "list jobs of all namespaces")
	return cmd
}

// list returns the jobs of this machine and of the cluster, by name. A cluster that does not answer
// is an error if a flag selects the cluster, and a note otherwise.
func (w *location) list(cmd *cobra.Command, everywhere bool) ([]*wire.JobStatus, error) {
	var jobs []*wire.JobStatus
	asked := w.runtime == "kubernetes" || w.named() || everywhere
	if w.runtime != "kubernetes" {
		var err error
		if jobs, err = local.List(cmd.Context()); err != nil || w.runtime == "local" {
			return jobs, err
		}
	}
	client, err := w.connect(cmd)
	if errors.Is(err, kube.ErrNoCluster) && !asked {
		return jobs, nil
	}
	var theirs []*wire.JobStatus
	if err == nil {
		theirs, err = client.List(cmd.Context(), everywhere)
	}
	if err != nil && (asked || cmd.Context().Err() != nil) {
		return nil, err
	} else if err != nil {
		fmt.Fprintf(notes{cmd.ErrOrStderr()}, "note: only jobs of this machine: %v\n", err)
	}
	jobs = append(jobs, theirs...)
	slices.SortStableFunc(jobs, func(a, b *wire.JobStatus) int { return cmp.Compare(a.Name, b.Name) })
	return jobs, nil
}

// checks joins several checks of a command's flags, and the problems that they find.
func checks(all ...func(*cobra.Command, []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		var found []error
		for _, check := range all {
			found = append(found, check(cmd, args))
		}
		return errors.Join(found...)
	}
}

func statusCommand() *cobra.Command {
	var (
		format   format
		location location
		watch    bool
	)
	cmd := &cobra.Command{
		Use:   "status JOB",
		Short: "Show the state of a job, and why pods are pending",
		Long: "Show the state of a job, and why pods are pending.\n\n" +
			"With --watch the output is refreshed until the job ends, and the exit code is that of elasticdl wait. Ctrl-C leaves the job running.",
		Example:           "  elasticdl status test-mnist --watch",
		Args:              command.Words(1, 1),
		ValidArgsFunction: location.complete,
		PreRunE: checks(format.check, location.check, func(*cobra.Command, []string) error {
			if watch && format.json() {
				return errors.New("--watch: not available with -o json; use elasticdl wait -o json, " +
					"which prints the final status")
			}
			return nil
		}),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			home, err := location.find(cmd, args[0])
			if err != nil {
				return hint(err)
			}
			if watch {
				return watchJob(cmd.Context(), home, args[0], cmd.OutOrStdout())
			}
			s, err := home.Status(cmd.Context(), args[0])
			if err != nil {
				return hint(err)
			}
			s.Cost = home.Cost(cmd.Context(), s)
			if !format.json() {
				_, err := fmt.Fprint(cmd.OutOrStdout(), statusText(s, time.Now()))
				return err
			}
			return printJSON(cmd.OutOrStdout(), statusJSON(s))
		}),
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "refresh until the job ends")
	format.flags(cmd)
	location.flags(cmd)
	return cmd
}

func logsCommand() *cobra.Command {
	var location location
	o := role.LogOptions{}
	cmd := &cobra.Command{
		Use:   "logs JOB [POD]",
		Short: "Print the log of a pod (worker-0, ps-1, master), or of all of them",
		Long: "Print the log of a pod (worker-0, ps-1, master), or of all of them, ordered by time.\n\n" +
			"On a terminal, colours are kept and other control sequences are escaped, such as \\x1b[2J. A pipe or file gets the unchanged log.",
		Example: "  elasticdl logs test-mnist -f\n  elasticdl logs test-mnist worker-0 --tail=20 --since=10m",
		Args:    command.Words(1, 2),
		ValidArgsFunction: func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
			if len(args) != 1 {
				return location.complete(cmd, args, word)
			}
			return location.completePod(cmd, args[0])
		},
		PreRunE: checks(location.check, func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) == 2 && o.Pod != "":
				return fmt.Errorf("--pod=%s: %s is given, too; remove one of the two", o.Pod, args[1])
			case o.Since < 0:
				return fmt.Errorf("--since=%v: expected 0 or more", o.Since)
			case o.Previous && o.Follow:
				return errors.New("--previous: the log of the previous start has ended, so --follow has no " +
					"effect; remove one of the two")
			}
			return nil
		}),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			if len(args) == 2 {
				o.Pod = args[1]
			}
			// the name that it has on a cluster
			o.Pod = strings.TrimPrefix(o.Pod, "elasticdl-"+args[0]+"-")
			home, err := location.find(cmd, args[0])
			if err != nil {
				return hint(err)
			}
			if _, ok := home.(localJobs); ok && o.Previous {
				return command.Usage(errors.New("--previous: no effect on this machine, where the log of a pod has " +
					"all its starts; remove it"))
			}
			out := &noticed{out: forLogs(cmd.OutOrStdout())}
			err = home.Logs(cmd.Context(), args[0], o, out)
			if err == nil && o.Since > 0 && !out.any {
				fmt.Fprintf(cmd.ErrOrStderr(),
					"note: nothing was logged in the last %v; remove --since to print the whole log\n", o.Since)
			}
			return hint(err)
		}),
	}
	cmd.Flags().BoolVarP(&o.Follow, "follow", "f", false, "print new lines until the job ends")
	cmd.Flags().StringVar(&o.Pod, "pod", "", "alias of POD")
	cmd.Flags().Int64Var(&o.Tail, "tail", -1, "number of last lines per pod; -1 for all")
	cmd.Flags().DurationVar(&o.Since, "since", 0, "maximum age of lines, such as 90s or 2h; 0 for all")
	cmd.Flags().BoolVarP(&o.Previous, "previous", "p", false,
		"print the log of the previous start of each container (Kubernetes)")
	location.flags(cmd)
	return cmd
}

// noticed is a writer that records whether anything was written.
type noticed struct {
	out io.Writer
	any bool
}

func (n *noticed) Write(text []byte) (int, error) {
	n.any = n.any || len(text) > 0
	return n.out.Write(text)
}

// timeout limits the wait of a command; 0: no limit.
type timeout time.Duration

func (t *timeout) flags(cmd *cobra.Command) {
	cmd.Flags().DurationVar((*time.Duration)(t), "timeout", 0, "time limit, such as 90s or 5m; 0 for none")
}

func (t *timeout) check(*cobra.Command, []string) error {
	if *t < 0 {
		return fmt.Errorf("--timeout=%v: expected 0 or more", time.Duration(*t))
	}
	return nil
}

// limit returns a context that also ends after the timeout, with the given cause.
func (t *timeout) limit(ctx context.Context, cause error) (context.Context, context.CancelFunc) {
	if *t == 0 {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, time.Duration(*t), cause)
}

func scaleCommand() *cobra.Command {
	var (
		workers  int32
		location location
	)
	cmd := &cobra.Command{
		Use:               "scale JOB --num_workers=N",
		Short:             "Change the number of workers of a job",
		Long:              "Change the number of workers of a job, within its --min_workers and --max_workers. Other workers are not disturbed. To stop all workers, suspend the job.",
		Example:           "  elasticdl scale test-mnist --num_workers=6",
		Args:              command.Words(1, 1),
		ValidArgsFunction: location.complete,
		PreRunE: checks(location.check, func(cmd *cobra.Command, args []string) error {
			switch {
			case !cmd.Flags().Changed("num_workers"):
				return errors.New("--num_workers is missing: expected the new number of workers")
			case workers == 0:
				return fmt.Errorf("--num_workers=0: expected 1 to %d; to stop all workers and keep "+
					"the training state: elasticdl suspend %s; to continue: elasticdl resume %[2]s",
					job.MostWorkers, args[0])
			case workers < 1 || workers > job.MostWorkers:
				return fmt.Errorf("--num_workers=%d: expected 1 to %d", workers, job.MostWorkers)
			}
			return nil
		}),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			home, err := location.find(cmd, args[0])
			if err != nil {
				return hint(err)
			}
			status, _ := home.Status(cmd.Context(), args[0]) // nil: then all pods are reported as new
			before, err := home.Scale(cmd.Context(), args[0], int(workers))
			if err != nil {
				return hint(err)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %d -> %s\n", args[0], before, count(int64(workers), "worker"))
			noteStack(cmd.Context(), cmd, home, args[0], fmt.Sprintf("may undo that; to keep it: "+
				"pulumi config set --path job.numWorkers %d && pulumi up", workers))
			if client, ok := home.(*kube.Client); ok && err == nil {
				return scaled(cmd, client, status)
			}
			return err
		}),
	}
	location.flags(cmd)
	cmd.Flags().Int32Var(&workers, "num_workers", 0, "new number of workers (required)")
	return cmd
}

// scaleLimit limits the time for which the command scale reports changes of pods.
const scaleLimit = 10 * time.Second

// scaled prints the changes of pods after a scaling, until the wanted number of workers runs, or
// those that do not run have a reason.
func scaled(cmd *cobra.Command, client *kube.Client, before *wire.JobStatus) error {
	if before.GetState() != string(job.Running) {
		return nil
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), scaleLimit)
	defer cancel()
	for {
		now, err := client.Status(ctx, before.Name)
		if err != nil {
			return nil // the scaling itself has succeeded
		}
		for _, line := range podNews(before, now) {
			fmt.Fprintln(cmd.OutOrStdout(), line)
		}
		before = now
		if settled(now) {
			return nil
		}
		select {
		case <-time.After(refresh):
		case <-ctx.Done():
			return nil
		}
	}
}

// settled reports whether the wanted number of workers exists, and each of them runs or has a
// reason why it does not.
func settled(s *wire.JobStatus) bool {
	living := 0
	for _, p := range s.Pods {
		if p.Role != wire.Role_WORKER || p.EndedUnixMs > 0 || pod.Deleted.Is(p.State) {
			continue
		}
		if pod.Leaving.Is(p.State) || pod.Pending.Is(p.State) && p.Reason == "" {
			return false
		}
		living++
	}
	return living == int(s.Workers) || job.State(s.State).Ended()
}

func stopCommand() *cobra.Command {
	var (
		location location
		timeout  timeout
	)
	cmd := &cobra.Command{
		Use:   "stop JOB...",
		Short: "Stop jobs, with all their pods; on a cluster, delete them",
		Long: `Stop jobs, with all their pods; on a cluster, delete them.

Training state is saved first: a job with checkpoints writes one, and so does a script that
declares a checkpoint with the package elasticdl. The processes of other programs get SIGTERM and
have --grace_period to save their state.`,
		Args:              command.Words(1, -1),
		ValidArgsFunction: location.complete,
		PreRunE:           checks(location.check, timeout.check),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			ctx, cancel := timeout.limit(cmd.Context(), errNotDeleted)
			defer cancel()
			var failed []error
			for _, name := range args {
				err := stop(ctx, cmd, &location, name)
				if errors.Is(err, errNotDeleted) {
					return command.Fail(fmt.Errorf("job %s: %w", name, err), command.ExitTimeout)
				}
				failed = append(failed, err)
			}
			return errors.Join(failed...)
		}),
	}
	timeout.flags(cmd)
	location.flags(cmd)
	return cmd
}

func stop(ctx context.Context, cmd *cobra.Command, location *location, name string) error {
	home, err := location.find(cmd, name)
	if err != nil {
		return hint(err)
	}
	noteStack(ctx, cmd, home, name, "runs it again after pulumi refresh; to end it for good: "+
		"pulumi config rm job && pulumi up")
	out := cmd.OutOrStdout()
	before, err := home.Status(ctx, name)
	_, cluster := home.(*kube.Client)
	switch {
	case err != nil && !cluster:
		return hint(err)
	case !cluster && job.State(before.State).Ended():
		_, err := fmt.Fprintf(out, "job %s had ended: %s\n", name, oneLine(before.State))
		return err
	}
	said := sayWaits(ctx, home, name, out)
	err = home.Stop(ctx, name, func(pods int) {
		fmt.Fprintf(out, "job %s: waiting for %s to end\n", name, count(int64(pods), "pod"))
	})
	said()
	switch {
	case err != nil:
		return hint(err)
	case cluster && before != nil && job.State(before.State).Ended():
		_, err = fmt.Fprintf(out, "job %s deleted; it had ended: %s\n", name, oneLine(before.State))
	case cluster:
		_, err = fmt.Fprintf(out, "job %s stopped and deleted\n", name)
	default:
		s, e := home.Status(ctx, name)
		if e != nil {
			return hint(e)
		}
		_, err = fmt.Fprintln(out, stopped(s))
	}
	return err
}

// noteStack prints a note if a job belongs to a Pulumi stack, with the effect of the stack.
func noteStack(ctx context.Context, cmd *cobra.Command, home home, name, does string) {
	if client, ok := home.(*kube.Client); ok && client.OfStack(ctx, name) {
		fmt.Fprintf(cmd.ErrOrStderr(), "note: job %s belongs to a Pulumi stack, which %s\n", name, does)
	}
}

// hint adds a suggestion and the exit code to the error that a job does not exist.
func hint(err error) error {
	if errors.Is(err, local.ErrNotFound) || errors.Is(err, kube.ErrNotFound) {
		return command.Fail(fmt.Errorf("%w; %ssee elasticdl list", err, nearby(err)), command.ExitMissing)
	}
	return err
}

// nearby returns "did you mean JOB? " for the job, on this machine or in the namespace, whose name
// is most similar to that of the missing job; "" if none is similar.
func nearby(err error) string {
	ctx, cancel := context.WithTimeout(context.Background(), completeLimit)
	defer cancel()
	var wanted string
	var all []string
	if missing, ok := errors.AsType[*local.Missing](err); ok {
		wanted = missing.Name
		jobs, _ := local.List(ctx) // no jobs, no names
		for _, s := range jobs {
			all = append(all, s.Name)
		}
	}
	if missing, ok := errors.AsType[*kube.Missing](err); ok {
		wanted = missing.Name
		names, _ := missing.Names(ctx) // no suggestion without them
		all = append(all, names...)
	}
	var spelled []string
	names := make(map[string]string)
	for _, name := range all {
		as := strings.ReplaceAll(name, "-", "_") // the spelling of Nearest
		spelled, names[as] = append(spelled, as), name
	}
	if name := names[job.Nearest(wanted, spelled)]; name != "" {
		return "did you mean " + name + "? "
	}
	return ""
}

// completeLimit limits the time of a shell's completion.
const completeLimit = 2 * time.Second

func (w *location) complete(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) > 0 && cmd.Name() != "stop" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeLimit)
	defer cancel()
	if w.runtime != "kubernetes" {
		jobs, _ := local.List(ctx) // no jobs, no names
		for _, s := range jobs {
			names = append(names, s.Name+"\t"+s.State)
		}
	}
	if w.runtime != "local" {
		if client, err := kube.Connect(w.at); err == nil {
			theirs, _ := client.Names(ctx)
			names = append(names, theirs...)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (w *location) completePod(cmd *cobra.Command, job string) ([]string, cobra.ShellCompDirective) {
	var pods []string
	ctx, cancel := context.WithTimeout(cmd.Context(), completeLimit)
	defer cancel()
	if home, err := w.find(cmd, job); err == nil {
		if s, err := home.Status(ctx, job); err == nil {
			for _, p := range sorted(s.Pods) {
				pods = append(pods, podName(p))
			}
		}
	}
	return pods, cobra.ShellCompDirectiveNoFileComp
}

// format is the output format of a command: text or json.
type format struct {
	name   string
	asJSON bool
}

func (f *format) flags(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&f.name, "output", "o", "text", "output format: text or json")
	cmd.Flags().BoolVar(&f.asJSON, "json", false, "alias of -o json")
}

func (f *format) check(*cobra.Command, []string) error {
	if f.name != "text" && f.name != "json" {
		return fmt.Errorf("--output=%s: expected text or json", f.name)
	}
	return nil
}

func (f *format) json() bool { return f.asJSON || f.name == "json" }
