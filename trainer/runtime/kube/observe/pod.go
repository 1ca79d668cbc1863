package observe

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// Pod returns what the cluster says of a server's or worker's pod. One that is deleted before it
// has a node has ended, though finalizers, such as Kueue's, may hold its object: no scheduler gives
// it a node.
func Pod(p *core.Pod) pod.Event {
	_, id, incarnation, _ := manifest.ParseLabels(p.Labels)
	e := pod.Event{ID: id, Incarnation: incarnation, Node: p.Spec.NodeName,
		Core: id.Role == pod.Worker && p.Labels[manifest.LabelShare] == manifest.ShareCore}
	switch p.Status.Phase {
	case core.PodSucceeded:
		e.Phase, e.Exit = pod.Succeeded, Exit(p)
	case core.PodFailed:
		e.Phase, e.Exit = pod.Failed, Exit(p)
	case core.PodRunning:
		e.Phase = pod.Running
	default:
		e.Phase = pod.Pending
		e.Waiting, e.Hopeless = Waiting(p)
		e.Queued, e.Image = Queued(p), p.Spec.NodeName != ""
	}
	if p.DeletionTimestamp != nil && !e.Phase.Ended() {
		if e.Phase, e.Exit = pod.Leaving, Exit(p); p.Spec.NodeName == "" && p.Status.Phase != core.PodRunning {
			e.Phase = pod.Deleted
		}
		e.Waiting, e.Hopeless, e.Queued, e.Image = "", false, false, false
	}
	return e
}

// Vanished returns the end of a pod whose object was deleted, by its last observation.
func Vanished(last *core.Pod) pod.Event {
	e := Pod(last)
	if !e.Phase.Ended() {
		e.Phase, e.Exit = pod.Deleted, Exit(last)
		e.Exit.Deleted = true
		e.Waiting, e.Hopeless, e.Queued, e.Image = "", false, false, false
	}
	return e
}

// oomKilled is a kubelet's reason for a container that the kernel killed because of its memory.
const oomKilled = "OOMKilled"

// Exit returns how a pod ended, or why it is about to.
func Exit(p *core.Pod) pod.Exit {
	e := pod.Exit{Deleted: p.DeletionTimestamp != nil}
	if end := terminated(p); end != nil {
		e.Code, e.Signal = int(end.ExitCode), int(end.Signal)
		e.OOM = end.Reason == oomKilled
		e.Reason = lastWords(p, end)
	} else if p.Status.Phase == core.PodFailed {
		// OutOfcpu, NodeAffinity, UnexpectedAdmissionError: no container of it has run
		e.Rejected = p.DeletionTimestamp == nil
	}
	if c := podCondition(p, core.DisruptionTarget); c != nil && c.Status == core.ConditionTrue {
		e.Rejected = false
		disrupted(&e, c)
	} else if c := podCondition(p, terminationTarget); c != nil && c.Status == core.ConditionTrue {
		e.Rejected = false
		dismissed(&e, c)
	}
	switch p.Status.Reason {
	case "Evicted":
		e.Evicted = true
	case "NodeLost":
		e.NodeLost = true
	}
	switch {
	case e.Rejected && !e.Evicted && p.Status.Reason != "":
		e.Reason = because(p.Status.Reason, p.Status.Message) // as kubectl shows it
	case p.Status.Message != "" || p.Status.Reason != "":
		e.Reason = cmp.Or(LastLine(p.Status.Message), p.Status.Reason)
	}
	return e
}

// lastWords returns the reason that a container has given for its end; a killed one has given none.
func lastWords(p *core.Pod, end *core.ContainerStateTerminated) string {
	switch {
	case p.DeletionTimestamp != nil:
		return ""
	case end.Reason == oomKilled:
		if limit, ok := memoryLimit(p); ok {
			return "its limit is " + limit.String()
		}
		return ""
	case end.ExitCode == 128+9:
		return usual(end.Reason)
	}
	return cmp.Or(lacks(p, end.Message), panicked(end.Message), LastLine(end.Message), usual(end.Reason))
}

// lacks returns what is missing in an image whose container could not be started, "" if the cause
// is another.
func lacks(p *core.Pod, message string) string {
	// the first argument, as there is no entry point
	if strings.Contains(message, `exec: "`+p.Labels[manifest.LabelRole]+`": executable file not found`) {
		return "the image has no elasticdl; expected one that elasticdl zoo build made, or, for a " +
			"program, --agent_image_name"
	}
	return ""
}

// memoryLimit returns the memory limit of the container of the pod's role.
func memoryLimit(p *core.Pod) (resource.Quantity, bool) {
	for _, c := range p.Spec.Containers {
		if c.Name == p.Labels[manifest.LabelRole] {
			limit, ok := c.Resources.Limits[core.ResourceMemory]
			return limit, ok
		}
	}
	return resource.Quantity{}, false
}

// panicked returns the line of a log with the panic of a Go program, which is followed by its
// stack.
func panicked(log string) string {
	for text := range strings.Lines(log) {
		if strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ") {
			return role.Brief(text)
		}
	}
	return ""
}

// disrupted adds the reason in a condition of type DisruptionTarget: the pod is ended from outside.
func disrupted(e *pod.Exit, c *core.PodCondition) {
	switch c.Reason {
	case core.PodReasonPreemptionByScheduler:
		e.Preempted = true
	case "DeletionByTaintManager", "DeletionByPodGC": // its node does not answer, or is no more
		e.NodeLost = true
	default:
		// TerminationByKubelet, EvictionByEvictionAPI
		e.Evicted = true
	}
	e.Reason = cmp.Or(LastLine(c.Message), e.Reason)
}

// Kueue's marks of a pod that it queues, with the pod as a workload of its own.
const (
	// the condition of a pod that Kueue is about to delete
	terminationTarget core.PodConditionType = "TerminationTarget"
	// the scheduling gate of a pod whose workload is not admitted
	admissionGate = "kueue.x-k8s.io/admission"
)

// dismissed adds the reason in a condition of type TerminationTarget: Kueue takes the pod's quota
// back. A preempted pod is named so in the reason, and before Kueue 0.10 only in the message.
func dismissed(e *pod.Exit, c *core.PodCondition) {
	if strings.HasSuffix(c.Reason, "DueToPreempted") || strings.HasPrefix(c.Message, "Preempted") {
		e.Preempted = true
	} else {
		e.Evicted = true
	}
	e.Reason = cmp.Or(LastLine(c.Message), c.Reason)
}

// Queued reports whether a pod waits for Kueue to admit it.
func Queued(p *core.Pod) bool {
	return slices.ContainsFunc(p.Spec.SchedulingGates, func(g core.PodSchedulingGate) bool {
		return g.Name == admissionGate
	})
}

// terminated returns how the container of the pod's role ended, nil if it has not. If that
// container is not found, the first one that failed counts.
func terminated(p *core.Pod) *core.ContainerStateTerminated {
	statuses := slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses)
	ended := func(s core.ContainerStatus) bool { return s.State.Terminated != nil }
	rank := func(s core.ContainerStatus) int {
		switch {
		case s.Name == p.Labels[manifest.LabelRole]:
			return 0
		case s.State.Terminated.ExitCode != 0:
			return 1
		}
		return 2
	}
	statuses = slices.DeleteFunc(statuses, func(s core.ContainerStatus) bool { return !ended(s) })
	if len(statuses) == 0 {
		return nil
	}
	return slices.MinFunc(statuses, func(a, b core.ContainerStatus) int {
		return cmp.Compare(rank(a), rank(b))
	}).State.Terminated
}

// usual returns "" for reasons that say no more than the exit code does.
func usual(reason string) string {
	switch reason {
	case "Error", "Completed":
		return ""
	}
	return reason
}

// Waiting returns why a pod does not run yet, "" if that is its usual course; hopeless: it never
// will.
func Waiting(p *core.Pod) (why string, hopeless bool) {
	if Queued(p) {
		return "waits for quota of queue " + cmp.Or(p.Labels[manifest.LabelQueue], "unknown"), false
	}
	if c := podCondition(p, core.PodScheduled); c != nil && c.Status == core.ConditionFalse {
		return because(c.Reason, c.Message), false
	}
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && w.Reason != "ContainerCreating" && w.Reason != "PodInitializing" {
			message := cmp.Or(lacks(p, w.Message), w.Message)
			// that it waits is no cause
			if last := s.LastTerminationState.Terminated; w.Reason == "CrashLoopBackOff" && last != nil {
				message = cmp.Or(lastWords(p, last), message)
			}
			return because(w.Reason, message), w.Reason == invalidImage
		}
	}
	return "", false
}

// noVictims matches how a scheduler says that no node could run a pod even if all other pods were
// evicted.
var noVictims = regexp.MustCompile(
	`preemption: 0/(\d+) nodes are available: (\d+) Preemption is not helpful for scheduling`)

// Unplaced reports whether the scheduler has looked for a node for a pod, and found none. It does
// not look for one while the pod waits for quota.
func Unplaced(p *core.Pod) bool {
	c := podCondition(p, core.PodScheduled)
	return c != nil && c.Status == core.ConditionFalse && c.Reason == core.PodReasonUnschedulable
}

// FitsNoNode reports whether a pod fits no node that the cluster has now, however empty: because of
// its node selector, its requests, or taints.
func FitsNoNode(p *core.Pod) bool {
	if !Unplaced(p) {
		return false
	}
	m := noVictims.FindStringSubmatch(podCondition(p, core.PodScheduled).Message)
	return m != nil && m[1] == m[2] && m[1] != "0"
}

// Kubelets' reasons for a container whose image is missing.
const (
	invalidImage = "InvalidImageName"
	neverPulled  = "ErrImageNeverPull"
)

var pullFailures = []string{
	invalidImage, neverPulled, "ErrImagePull", "ImagePullBackOff", "ImageInspectError",
	"RegistryUnavailable", "SignatureValidationFailed",
}

// ImageMissing reports whether a pod lacks its image, and whether its node does not even try to
// pull it.
func ImageMissing(p *core.Pod) (missing, never bool) {
	for _, s := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
		if w := s.State.Waiting; w != nil && slices.Contains(pullFailures, w.Reason) {
			missing, never = true, never || w.Reason == neverPulled
		}
	}
	return missing, never
}

// because returns a reason with its message.
func because(reason, message string) string {
	if message = role.Brief(message); message == "" {
		return reason
	}
	return reason + ": " + message
}

// LastLine returns the last line of a text that is not empty.
func LastLine(text string) string {
	text = strings.TrimSpace(text)
	return role.Brief(text[strings.LastIndexByte(text, '\n')+1:])
}

// Ended reports whether the container of a role has ended, or its whole pod, and whether it has
// succeeded. Containers that admission has added may still run.
func Ended(p *core.Pod, role string) (ended, succeeded bool) {
	switch p.Status.Phase {
	case core.PodSucceeded:
		return true, true
	case core.PodFailed:
		return true, false
	}
	for _, s := range p.Status.ContainerStatuses {
		if end := s.State.Terminated; s.Name == role && end != nil {
			return true, end.ExitCode == 0
		}
	}
	return false, false
}

// Ready reports whether a pod is ready. On a node that does not answer none is.
func Ready(p *core.Pod) bool {
	c := podCondition(p, core.PodReady)
	return c != nil && c.Status == core.ConditionTrue
}

func podCondition(p *core.Pod, kind core.PodConditionType) *core.PodCondition {
	for i, c := range p.Status.Conditions {
		if c.Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}
