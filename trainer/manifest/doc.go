// Package manifest says what a job is on Kubernetes: the objects that the command line, the master and the
// infrastructure create, made of a [job.Job] and nothing else.
//
//	user's side (CLI, Pulumi, kubectl apply)            the master
//	────────────────────────────────────────            ──────────
//	Job elasticdl-J-master, the root                    pods elasticdl-J-ps-I, elasticdl-J-worker-N
//	ConfigMap elasticdl-J, the spec                     (owned by the Job)
//	ConfigMap elasticdl-J-state, the master's to write
//	ServiceAccount, Role, RoleBinding elasticdl-J
//	Service elasticdl-J-master, elasticdl-J-ps-I
package manifest
