package kube

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// How often a follower looks for pods that have come, and whether the job has ended: less often if
// there are many.
const (
	podsEvery = time.Second
	podsMore  = 10 * time.Millisecond // for each
)

// followWindow is the time that a follower waits for the lines of other pods before it shows one.
const followWindow = time.Second

// Logs copies the logs of a job's pods, those that have ended among them as long as the cluster has
// them: those of several pods by the time of their lines. Lines lost by a broken connection are
// requested again; no line comes twice.
func (c *Client) Logs(ctx context.Context, name string, o role.LogOptions, w io.Writer) error {
	f := &follower{client: c, o: o, started: time.Now(), out: w, known: make(map[string]bool),
		feeds: make(map[string]*feed), fresh: make(chan struct{}, 1)}
	ctx, f.cancel = context.WithCancelCause(ctx)
	defer f.cancel(nil)
	var merging sync.WaitGroup
	merging.Go(func() { f.merge(ctx) })
	err := f.follow(ctx, name)
	if err != nil {
		f.cancel(err)
	}
	f.streams.Wait()
	f.finish()
	merging.Wait()
	return cmp.Or(err, f.failed())
}

// follow begins to copy logs, until there are no others.
func (f *follower) follow(ctx context.Context, name string) error {
	for first := true; ; first = false {
		j, err := f.client.job(ctx, name)
		if err != nil {
			return err
		}
		pods, err := f.client.pods(ctx, name)
		if err != nil {
			return err
		}
		if first && j == nil && len(pods) == 0 {
			return f.client.notFound(name)
		}
		over := !f.o.Follow || j == nil || j.DeletionTimestamp != nil || ended(j)
		if err := f.look(ctx, name, pods, over); err != nil || over {
			return err
		}
		if err := pause(ctx, podsEvery+time.Duration(len(pods))*podsMore); err != nil {
			return err
		}
	}
}

// follower copies the lines of pods on arrival.
type follower struct {
	client  *Client
	o       role.LogOptions
	started time.Time
	cancel  context.CancelCauseFunc
	// sources that are being copied, or were
	known map[string]bool
	// by UID of the pod
	feeds   map[string]*feed
	streams sync.WaitGroup
	out     io.Writer
	// has an element when there is something to merge that was not looked at
	fresh chan struct{}

	mu sync.Mutex
	// in the order in which their pods were found
	order []*feed
	// of out
	err error
	// why a log that was asked for cannot be copied
	why error
}

// feed is the lines of one pod: of one generation of its container after the other.
type feed struct {
	lines chan logline.Line
	// closed when the log of the last known start is copied
	copied chan struct{}
}

// look begins to copy logs that are not copied yet.
func (f *follower) look(ctx context.Context, name string, pods []core.Pod, last bool) error {
	var named []string
	sources := sourcesOf(pods)
	for _, s := range sources {
		named = append(named, s.pod)
	}
	if f.o.Pod != "" && !slices.Contains(named, f.o.Pod) &&
		(last || len(f.known) == 0 && len(named) > 0 && !f.o.Follow) {
		if len(f.known) > 0 {
			return nil // the pod was deleted
		}
		return fmt.Errorf("log of pod %q of job %s %w (there are %s)", f.o.Pod, name, role.ErrNoLog,
			strings.Join(slices.Compact(named), ", "))
	}
	if f.o.Previous {
		if sources = slices.DeleteFunc(sources, func(s source) bool {
			return !s.previous
		}); !slices.ContainsFunc(sources, f.wants) {
			return fmt.Errorf("log of the start before the last %w: %s", role.ErrNoLog, f.onceOnly(name))
		}
	}
	var begun []source
	for _, s := range sources {
		switch {
		case f.known[s.key()] || !f.wants(s):
		case s.begun:
			f.known[s.key()] = true
			begun = append(begun, s)
		case f.o.Pod != "" && last:
			return fmt.Errorf("log of pod %s of job %s: it has not begun%s", s.pod, name, s.why)
		}
	}
	f.begin(ctx, begun)
	return nil
}

// begin copies logs, each in a goroutine. The logs of one pod are copied one after the other.
func (f *follower) begin(ctx context.Context, sources []source) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range sources {
		d := f.feeds[s.uid]
		if d == nil {
			d = &feed{lines: make(chan logline.Line, 64)}
			f.feeds[s.uid], f.order = d, append(f.order, d)
		}
		before, copied := d.copied, make(chan struct{})
		d.copied = copied
		f.streams.Go(func() {
			defer close(copied)
			if before != nil {
				<-before
			}
			f.copied(ctx, f.copy(ctx, s, d))
		})
	}
	if f.o.Follow {
		return
	}
	for _, d := range f.order { // no other generation will be looked for
		f.streams.Go(func() {
			<-d.copied
			f.end(d)
		})
	}
}

// copied handles the end of a copy. Others may be read although one cannot.
func (f *follower) copied(ctx context.Context, err error) {
	switch asked := f.o.Pod != "" || !errors.Is(err, errUnread) && !errors.Is(err, errCut); {
	case err == nil || ctx.Err() != nil:
	case f.o.Follow || !asked:
		f.client.note("%v", err)
	default:
		f.mu.Lock()
		f.why = cmp.Or(f.why, err)
		f.mu.Unlock()
	}
}

// end notes that a pod has no further line.
func (f *follower) end(d *feed) {
	close(d.lines)
	f.wake()
}

func (f *follower) wake() {
	select {
	case f.fresh <- struct{}{}:
	default:
	}
}

// finish ends all feeds of a follower that copies no more.
func (f *follower) finish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.o.Follow {
		for _, d := range f.order {
			close(d.lines)
		}
	}
	f.order = append(f.order, nil) // no other comes
	f.wake()
}

// merge writes the lines of all feeds, until the last has ended, or ctx has.
func (f *follower) merge(ctx context.Context) {
	var m logline.Merge
	if f.o.Follow {
		m.Window = followWindow
	}
	var feeds []*feed
	for {
		f.mu.Lock()
		all := f.order
		f.mu.Unlock()
		last := len(all) > 0 && all[len(all)-1] == nil
		for _, d := range all[len(feeds):] {
			if d != nil {
				feeds = append(feeds, d)
				m.Add(time.Now())
			}
		}
		open := fill(&m, feeds)
		line, _, ok, wait := m.Next(time.Now())
		switch {
		case ok:
			if f.write(line.Text) != nil {
				return
			}
			continue
		case last && !open:
			return
		}
		if !f.await(ctx, wait) {
			return
		}
	}
}

// fill puts the next line of each feed that has one, and reports whether one has not ended.
func fill(m *logline.Merge, feeds []*feed) (open bool) {
	for i, d := range feeds {
		if !m.Wants(i) {
			continue
		}
		select {
		case line, ok := <-d.lines:
			if ok {
				m.Put(i, line)
			} else {
				m.End(i)
			}
		default:
			open = true
		}
	}
	return open
}

// await returns true when there may be a line to write, in wait at the latest if that is not
// negative, or false when ctx ends.
func (f *follower) await(ctx context.Context, wait time.Duration) bool {
	var due <-chan time.Time
	if wait >= 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-f.fresh:
	case <-due:
	case <-ctx.Done():
		return false
	}
	return true
}

// wants reports whether a source is of a pod whose log is asked for.
func (f *follower) wants(s source) bool { return f.o.Pod == "" || s.pod == f.o.Pod }

// onceOnly returns the text that the requested container has not been restarted.
func (f *follower) onceOnly(job string) string {
	if f.o.Pod != "" {
		return fmt.Sprintf("the container of pod %s of job %s has not been restarted", f.o.Pod, job)
	}
	return fmt.Sprintf("no container of job %s has been restarted", job)
}

// source is the log of one start of a pod's container.
type source struct {
	// "worker-0"
	pod string
	// its name on the cluster
	object    string
	uid       string
	container string
	// number of restarts before this start; the cluster keeps the logs of the last two starts
	restarts int32
	// the one before the last
	previous bool
	// there may be a log
	begun bool
	// not
	why string
}

func (s source) key() string { return fmt.Sprintf("%s/%d", s.uid, s.restarts) }

// sourcesOf lists the logs that there are: the master's, then servers', then workers', by number,
// older ones first.
func sourcesOf(pods []core.Pod) []source {
	type numbered struct {
		pod.ID
		core.Pod
	}
	var order []numbered
	for _, p := range pods {
		if _, id, _, ok := manifest.ParseLabels(p.Labels); ok {
			order = append(order, numbered{id, p})
		}
	}
	slices.SortFunc(order, func(a, b numbered) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Index, b.Index),
			a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
	})
	var sources []source
	for _, p := range order {
		s := source{pod: p.ID.String(), object: p.Name, uid: string(p.UID), container: containerOf(&p.Pod, p.ID)}
		if why, _ := observe.Waiting(&p.Pod); why != "" {
			s.why = ": " + why
		}
		for _, status := range p.Status.ContainerStatuses {
			if status.Name != s.container {
				continue
			}
			s.restarts = status.RestartCount
			if s.restarts > 0 {
				before := s
				before.restarts, before.previous, before.begun = s.restarts-1, true, true
				sources = append(sources, before)
			}
			s.begun = status.State.Running != nil || status.State.Terminated != nil
		}
		sources = append(sources, s)
	}
	return sources
}

// containerOf returns the name of the container of a pod that has its role's name, or else of the
// first.
func containerOf(p *core.Pod, id pod.ID) string {
	for _, c := range p.Spec.Containers {
		if c.Name == id.Role.String() {
			return c.Name
		}
	}
	if len(p.Spec.Containers) == 0 {
		return ""
	}
	return p.Spec.Containers[0].Name
}

// copy copies one log to its feed until its end, over as many connections as it takes.
func (f *follower) copy(ctx context.Context, s source, d *feed) error {
	t := &tail{put: func(line logline.Line) error {
		select {
		case d.lines <- line:
			f.wake()
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}}
	if f.o.Pod == "" {
		t.prefix = "[" + s.pod + "] "
	}
	for {
		before := t.last
		err := f.stream(ctx, s, t)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errCut) && (f.o.Follow || !t.last.Equal(before)):
			// the rest is asked for
		case errors.Is(err, errUnread) && f.o.Follow && !f.over(ctx, s):
		case api.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case !f.o.Follow || s.previous || f.over(ctx, s):
			return nil
		}
		if t.last.Equal(before) { // nothing came: not so fast
			pause(ctx, podsEvery)
		}
	}
}

// stream copies what one connection brings. An error is one of the request; a connection may break.
func (f *follower) stream(ctx context.Context, s source, t *tail) error {
	o := &core.PodLogOptions{Container: s.container, Follow: f.o.Follow && !s.previous,
		Previous: s.previous, Timestamps: true}
	if !t.last.IsZero() {
		o.SinceTime = &meta.Time{Time: t.last}
	} else {
		if f.o.Tail >= 0 {
			o.TailLines = &f.o.Tail
		}
		if f.o.Since > 0 {
			o.SinceTime = &meta.Time{Time: f.started.Add(-f.o.Since)}
		}
	}
	doing := "logs of pod " + s.pod
	// A request that is answered continues for as long as the log does.
	body, err := ask(ctx, f.client, doing, func(context.Context) (io.ReadCloser, error) {
		body, err := f.client.set.CoreV1().Pods(f.client.namespace).GetLogs(s.object, o).Stream(ctx)
		// the cluster has answered, and the node has not
		if api.IsInternalError(err) {
			err = fmt.Errorf("%w: %s", errUnread, role.Brief(err.Error()))
		}
		return body, err
	})
	if err != nil {
		return err
	}
	defer body.Close()
	if err := t.copy(body); err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// Why a log was not read, or not to its end.
var (
	errUnread = errors.New("its node does not give it")
	errCut    = errors.New("the connection broke")
)

// over reports whether an incarnation of a container has ended, and so its log.
func (f *follower) over(ctx context.Context, s source) bool {
	p, err := ask(ctx, f.client, "get pod "+s.pod, func(ctx context.Context) (*core.Pod, error) {
		return absent(f.client.set.CoreV1().Pods(f.client.namespace).Get(ctx, s.object, meta.GetOptions{}))
	})
	if err != nil || p == nil || string(p.UID) != s.uid {
		return true
	}
	for _, status := range p.Status.ContainerStatuses {
		if status.Name == s.container {
			return status.RestartCount > s.restarts || status.State.Running == nil
		}
	}
	return p.Status.Phase != core.PodRunning
}

// tail passes on a log's lines, each once. The cluster prefixes each line with its time.
type tail struct {
	put    func(logline.Line) error
	prefix string
	last   time.Time // of the last line passed on
}

func (t *tail) copy(r io.Reader) error {
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if err != nil && err != io.EOF { // what there is of a line comes again
			return fmt.Errorf("%w: %w", errCut, err)
		}
		if line != "" {
			if err := t.write(line); err != nil {
				return err
			}
		}
		if err != nil {
			return nil // the end, or a connection that ended
		}
	}
}

func (t *tail) write(line string) error {
	var written time.Time
	if stamp, rest, ok := strings.Cut(line, " "); ok {
		if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
			if !at.After(t.last) {
				return nil
			}
			t.last, written, line = at, at, rest
		}
	}
	return t.put(logline.Line{At: written, Text: t.prefix + strings.TrimSuffix(line, "\n") + "\n"})
}

// write writes a line; nobody is there to read more if it fails.
func (f *follower) write(line string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err == nil {
		if _, f.err = io.WriteString(f.out, line); f.err != nil {
			f.cancel(f.err)
		}
	}
	return f.err
}

func (f *follower) failed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if errors.Is(f.err, context.Canceled) {
		return nil
	}
	return cmp.Or(f.err, f.why)
}
