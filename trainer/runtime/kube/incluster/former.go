package incluster

import (
	"context"
	"slices"
	"strings"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube/observe"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

const (
	// for which a master waits for pods that have to go: longer than all of them have for it
	formerLimit = 2 * time.Minute
	formerEvery = time.Second // how often it looks
)

// outlive waits until the pods of a former Job of this name are deleted, as when Pulumi has
// replaced it: they would take this master for theirs, and it their work for its job's. Those that
// still exist then are on nodes that do not answer.
func (m *kubeMaster) outlive(ctx context.Context) error {
	patient, cancel := context.WithTimeout(ctx, formerLimit)
	defer cancel()
	tick := time.NewTicker(formerEvery)
	defer tick.Stop()
	for told := false; ; {
		var list *core.PodList
		err := insist(patient, m.log, "list pods", func(ctx context.Context) (err error) {
			list, err = m.Client.CoreV1().Pods(m.Namespace).List(ctx,
				meta.ListOptions{LabelSelector: manifest.Selector(m.Job)})
			return err
		})
		var left []string
		if err == nil {
			if left = m.former(list.Items); len(left) == 0 {
				return nil
			}
		}
		if !told && len(left) > 0 {
			told = true
			m.log.Info("Pods of a former job of this name are going", "pods", strings.Join(left, " "))
		}
		select {
		case <-tick.C:
			continue
		case <-patient.Done():
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		m.log.Warn("Pods of a former job of this name are left", "pods", strings.Join(left, " "), "error", err)
		return nil
	}
}

// former returns the names of pods that may be running and belong to another Job of this name.
func (m *kubeMaster) former(pods []core.Pod) []string {
	var names []string
	for _, p := range pods {
		of := slices.IndexFunc(p.OwnerReferences, func(o meta.OwnerReference) bool {
			return o.Kind == "Job" && o.Name == manifest.MasterName(m.Job)
		})
		if of >= 0 && string(p.OwnerReferences[of].UID) != m.env[job.EnvUID] && !observe.Pod(&p).Phase.Ended() {
			names = append(names, p.Name)
		}
	}
	slices.Sort(names)
	return names
}
