package observe

import (
	"maps"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// parsePod returns the pod of a text in YAML, as incarnation 1 of worker-3 of job test.
func parsePod(t *testing.T, text string) *core.Pod {
	t.Helper()
	p := new(core.Pod)
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	if p.Labels == nil {
		p.Labels = make(map[string]string)
	}
	maps.Copy(p.Labels, map[string]string{
		"app": "elasticdl", "elasticdl-job-name": "test", "elasticdl-replica-type": "worker",
		"elasticdl-replica-index": "3", "elasticdl-launch": "1",
	})
	return p
}

// The statuses are those of Kubernetes 1.36, without fields that are not read.
func TestObserve(t *testing.T) {
	const deleted = "metadata: {deletionTimestamp: '2026-11-21T07:00:30Z', " +
		"deletionGracePeriodSeconds: 30}\nspec: {nodeName: node-1}\n"
	ended := func(phase, state string) string {
		return "status: {phase: " + phase + ", containerStatuses: [{name: worker, state: {terminated: " + state + "}}]}"
	}
	waits := func(reason, message string) string {
		return "spec: {nodeName: node-1}\nstatus: {phase: Pending, conditions: [{type: " +
			"PodScheduled, status: 'True'}], containerStatuses: [{name: worker, state: {waiting: " +
			"{reason: " + reason + ", message: '" + message + "'}}}]}"
	}
	disrupted := func(reason, message string) string {
		return "conditions: [{type: DisruptionTarget, status: 'True', reason: " + reason +
			", message: '" + message + "'}]"
	}
	dismissed := func(reason, message string) string {
		return "status: {phase: Running, conditions: [{type: TerminationTarget, status: 'True', reason: " +
			reason + ", message: '" + message + "'}]}"
	}
	const preempting = "Preempted to accommodate a workload (UID: 1) due to reclamation within the cohort"
	for name, tt := range map[string]struct {
		status string
		want   pod.Event
	}{
		"created": {"status: {phase: Pending}", pod.Event{Phase: pod.Pending}},
		"deleted in the queue, and held by a finalizer": {
			"metadata: {deletionTimestamp: '2026-11-21T07:00:30Z', finalizers: [kueue.x-k8s.io/managed]}\n" +
				"spec: {schedulingGates: [{name: kueue.x-k8s.io/admission}]}\nstatus: {phase: Pending}",
			pod.Event{Phase: pod.Deleted, Exit: pod.Exit{Deleted: true}},
		},
		"unschedulable": {
			"status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: " +
				"Unschedulable, message: '0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible.'}]}",
			pod.Event{Phase: pod.Pending,
				Waiting: "Unschedulable: 0/2 nodes are available: 2 Insufficient cpu. preemption: not eligible."},
		},
		"gated": {
			"status: {phase: Pending, conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]}",
			pod.Event{Phase: pod.Pending, Waiting: "SchedulingGated"},
		},
		"queued": {
			"metadata: {labels: {kueue.x-k8s.io/queue-name: team-a}}\nspec: {schedulingGates: [{name: " +
				"kueue.x-k8s.io/admission}, {name: kueue.x-k8s.io/topology}]}\nstatus: {phase: Pending, " +
				"conditions: [{type: PodScheduled, status: 'False', reason: SchedulingGated}]}",
			pod.Event{Phase: pod.Pending, Waiting: "waits for quota of queue team-a", Queued: true},
		},
		"its quota is reclaimed, leaving": {
			deleted + dismissed("WorkloadEvictedDueToPreempted", preempting),
			pod.Event{Phase: pod.Leaving, Node: "node-1", Exit: pod.Exit{Preempted: true, Deleted: true,
				Reason: preempting}},
		},
		"its quota is reclaimed by an older Kueue": {
			deleted + dismissed("WorkloadEvicted", preempting),
			pod.Event{Phase: pod.Leaving, Node: "node-1", Exit: pod.Exit{Preempted: true, Deleted: true,
				Reason: preempting}},
		},
		"its queue is stopped": {
			deleted + dismissed("WorkloadEvictedDueToClusterQueueStopped", "The ClusterQueue is stopped"),
			pod.Event{Phase: pod.Leaving, Node: "node-1", Exit: pod.Exit{Evicted: true, Deleted: true,
				Reason: "The ClusterQueue is stopped"}},
		},
		"container is being created": {waits("ContainerCreating", ""),
			pod.Event{Phase: pod.Pending, Image: true, Node: "node-1"}},
		"image cannot be pulled": {
			waits("ErrImagePull", "failed to pull: not found"),
			pod.Event{Phase: pod.Pending, Image: true, Node: "node-1",
				Waiting: "ErrImagePull: failed to pull: not found"},
		},
		"image cannot be pulled again": {
			waits("ImagePullBackOff", `Back-off pulling image "registry/none:1"`),
			pod.Event{Phase: pod.Pending, Image: true, Node: "node-1",
				Waiting: `ImagePullBackOff: Back-off pulling image "registry/none:1"`},
		},
		"no image can be called that": {
			waits("InvalidImageName", "Failed to apply default image tag"),
			pod.Event{Phase: pod.Pending, Image: true, Node: "node-1",
				Waiting: "InvalidImageName: Failed to apply default image tag", Hopeless: true},
		},
		"image may not be pulled": {
			waits("ErrImageNeverPull", "Container image is not present with pull policy of Never"),
			pod.Event{Phase: pod.Pending, Image: true, Node: "node-1",
				Waiting: "ErrImageNeverPull: Container image is not present with pull policy of Never"},
		},
		"no such secret": {
			waits("CreateContainerConfigError", "secret \"token\" not found"),
			pod.Event{Phase: pod.Pending, Image: true, Node: "node-1",
				Waiting: `CreateContainerConfigError: secret "token" not found`},
		},
		"running": {
			"spec: {nodeName: node-1}\nstatus: {phase: Running, containerStatuses: [{name: worker, " +
				"ready: true, state: {running: {}}}]}",
			pod.Event{Phase: pod.Running, Node: "node-1"},
		},
		"deleted by hand, leaving": {
			deleted + "status: {phase: Running}",
			pod.Event{Phase: pod.Leaving, Node: "node-1", Exit: pod.Exit{Deleted: true}},
		},
		"deleted by hand while its image is pulled": {
			deleted + strings.TrimPrefix(waits("ErrImagePull", "not found"), "spec: {nodeName: node-1}\n"),
			pod.Event{Phase: pod.Leaving, Node: "node-1", Exit: pod.Exit{Deleted: true}},
		},
		"deleted by hand, has left in good order": {
			deleted + ended("Succeeded", "{exitCode: 0, reason: Completed}"),
			pod.Event{Phase: pod.Succeeded, Node: "node-1", Exit: pod.Exit{Deleted: true}},
		},
		"deleted by hand, was killed in the end": {
			deleted + ended("Failed", "{exitCode: 137, reason: Error, message: interrupted}"),
			pod.Event{Phase: pod.Failed, Node: "node-1", Exit: pod.Exit{Code: 137, Deleted: true}},
		},
		"preempted, leaving": {
			deleted + "status: {phase: Running, " + disrupted("PreemptionByScheduler",
				"default-scheduler: preempting to accommodate a higher priority pod") + "}",
			pod.Event{Phase: pod.Leaving, Node: "node-1", Exit: pod.Exit{Preempted: true, Deleted: true,
				Reason: "default-scheduler: preempting to accommodate a higher priority pod"}},
		},
		"preempted, deleted": {
			deleted + "status: {phase: Failed, " + disrupted("PreemptionByScheduler", "preempting") +
				", containerStatuses: [{name: worker, state: {terminated: {exitCode: 1, message: interrupted}}}]}",
			pod.Event{Phase: pod.Failed, Node: "node-1", Exit: pod.Exit{Code: 1, Preempted: true,
				Deleted: true, Reason: "preempting"}},
		},
		"evicted through the API, leaving": {
			deleted + "status: {phase: Running, " + disrupted("EvictionByEvictionAPI", "Eviction API: evicting") + "}",
			pod.Event{Phase: pod.Leaving, Node: "node-1", Exit: pod.Exit{Evicted: true, Deleted: true,
				Reason: "Eviction API: evicting"}},
		},
		"its node does not answer": {
			deleted + "status: {phase: Running, " + disrupted("DeletionByTaintManager",
				"Taint manager: deleting due to NoExecute taint") + "}",
			pod.Event{Phase: pod.Leaving, Node: "node-1", Exit: pod.Exit{NodeLost: true, Deleted: true,
				Reason: "Taint manager: deleting due to NoExecute taint"}},
		},
		"its node is no more": {
			"spec: {nodeName: node-1}\nstatus: {phase: Failed, " + disrupted("DeletionByPodGC",
				"PodGC: node no longer exists") + "}",
			pod.Event{Phase: pod.Failed, Node: "node-1",
				Exit: pod.Exit{NodeLost: true, Reason: "PodGC: node no longer exists"}},
		},
		"its node is lost, as old controllers say it": {
			deleted + "status: {phase: Running, reason: NodeLost, message: 'Node node-1 which was " +
				"running pod is unresponsive'}",
			pod.Event{Phase: pod.Leaving, Node: "node-1", Exit: pod.Exit{NodeLost: true, Deleted: true,
				Reason: "Node node-1 which was running pod is unresponsive"}},
		},
		"evicted by a kubelet that has no memory left": {
			"spec: {nodeName: node-1}\nstatus: {phase: Failed, reason: Evicted, message: 'The node " +
				"was low on resource: memory.', " +
				disrupted("TerminationByKubelet", "The node was low on resource: memory.") +
				", containerStatuses: [{name: worker, state: {terminated: {exitCode: 137, reason: Error}}}]}",
			pod.Event{Phase: pod.Failed, Node: "node-1", Exit: pod.Exit{Code: 137, Evicted: true,
				Reason: "The node was low on resource: memory."}},
		},
		"refused by its kubelet": {
			"spec: {nodeName: node-1}\nstatus: {phase: Failed, reason: OutOfcpu, message: 'Pod was " +
				"rejected: Node didn''t have enough resource: cpu'}",
			pod.Event{Phase: pod.Failed, Node: "node-1",
				Exit: pod.Exit{Rejected: true,
					Reason: "OutOfcpu: Pod was rejected: Node didn't have enough resource: cpu"}},
		},
		"refused by its kubelet, which has no memory left": {
			"spec: {nodeName: node-1}\nstatus: {phase: Failed, reason: Evicted, message: 'The node " +
				"had condition: [MemoryPressure].'}",
			pod.Event{Phase: pod.Failed, Node: "node-1", Exit: pod.Exit{Rejected: true, Evicted: true,
				Reason: "The node had condition: [MemoryPressure]."}},
		},
		"refused by its kubelet, and deleted": {
			deleted + "status: {phase: Failed, reason: NodeAffinity, message: 'Pod was rejected'}",
			pod.Event{Phase: pod.Failed, Node: "node-1", Exit: pod.Exit{Deleted: true, Reason: "Pod was rejected"}},
		},
		"done": {ended("Succeeded", "{exitCode: 0, reason: Completed}"), pod.Event{Phase: pod.Succeeded}},
		"failed": {ended("Failed",
			`{exitCode: 1, reason: Error, message: "first\nno such file: /data\n"}`),
			pod.Event{Phase: pod.Failed, Exit: pod.Exit{Code: 1, Reason: "no such file: /data"}}},
		"crashed": {ended("Failed", "{exitCode: 139, signal: 11, reason: Error}"),
			pod.Event{Phase: pod.Failed, Exit: pod.Exit{Code: 139, Signal: 11}}},
		"oom": {ended("Failed", "{exitCode: 137, reason: OOMKilled}"),
			pod.Event{Phase: pod.Failed, Exit: pod.Exit{Code: 137, OOM: true}}},
		"oom, with a limit": {
			"spec: {containers: [{name: mesh}, {name: worker, resources: {limits: {memory: 24Mi}}}]}\n" +
				ended("Failed", "{exitCode: 137, reason: OOMKilled, message: 'Worker started'}"),
			pod.Event{Phase: pod.Failed, Exit: pod.Exit{Code: 137, OOM: true, Reason: "its limit is 24Mi"}},
		},
		"panic": {
			ended("Failed",
				`{exitCode: 2, reason: Error, message: "it works\npanic: index out of range\n\ngoroutine 1 [running]:\nmain.go:12 +0x1d\n"}`),
			pod.Event{Phase: pod.Failed, Exit: pod.Exit{Code: 2, Reason: "panic: index out of range"}},
		},
		"137": {ended("Failed", "{exitCode: 137, reason: Error, message: it works}"),
			pod.Event{Phase: pod.Failed, Exit: pod.Exit{Code: 137}}},
		"no binary": {ended("Failed", "{exitCode: 128, reason: StartError, message: 'exec: no "+
			"such file'}"), pod.Event{Phase: pod.Failed, Exit: pod.Exit{Code: 128, Reason: "exec: no such file"}}},
		"node was switched off and on": {
			ended("Failed", "{exitCode: 137, reason: ContainerStatusUnknown}"),
			pod.Event{Phase: pod.Failed, Exit: pod.Exit{Code: 137, Reason: "ContainerStatusUnknown"}},
		},
		"a container that others have added ended, too": {
			"status: {phase: Failed, containerStatuses: [{name: mesh, state: {terminated: " +
				"{exitCode: 2}}}, {name: worker, state: {terminated: {exitCode: 1}}}]}",
			pod.Event{Phase: pod.Failed, Exit: pod.Exit{Code: 1}},
		},
		"what comes before it failed": {
			"status: {phase: Failed, initContainerStatuses: [{name: first, state: {terminated: " +
				"{exitCode: 0}}}, {name: second, state: {terminated: {exitCode: 3, message: " +
				"none}}}], containerStatuses: [{name: worker, state: {waiting: {reason: PodInitializing}}}]}",
			pod.Event{Phase: pod.Failed, Exit: pod.Exit{Code: 3, Reason: "none"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			tt.want.ID, tt.want.Incarnation = pod.ID{Role: pod.Worker, Index: 3}, 1
			if got := Pod(parsePod(t, tt.status)); got != tt.want {
				t.Errorf("observed\n%+v, expected\n%+v", got, tt.want)
			}
		})
	}
}

// Vanished returns the end of a pod whose object was deleted, from its last state.
func TestVanished(t *testing.T) {
	for name, tt := range map[string]struct {
		status string
		phase  pod.Phase
		exit   string
	}{
		"pending": {"status: {phase: Pending}", pod.Deleted, "deleted"},
		"running": {"status: {phase: Running}", pod.Deleted, "deleted"},
		"preempted": {"metadata: {deletionTimestamp: '2026-11-21T07:00:30Z'}\nstatus: {phase: " +
			"Running, conditions: [{type: DisruptionTarget, status: 'True', reason: " +
			"PreemptionByScheduler}]}", pod.Deleted, "preempted"},
		"failed": {"status: {phase: Failed, containerStatuses: [{name: worker, state: " +
			"{terminated: {exitCode: 1}}}]}", pod.Failed, "exit code 1"},
	} {
		t.Run(name, func(t *testing.T) {
			e := Vanished(parsePod(t, tt.status))
			if e.Phase != tt.phase || e.Exit.String() != tt.exit || e.Waiting != "" {
				t.Errorf("%+v, expected %v: %s", e, tt.phase, tt.exit)
			}
		})
	}
}

// The reason for which a pod waits is one short line.
func TestWaitingIsShort(t *testing.T) {
	p := parsePod(t, "status: {phase: Pending}")
	p.Status.Conditions = []core.PodCondition{{Type: core.PodScheduled, Status: core.ConditionFalse,
		Reason: "Unschedulable", Message: strings.Repeat("0/5000 nodes\nare available ", 100)}}
	if w := Pod(p).Waiting; len(w) > 300 || strings.Contains(w, "\n") ||
		!strings.HasPrefix(w, "Unschedulable: 0/5000 nodes are") {
		t.Errorf("%q", w)
	}
}

// The reason says if the image has no elasticdl, and for a container that ends again and again, its
// last error.
func TestWaitingSaysWhy(t *testing.T) {
	const text = `failed to create containerd task: OCI runtime create failed: exec: "worker": executable file not found in $PATH: unknown`
	backOff := core.ContainerState{Waiting: &core.ContainerStateWaiting{Reason: "CrashLoopBackOff",
		Message: "back-off 20s restarting failed container"}}
	ended := func(message string) core.ContainerState {
		return core.ContainerState{Terminated: &core.ContainerStateTerminated{ExitCode: 1, Message: message}}
	}
	for _, test := range []struct {
		status core.ContainerStatus
		want   string
	}{
		{core.ContainerStatus{State: core.ContainerState{
			Waiting: &core.ContainerStateWaiting{Reason: "RunContainerError", Message: text}}},
			"RunContainerError: the image has no elasticdl; "},
		{core.ContainerStatus{State: backOff, LastTerminationState: ended(text)},
			"CrashLoopBackOff: the image has no elasticdl; "},
		{core.ContainerStatus{State: backOff,
			LastTerminationState: ended("a line\nno such directory\n")}, "CrashLoopBackOff: no such directory"},
		{core.ContainerStatus{State: backOff}, "CrashLoopBackOff: back-off 20s"},
	} {
		p := parsePod(t, "metadata: {labels: {elasticdl-replica-type: worker}}\nstatus: {phase: Pending}")
		p.Status.ContainerStatuses = []core.ContainerStatus{test.status}
		if w, _ := Waiting(p); !strings.HasPrefix(w, test.want) {
			t.Errorf("%q, want %q", w, test.want)
		}
	}
}
