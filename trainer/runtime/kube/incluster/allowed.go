package incluster

import (
	"context"
	"fmt"
	"log/slog"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// allowed tries the permissions that a master needs for news of its pods and of its spec, and for
// its end. Watches continue without a permission, as well as they can; a job that lacks one is to
// fail and name it instead.
func (m *kubeMaster) allowed(ctx context.Context) error {
	pods, maps := m.Client.CoreV1().Pods(m.Namespace), m.Client.CoreV1().ConfigMaps(m.Namespace)
	of := meta.ListOptions{LabelSelector: manifest.LabelJob + "=" + m.Job, Limit: 1}
	return tryAll(ctx, m.log, []attempt{
		{"list pods", func(ctx context.Context) error {
			_, err := pods.List(ctx, of)
			return err
		}},
		{"watch pods", func(ctx context.Context) error {
			return glance(pods.Watch(ctx, meta.ListOptions{LabelSelector: of.LabelSelector}))
		}},
		{"read the Job", func(ctx context.Context) error {
			_, err := m.Client.BatchV1().Jobs(m.Namespace).Get(ctx, manifest.MasterName(m.Job), meta.GetOptions{})
			return err
		}},
		// which changes nothing
		{"patch the Job", func(ctx context.Context) error { return m.patchJob(ctx, "{}") }},
		{"watch what the job is", func(ctx context.Context) error {
			return glance(maps.Watch(ctx, meta.ListOptions{FieldSelector: named(manifest.SpecName(m.Job))}))
		}},
	})
}

// attempt is a request that shows whether a permission is granted.
type attempt struct {
	doing   string
	request func(context.Context) error
}

// tryAll makes attempts one after the other. The error is that of the first that is refused.
func tryAll(ctx context.Context, log *slog.Logger, all []attempt) error {
	for _, try := range all {
		if err := insist(ctx, log, try.doing, try.request); err != nil {
			return fmt.Errorf("%s: %w", try.doing, err)
		}
	}
	return nil
}

// glance stops a watch at once.
func glance(w watch.Interface, err error) error {
	if err == nil {
		w.Stop()
	}
	return err
}
