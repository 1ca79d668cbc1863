// Package runtime holds the environments in which the roles of a job run, and what all roles do in
// each of them.
//
//	role/     the main function of each role, its log, and the record of its end
//	local/    the roles as processes of this machine
//	kube/     the user's commands for jobs on Kubernetes: submit, status, logs, scale, stop, copy;
//	          kube/incluster/ runs the master in its pod, kube/observe/ reads pods and events
//	manifest/ the Kubernetes objects of a job: Jobs, pods, Services, and their names
//	metrics/  metrics of the roles for Prometheus, served over HTTP
//	image/    container images, built and pushed without Docker
//
// Its packages import all folders below: elastic, wire, store, master, train and run.
package runtime
