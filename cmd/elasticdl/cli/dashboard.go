package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/elasticdl/elasticdl/cmd/elasticdl/command"
	"github.com/elasticdl/elasticdl/cmd/elasticdl/page"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func dashboardCommand() *cobra.Command {
	var location location
	var port uint16
	cmd := &cobra.Command{
		Use:   "dashboard [JOB]",
		Short: "Serve a page that shows a job, or all jobs, in a browser",
		Long: "Serve a page that shows a job, or all jobs of this machine or of a namespace, in a browser: progress, " +
			"curves, a timeline of the pods, events, logs, stacks.\n\n" +
			"It prints the address, which has a token. The page listens on the loopback interface of this machine " +
			"only. " +
			"On a cluster it reads with the permissions of the kubeconfig; with pods/portforward it asks the master " +
			"itself, otherwise it shows what the master has written some seconds ago. Ctrl-C ends it.",
		Example: "  elasticdl dashboard test-mnist\n  elasticdl dashboard --namespace=training\n" +
			"  elasticdl dashboard test-mnist --port=8080",
		Args:              command.Words(0, 1),
		ValidArgsFunction: location.complete,
		PreRunE:           checks(location.check),
		RunE: command.Does(func(cmd *cobra.Command, args []string) error {
			c, end, err := location.dashboard(cmd, args)
			if err != nil {
				return hint(err)
			}
			defer end()
			return serveDashboard(cmd, c, port)
		}),
	}
	cmd.Flags().Uint16Var(&port, "port", 0, "port of the loopback interface; 0 for any free one")
	location.flags(cmd)
	return cmd
}

// serveDashboard serves the page until the command is interrupted.
func serveDashboard(cmd *cobra.Command, c page.Config, port uint16) error {
	lis, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		return fmt.Errorf("--port=%d: %w; remove it to use any free port", port, err)
	}
	server := page.New(c)
	if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", cmp.Or(c.Job, c.Place),
		server.Address(lis.Addr())); err != nil {
		lis.Close()
		return err
	}
	if err := server.Serve(cmd.Context(), lis); err != nil {
		return err
	}
	return context.Cause(cmd.Context())
}

// dashboard returns what a dashboard shows. The caller calls end.
func (w *location) dashboard(cmd *cobra.Command, args []string) (c page.Config, end func(), err error) {
	c = page.Config{Missing: func(err error) bool { return missing(err) || errors.Is(err, role.ErrNoLog) }}
	var home home = localJobs{}
	switch {
	case len(args) == 1:
		c.Job = args[0]
		if home, err = w.find(cmd, args[0]); err == nil {
			_, err = home.Status(cmd.Context(), args[0])
		}
	case w.runtime == "kubernetes" || w.named():
		home, err = w.connect(cmd)
	}
	if err != nil {
		return c, nil, err
	}
	if client, ok := home.(*kube.Client); ok {
		source := &clusterSource{client: client, channels: make(map[string]*kube.Channel),
			refused: make(map[string]refusal)}
		c.Source, c.Place = source, "namespace "+client.Namespace()
		return c, source.close, nil
	}
	c.Source, c.Place = localSource{}, "this machine"
	return c, func() {}, nil
}

// localSource has the jobs of this machine for the page.
type localSource struct{}

// Jobs implements [page.Source].
func (localSource) Jobs(ctx context.Context) ([]*wire.JobStatus, error) { return local.List(ctx) }

// View implements [page.Source].
func (localSource) View(ctx context.Context, job string) (role.View, string, error) {
	v, err := local.View(ctx, job)
	return v, "", err
}

// Log implements [page.Source].
func (localSource) Log(ctx context.Context, job, pod string, lines int64, w io.Writer) error {
	return local.Logs(ctx, job, role.LogOptions{Pod: pod, Tail: lines}, w)
}

// Stacks implements [page.Source].
func (localSource) Stacks(ctx context.Context, job string) (string, error) {
	reply, err := local.Stacks(ctx, job)
	if err != nil {
		return "", err
	}
	return stacksText(reply, true), nil
}

// clusterSource has the jobs of a namespace for the page. It keeps a channel to the master of each
// job that is looked at.
type clusterSource struct {
	client *kube.Client

	mu       sync.Mutex
	channels map[string]*kube.Channel
	// why there is no channel to a master, and since when
	refused map[string]refusal
	closed  bool
}

// refusal is an attempt to open a channel that has failed.
type refusal struct {
	err error
	at  time.Time
}

// refusedFor is the time for which no other channel is tried after a refusal.
const refusedFor = 5 * time.Second

// mostChannels is the largest number of channels that are kept.
const mostChannels = 16

// Jobs implements [page.Source].
func (s *clusterSource) Jobs(ctx context.Context) ([]*wire.JobStatus, error) {
	return s.client.List(ctx, false)
}

// View implements [page.Source]. Without a channel it returns what the master has written last.
func (s *clusterSource) View(ctx context.Context, job string) (role.View, string, error) {
	v, why := s.ask(ctx, job)
	if why == nil || ctx.Err() != nil {
		return v, "", why
	}
	v, err := s.client.View(ctx, job)
	if err != nil || errors.Is(why, kube.ErrNoChannel) {
		// it starts, or has ended: nothing is newer
		return v, "", err
	}
	return v, "This is some seconds old: " + why.Error(), nil
}

// ask asks the master of a job.
func (s *clusterSource) ask(ctx context.Context, job string) (role.View, error) {
	ch, err := s.channel(ctx, job)
	if err != nil {
		return role.View{}, err
	}
	v, err := ch.View(ctx)
	if err != nil && ctx.Err() == nil {
		s.drop(job, ch) // another master may have begun
	}
	return v, err
}

// channel returns the channel to the master of a job.
func (s *clusterSource) channel(ctx context.Context, job string) (*kube.Channel, error) {
	s.mu.Lock()
	ch, last := s.channels[job], s.refused[job]
	s.mu.Unlock()
	switch {
	case ch != nil:
		return ch, nil
	case last.err != nil && time.Since(last.at) < refusedFor:
		return nil, last.err
	}
	ch, err := s.client.Channel(ctx, job)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.refused, job)
	if err != nil {
		if ctx.Err() == nil && !missing(err) {
			s.refused[job] = refusal{err, time.Now()}
		}
		return nil, err
	}
	if other := s.channels[job]; other != nil || s.closed {
		ch.Close()
		if other == nil {
			return nil, net.ErrClosed
		}
		return other, nil
	}
	for name, old := range s.channels { // any: it is opened again when it is used
		if len(s.channels) < mostChannels {
			break
		}
		delete(s.channels, name)
		old.Close()
	}
	s.channels[job] = ch
	return ch, nil
}

// drop closes a channel that does not work.
func (s *clusterSource) drop(job string, ch *kube.Channel) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.channels[job] == ch {
		delete(s.channels, job)
	}
	ch.Close()
}

// close closes all channels.
func (s *clusterSource) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, ch := range s.channels {
		ch.Close()
	}
	clear(s.channels)
}

// Log implements [page.Source].
func (s *clusterSource) Log(ctx context.Context, job, pod string, lines int64, w io.Writer) error {
	return s.client.Logs(ctx, job, role.LogOptions{Pod: pod, Tail: lines}, w)
}

// Stacks implements [page.Source].
func (s *clusterSource) Stacks(ctx context.Context, job string) (string, error) {
	reply, err := s.client.Stacks(ctx, job)
	if err != nil {
		return "", err
	}
	return stacksText(reply, true), nil
}
