package observe

import (
	"cmp"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"

	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// Component is the master's name to the API server: its user agent, and the source of its events.
const Component = "elasticdl-master"

// ComponentLauncher is the name of a job's launcher to the API server, as a source of events.
const ComponentLauncher = "elasticdl-launcher"

// JobCondition returns a condition of a Job that holds; nil if it does not.
func JobCondition(j *batch.Job, kind batch.JobConditionType) *batch.JobCondition {
	for i, c := range j.Status.Conditions {
		if c.Type == kind && c.Status == core.ConditionTrue {
			return &j.Status.Conditions[i]
		}
	}
	return nil
}

// Failure returns why a Job has failed, or is about to; nil if it does not.
func Failure(j *batch.Job) *batch.JobCondition {
	return cmp.Or(JobCondition(j, batch.JobFailed), JobCondition(j, batch.JobFailureTarget))
}

// Suspended reports whether a Job is suspended.
func Suspended(j *batch.Job) bool { return j.Spec.Suspend != nil && *j.Spec.Suspend }

// OfAnotherJob reports whether the state of a job is of another Job than the one with that UID.
func OfAnotherJob(state *core.ConfigMap, uid string) bool {
	of := state.Data[manifest.KeyUID]
	return of != "" && of != uid
}
