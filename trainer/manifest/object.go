package manifest

import (
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
)

// Submission is everything that the user's side creates for a job.
type Submission struct {
	Job            *batch.Job
	Spec, State    *core.ConfigMap
	Services       []*core.Service
	ServiceAccount *core.ServiceAccount // these three are nil with --service_account
	Role           *rbac.Role
	RoleBinding    *rbac.RoleBinding
}
