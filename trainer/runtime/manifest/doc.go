// Package manifest makes the Kubernetes objects of a job, which the command line, the master and
// the infrastructure create, from a [job.Job] and nothing else.
//
//	user's side (CLI, Pulumi, kubectl apply): Submit    the master: Pod
//	────────────────────────────────────────────────    ───────────────
//	Job elasticdl-J-master, the root                    pods elasticdl-J-ps-I,
//	                                                    elasticdl-J-worker-N
//	ConfigMap elasticdl-J, the spec                     (owned by the Job)
//	ConfigMap elasticdl-J-state, the master's to write
//	Secret elasticdl-J-identity, the master's to fill
//	ServiceAccount, Role, RoleBinding elasticdl-J
//	Service elasticdl-J-master, elasticdl-J-ps-I
//	PodDisruptionBudget, NetworkPolicy elasticdl-J
//
// The Job owns all other objects, so that its deletion removes them. Each of the two ConfigMaps has
// one writer: the user's side writes the spec, in which the number of workers may change while the
// job runs; the master writes the state. The Secret is created empty, so that no file, state of a
// stack or command line ever contains its value. The master fills it once, with the key that signs
// the certificates of the job. Servers and workers get no key: a token proves to the master of this
// Job which pod they are, and the certificate in their environment lets them verify the master.
//
// Laws:
//
//  1. The same job makes the same objects, byte by byte.
//  2. The objects of a valid job have names and labels that Kubernetes accepts. No two objects of
//     one kind have the same name, in one job or in two.
//  3. Names and labels identify a pod: [ParseLabels] returns what [PodLabels] was given.
//  4. The master has exactly the permissions that it needs. Servers and workers run under its
//     ServiceAccount, for the rights that a cloud grants it, and have no token of it for the
//     cluster's API.
//  5. --cluster_spec_json adds and changes fields as kubectl patch does, but not the names and
//     labels by which pods are found. A field that Kubernetes does not know is refused.
//  6. Settings that a running job follows, such as its number of workers, are not in its Job's
//     template; all others are.
//
// A worker that runs a program of the user may have any image: an init container of
// --agent_image_name adds the elasticdl binary, and the image's own entry point is not run. Its
// /dev/shm is memory, and counts against the worker's limit.
//
// Pods run without capabilities, cannot get any, and have the runtime's seccomp profile. A
// container that runs our own binary cannot write to its image, only to volumes and to a /tmp that
// is removed with the pod; a program of the user writes where its image allows it. Containers run
// as root if their image does, because data of the host and of file servers often requires it.
package manifest
