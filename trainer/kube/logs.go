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

	"github.com/elasticdl/elasticdl/trainer/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/manifest"
	"github.com/elasticdl/elasticdl/trainer/pod"
	"github.com/elasticdl/elasticdl/trainer/role"
)

// How often a follower looks for pods that have come, and whether the job has ended: less often if there are many.
const (
	podsEvery = time.Second
	podsMore  = 10 * time.Millisecond // for each
)

// Logs copies the logs of a job's pods, those that have ended among them as long as the cluster has
// them. What a connection that breaks has not brought is asked for again; no line comes twice.
func (c *Client) Logs(ctx context.Context, name string, o role.LogOptions, w io.Writer) error {
	f := &follower{client: c, o: o, began: time.Now(), out: w, known: make(map[string]bool)}
	ctx, f.cancel = context.WithCancelCause(ctx)
	defer f.cancel(nil)
	for first := true; ; first = false {
		j, err := c.job(ctx, name)
		if err != nil {
			return err
		}
		pods, err := c.pods(ctx, name)
		if err != nil {
			return err
		}
		if first && j == nil && len(pods) == 0 {
			return c.notFound(name)
		}
		over := !o.Follow || j == nil || j.DeletionTimestamp != nil || ended(j)
		if err := f.look(ctx, name, pods, over); err != nil {
			return err
		}
		if over {
			f.streams.Wait()
			return f.failed()
		}
		if err := pause(ctx, podsEvery+time.Duration(len(pods))*podsMore); err != nil {
			f.streams.Wait()
			return err
		}
	}
}

// follower copies the logs of pods as they come.
type follower struct {
	client  *Client
	o       role.LogOptions
	began   time.Time
	cancel  context.CancelCauseFunc
	known   map[string]bool // lives of pods that are being copied, or were
	streams sync.WaitGroup

	mu  sync.Mutex // one writes at a time
	out io.Writer
	err error // of out
}

// look begins to copy logs that are not copied yet, in the order of the pods' names. Without --follow, each log is copied completely before
// the next.
func (f *follower) look(ctx context.Context, name string, pods []core.Pod, last bool) error {
	var named []string
	sources := sourcesOf(pods)
	for _, s := range sources {
		named = append(named, s.pod)
	}
	if f.o.Pod != "" && !slices.Contains(named, f.o.Pod) && (last || len(f.known) == 0 && len(named) > 0 && !f.o.Follow) {
		if len(f.known) > 0 {
			return nil // the pod was deleted
		}
		return fmt.Errorf("log of pod %q of job %s %w (there are %s)", f.o.Pod, name, role.ErrNoLog, strings.Join(slices.Compact(named), ", "))
	}
	if f.o.Previous {
		if sources = slices.DeleteFunc(sources, func(s source) bool { return !s.previous }); !slices.ContainsFunc(sources, f.wants) {
			return fmt.Errorf("log of the start before the last %w: %s", role.ErrNoLog, f.onceOnly(name))
		}
	}
	for _, s := range sources {
		if f.known[s.key()] || !f.wants(s) {
			continue
		}
		if !s.begun {
			if f.o.Pod != "" && last {
				return fmt.Errorf("log of pod %s of job %s: it has not begun%s", s.pod, name, s.why)
			}
			continue
		}
		f.known[s.key()] = true
		if !f.o.Follow {
			if err := f.copy(ctx, s); err != nil {
				if f.o.Pod != "" || !errors.Is(err, errUnread) && !errors.Is(err, errCut) {
					return err
				}
				f.client.note("%v", err) // others may be read
			}
			continue
		}
		f.streams.Go(func() {
			if err := f.copy(ctx, s); err != nil && ctx.Err() == nil {
				f.client.note("%v", err)
			}
		})
	}
	return nil
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

// source is one life of a pod's container.
type source struct {
	pod       string // "worker-0"
	object    string // its name on the cluster
	uid       string
	container string
	life      int32  // 0 for the first; the cluster keeps the last two
	previous  bool   // the one before the last
	begun     bool   // there may be a log
	why       string // not
}

func (s source) key() string { return fmt.Sprintf("%s/%d", s.uid, s.life) }

// sourcesOf lists the logs that there are: the master's, then servers', then workers', by number, older ones first.
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
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Index, b.Index), a.CreationTimestamp.Compare(b.CreationTimestamp.Time))
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
			s.life = status.RestartCount
			if s.life > 0 {
				before := s
				before.life, before.previous, before.begun = s.life-1, true, true
				sources = append(sources, before)
			}
			s.begun = status.State.Running != nil || status.State.Terminated != nil
		}
		sources = append(sources, s)
	}
	return sources
}

// containerOf returns the name of the container of a pod that has its role's name, or else of the first.
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

// copy copies one log until its end, over as many connections as it takes.
func (f *follower) copy(ctx context.Context, s source) error {
	t := &tail{f: f}
	if f.o.Pod == "" {
		t.prefix = "[" + s.pod + "] "
	}
	for {
		before := t.last
		err := f.stream(ctx, s, t)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, errCut) && (f.o.Follow || !t.last.Equal(before)): // the rest is asked for
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
	o := &core.PodLogOptions{Container: s.container, Follow: f.o.Follow && !s.previous, Previous: s.previous, Timestamps: true}
	if !t.last.IsZero() {
		o.SinceTime = &meta.Time{Time: t.last}
	} else {
		if f.o.Tail >= 0 {
			o.TailLines = &f.o.Tail
		}
		if f.o.Since > 0 {
			o.SinceTime = &meta.Time{Time: f.began.Add(-f.o.Since)}
		}
	}
	doing := "logs of pod " + s.pod
	// A request that is answered goes on for as long as the log does.
	body, err := ask(ctx, f.client, doing, func(context.Context) (io.ReadCloser, error) {
		body, err := f.client.set.CoreV1().Pods(f.client.namespace).GetLogs(s.object, o).Stream(ctx)
		if api.IsInternalError(err) { // the cluster has answered, and the node has not
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
			return status.RestartCount > s.life || status.State.Running == nil
		}
	}
	return p.Status.Phase != core.PodRunning
}

// tail writes a log's lines, each once. The cluster prefixes each line with its time.
type tail struct {
	f      *follower
	prefix string
	last   time.Time // of the last line written
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
	if stamp, rest, ok := strings.Cut(line, " "); ok {
		if at, err := time.Parse(time.RFC3339Nano, stamp); err == nil {
			if !at.After(t.last) {
				return nil
			}
			t.last, line = at, rest
		}
	}
	return t.f.write(t.prefix + strings.TrimSuffix(line, "\n") + "\n")
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
	return f.err
}
