// Package runtime holds where the roles of a job run, and what every role does wherever it runs.
//
//	role/     a role's main, its plan, its log, its last words
//	local/    the roles as processes of this machine
//	kube/     jobs on Kubernetes as their user has them: submit, status, logs, scale, stop, copy;
//	          kube/incluster/ is the master in its pod, kube/observe/ reads what the cluster says
//	manifest/ what a job is on Kubernetes: its objects, its pods, their names
//	image/    container images, made and pushed without Docker
//
// Its packages import all folders below: elastic, wire, store, master, train and run.
package runtime
