//go:build e2e

package scale

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

var seed = flag.Uint64("seed", 1, "of the schedule by which other teams take quota")

// others is the queue of the teams that have no job here.
const others = "others"

// portion is the number of CPUs of a workload of the others.
const portion = 4

const labelQueue = "kueue.x-k8s.io/queue-name"

func kueueResource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "kueue.x-k8s.io", Version: "v1beta2", Resource: name}
}

// queues are the queues of a theatre's namespace, which form a cohort.
type queues struct {
	*theatre
	client dynamic.Interface
	// CPUs of each queue
	nominal map[string]int64

	mu sync.Mutex
	// most CPUs that were reserved at once
	most int64
	// number of states of the workloads that were seen
	states int
	// how long each workload of the others waited until it ran
	waits []time.Duration
}

// queue makes Kueue admit the pods of the namespace, by ClusterQueues of one cohort with these
// nominal quotas of CPUs. It watches how much quota is reserved.
func (s *theatre) queue(nominal map[string]int64) *queues {
	s.Helper()
	if err := operate("add", "kueue", "--dir="+*cluster); err != nil {
		s.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig())
	if err != nil {
		s.Fatal(err)
	}
	config.QPS, config.Burst = 1000, 1000
	q := &queues{theatre: s, nominal: nominal}
	if q.client, err = dynamic.NewForConfig(config); err != nil {
		s.Fatal(err)
	}
	label := []byte(`{"metadata":{"labels":{"elastic.dev/queued":"true"}}}`)
	if _, err := s.set.CoreV1().Namespaces().Patch(s.Context(), s.namespace, types.MergePatchType, label,
		meta.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	for _, class := range manifest.WorkloadPriorities() {
		_, err := q.client.Resource(kueueResource("workloadpriorityclasses")).Create(s.Context(), class,
			meta.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			s.Fatal(err)
		}
	}
	q.create("resourceflavors", "", object{"metadata": object{"name": s.namespace}})
	for team, cpus := range nominal {
		q.create("clusterqueues", "", clusterQueue(s.namespace, team, cpus))
		q.create("localqueues", s.namespace, object{"metadata": object{"name": team},
			"spec": object{"clusterQueue": s.namespace + "-" + team}})
	}
	q.watch()
	return q
}

type object = map[string]any

// clusterQueue returns the queue of a team in the cohort of a namespace. A team borrows what the
// others do not use, and takes its own quota back at any time.
func clusterQueue(namespace, team string, cpus int64) object {
	return object{
		"metadata": object{"name": namespace + "-" + team},
		"spec": object{
			"cohortName":        namespace,
			"namespaceSelector": object{"matchLabels": object{"kubernetes.io/metadata.name": namespace}},
			"preemption":        object{"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"},
			"resourceGroups": []any{object{
				"coveredResources": []any{"cpu", "memory"},
				"flavors": []any{object{"name": namespace, "resources": []any{
					object{"name": "cpu", "nominalQuota": fmt.Sprint(cpus)},
					object{"name": "memory", "nominalQuota": "1Ti"},
				}}},
			}},
		},
	}
}

// create creates an object of Kueue; without a namespace it is deleted with the test.
func (q *queues) create(kind, namespace string, o object) {
	q.Helper()
	u := &unstructured.Unstructured{Object: o}
	u.SetGroupVersionKind(kueueResource(kind).GroupVersion().WithKind(map[string]string{
		"resourceflavors": "ResourceFlavor", "clusterqueues": "ClusterQueue", "localqueues": "LocalQueue"}[kind]))
	of := q.client.Resource(kueueResource(kind))
	if namespace != "" {
		if _, err := of.Namespace(namespace).Create(q.Context(), u, meta.CreateOptions{}); err != nil {
			q.Fatal(err)
		}
		return
	}
	if _, err := of.Create(q.Context(), u, meta.CreateOptions{}); err != nil {
		q.Fatal(err)
	}
	q.Cleanup(func() {
		if err := of.Delete(context.Background(), u.GetName(), meta.DeleteOptions{}); err != nil {
			q.Error(err)
		}
	})
}

// watch keeps the most quota that is reserved at once. Every state of the store is a state that the
// API server had, because it is the result of a prefix of the changes.
func (q *queues) watch() {
	q.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(q.Context()))
	q.Cleanup(cancel)
	factory := dynamicinformer.NewFilteredDynamicSharedInformerFactory(q.client, 0, q.namespace, nil)
	informer := factory.ForResource(kueueResource("workloads")).Informer()
	held := make(map[types.UID]int64)
	see := func(o any, deleted bool) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		u := o.(*unstructured.Unstructured)
		if cpus := reserved(u); deleted || cpus == 0 {
			delete(held, u.GetUID())
		} else {
			held[u.GetUID()] = cpus
		}
		q.count(held)
	}
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { see(o, false) },
		UpdateFunc: func(_, o any) { see(o, false) },
		DeleteFunc: func(o any) { see(o, true) },
	}); err != nil {
		q.Fatal(err)
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		q.Fatal("the workloads cannot be watched")
	}
}

// reserved returns the CPUs that a workload holds quota for.
func reserved(u *unstructured.Unstructured) (cpus int64) {
	var w struct {
		Status struct {
			Conditions []meta.Condition
			Admission  *struct {
				PodSetAssignments []struct{ ResourceUsage core.ResourceList }
			}
		}
	}
	text, err := u.MarshalJSON()
	if err == nil {
		err = json.Unmarshal(text, &w)
	}
	if err != nil {
		panic(err) // the API server has validated it
	}
	is := map[string]bool{}
	for _, c := range w.Status.Conditions {
		is[c.Type] = c.Status == meta.ConditionTrue
	}
	if !is["QuotaReserved"] || is["Finished"] || w.Status.Admission == nil {
		return 0
	}
	for _, set := range w.Status.Admission.PodSetAssignments {
		cpus += set.ResourceUsage.Cpu().Value()
	}
	return cpus
}

func (q *queues) count(held map[types.UID]int64) {
	var all int64
	for _, cpus := range held {
		all += cpus
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.states++
	q.most = max(q.most, all)
}

// total returns the CPUs of all queues.
func (q *queues) total() (sum int64) {
	for _, cpus := range q.nominal {
		sum += cpus
	}
	return sum
}

// arrival is a workload of the others: when it is created, and how long it runs.
type arrival struct{ at, lasts time.Duration }

// schedule returns the workloads of the others for a time: every 10 to 30 s, two times of three, 1
// to most workloads at once. Each of them runs for 10 to 40 s.
func schedule(seed uint64, most int, length time.Duration) (all []arrival) {
	random := rand.New(rand.NewPCG(seed, 0))
	between := func(least, most int) time.Duration {
		return time.Duration(least+random.IntN(most-least)) * time.Second
	}
	for at := between(10, 30); at < length; at += between(10, 30) {
		if random.IntN(3) == 0 {
			continue
		}
		for range 1 + random.IntN(most) {
			all = append(all, arrival{at, between(10, 40)})
		}
	}
	return all
}

// offered returns the CPU seconds that the others want until a time.
func offered(all []arrival, end time.Duration) (sum float64) {
	for _, a := range all {
		sum += portion * max(0, min(a.lasts, end-a.at)).Seconds()
	}
	return sum
}

// churn runs the workloads of the others, until ctx is done. All of them have completed when it
// returns.
func (q *queues) churn(ctx context.Context, all []arrival) {
	began := time.Now()
	var running sync.WaitGroup
	for i, a := range all {
		if sleep(ctx, time.Until(began.Add(a.at))) != nil {
			break
		}
		running.Go(func() {
			name := fmt.Sprintf("other-%d", i)
			if err := q.other(ctx, name); err != nil && ctx.Err() == nil {
				q.Error(err)
				return
			}
			for created := time.Now(); sleep(ctx, 100*time.Millisecond) == nil; {
				if p, err := q.pods.Get(name); err == nil && p.Status.Phase == core.PodRunning {
					q.mu.Lock()
					q.waits = append(q.waits, time.Since(created))
					q.mu.Unlock()
					sleep(ctx, a.lasts)
					break
				}
			}
			if err := q.complete(context.WithoutCancel(ctx), name); err != nil {
				q.Error(err)
			}
		})
	}
	running.Wait()
}

// other creates a workload of the others: a pod that is no part of a job.
func (q *queues) other(ctx context.Context, name string) error {
	p := &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: name, Labels: map[string]string{labelQueue: others}},
		Spec: core.PodSpec{Containers: []core.Container{{Name: "other", Image: "other:none",
			Resources: requests(portion)}}},
	}
	_, err := q.set.CoreV1().Pods(q.namespace).Create(ctx, p, meta.CreateOptions{})
	return err
}

func requests(cpus int64) core.ResourceRequirements {
	return core.ResourceRequirements{Requests: core.ResourceList{
		core.ResourceCPU: *resource.NewQuantity(cpus, resource.DecimalSI)}}
}

// complete makes a pod of the others succeed, whether or not it runs, and deletes it.
func (q *queues) complete(ctx context.Context, name string) error {
	pods := q.set.CoreV1().Pods(q.namespace)
	_, err := pods.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`),
		meta.PatchOptions{}, "status")
	if err == nil {
		err = pods.Delete(ctx, name, meta.DeleteOptions{})
	}
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// stand creates a Job that stands for all pods of a job: Kueue suspends and resumes it.
func (q *queues) stand(job *play, team string, cpus int64) {
	q.Helper()
	j := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: "whole-" + job.name, Labels: map[string]string{labelQueue: team}}}
	j.Spec.Suspend = new(true)
	j.Spec.Template.Spec = core.PodSpec{RestartPolicy: core.RestartPolicyNever,
		Containers: []core.Container{{Name: "whole", Image: "whole:none", Resources: requests(cpus)}}}
	if _, err := q.set.BatchV1().Jobs(q.namespace).Create(q.Context(), j, meta.CreateOptions{}); err != nil {
		q.Fatal(err)
	}
}

// follow suspends and resumes a job with the Job that stands for it. It returns how often it was
// suspended. The caller calls it repeatedly.
func (q *queues) follow(job *play) (suspended int) {
	q.Helper()
	whole, err := q.jobs.Get("whole-" + job.name)
	if apierrors.IsNotFound(err) {
		return 0
	} else if err != nil {
		q.Fatal(err)
	}
	switch runs := !*whole.Spec.Suspend; {
	case runs && !job.resumed:
		q.resume(job)
	case !runs && job.resumed:
		job.resumed = false
		q.setSuspend(job, true)
		return 1
	}
	return 0
}

// release deletes the Job that stands for a job.
func (q *queues) release(job *play) {
	q.Helper()
	background := meta.DeletePropagationBackground
	err := q.set.BatchV1().Jobs(q.namespace).Delete(q.Context(), "whole-"+job.name,
		meta.DeleteOptions{PropagationPolicy: &background})
	if err != nil {
		q.Fatal(err)
	}
}

// ownerInQueue returns the owner of a pod for the meter: only workers are a job's own.
func ownerInQueue(p *core.Pod) string {
	switch role := p.Labels[manifest.LabelRole]; {
	case p.Labels[labelQueue] == others:
		return others
	case role == manifest.RoleLauncher, role == "":
		return ""
	case role != "worker":
		return "masters, servers"
	}
	return ownerJob(p)
}
