package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"

	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// Largest numbers of objects that evidence has.
const (
	mostEvents = 5000
	mostNodes  = 100
)

// Evidence returns what the cluster knows of a job besides its status, journal and logs: its
// objects, without Secrets, and what they depend on. An object that cannot be read has the reason
// instead. It returns [ErrNotFound] if there is no such job.
func (c *Client) Evidence(ctx context.Context, name string) ([]role.Evidence, error) {
	root, err := c.job(ctx, name)
	if err != nil {
		return nil, err
	}
	pods, err := c.pods(ctx, name)
	if err != nil {
		return nil, err
	}
	if root == nil && len(pods) == 0 {
		return nil, c.notFound(name)
	}
	uids := make(map[string]bool)
	var all []role.Evidence
	add := func(file string, value any, err error) {
		all = append(all, role.Evidence{Name: "cluster/" + file + ".json", Value: value, Why: err})
	}
	if root != nil {
		uids[string(root.UID)] = true
		root.ManagedFields = nil
		add("job", root, nil)
	}
	for i := range pods {
		uids[string(pods[i].UID)] = true
		pods[i].ManagedFields = nil
	}
	add("pods", pods, nil)
	for file, name := range map[string]string{"settings": manifest.SpecName(name), "state": manifest.StateName(name)} {
		m, err := c.configMap(ctx, name)
		if m != nil || err != nil {
			add(file, readable(m), err)
		}
	}
	events, err := c.eventsOf(ctx, uids)
	add("events", events, err)
	c.surroundings(ctx, pods, add)
	slices.SortFunc(all, func(a, b role.Evidence) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// surroundings adds what a job's pods depend on.
func (c *Client) surroundings(ctx context.Context, pods []core.Pod, add func(file string, value any, err error)) {
	claims, nodes := make(map[string]bool), make(map[string]bool)
	queued := false
	for _, p := range pods {
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim != nil {
				claims[v.PersistentVolumeClaim.ClaimName] = true
			}
		}
		if p.Spec.NodeName != "" {
			nodes[p.Spec.NodeName] = true
		}
		queued = queued || p.Labels[manifest.LabelQueue] != ""
	}
	if len(claims) > 0 {
		found, err := each(ctx, c, "persistentvolumeclaim", claims,
			c.set.CoreV1().PersistentVolumeClaims(c.namespace).Get)
		add("claims", found, err)
	}
	found, err := each(ctx, c, "node", nodes, c.set.CoreV1().Nodes().Get)
	add("nodes", found, err)
	quotas, err := once(ctx, c.limit(), func(ctx context.Context) (*core.ResourceQuotaList, error) {
		return c.set.CoreV1().ResourceQuotas(c.namespace).List(ctx, meta.ListOptions{})
	})
	add("quotas", quotas, c.explain("list resourcequotas", err))
	if queued {
		if v := c.kueue(); v == "" {
			add("workloads", nil, errors.New("the cluster has no Kueue, or does not answer"))
		} else {
			list, err := c.ofKueue(ctx, v, "workloads", c.namespace, meta.ListOptions{})
			add("workloads", list, c.explain("list workloads", err))
		}
	}
	is, err := once(ctx, c.limit(), func(context.Context) (*version.Info, error) {
		return c.set.Discovery().ServerVersion()
	})
	add("version", is, c.explain("get the version", err))
}

// each returns objects by their names, at most [mostNodes] of them.
func each[T any](ctx context.Context, c *Client, kind string, names map[string]bool,
	get func(context.Context, string, meta.GetOptions) (*T, error)) (found []*T, err error) {
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if len(found) == mostNodes {
			return found, fmt.Errorf("only the first %d of %d", mostNodes, len(names))
		}
		o, err := once(ctx, c.limit(), func(ctx context.Context) (*T, error) {
			return absent(get(ctx, name, meta.GetOptions{}))
		})
		if err != nil {
			return found, c.explain("get "+kind+" "+name, err)
		}
		if o != nil {
			found = append(found, o)
		}
	}
	return found, nil
}

// eventsOf returns the events about objects, by their UIDs.
func (c *Client) eventsOf(ctx context.Context, uids map[string]bool) ([]core.Event, error) {
	list, err := once(ctx, c.limit(), func(ctx context.Context) (*core.EventList, error) {
		return c.set.CoreV1().Events(c.namespace).List(ctx, meta.ListOptions{Limit: mostEvents})
	})
	if err != nil {
		return nil, c.explain("list events", err)
	}
	events := slices.DeleteFunc(list.Items, func(e core.Event) bool { return !uids[string(e.InvolvedObject.UID)] })
	for i := range events {
		events[i].ManagedFields = nil
	}
	if list.Continue != "" {
		return events, fmt.Errorf("the namespace has more than %d events, of which these are the first", mostEvents)
	}
	return events, nil
}

// readable returns the data of a ConfigMap, in which texts of JSON are values.
func readable(m *core.ConfigMap) any {
	if m == nil {
		return nil
	}
	data := make(map[string]any, len(m.Data))
	for key, text := range m.Data {
		if value, err := role.Tree([]byte(text)); err == nil {
			data[key] = value
		} else {
			data[key] = text
		}
	}
	return map[string]any{"name": m.Name, "uid": m.UID, "resourceVersion": m.ResourceVersion,
		"created": m.CreationTimestamp, "annotations": m.Annotations, "data": data}
}
