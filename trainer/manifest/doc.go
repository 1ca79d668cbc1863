// Package manifest says what a job is on Kubernetes: the objects that the command line, the master and the
// infrastructure create, made of a [job.Job] and nothing else.
//
//	user's side (CLI, Pulumi, kubectl apply): Submit    the master: Pod
//	────────────────────────────────────────────────    ───────────────
//	Job elasticdl-J-master, the root                    pods elasticdl-J-ps-I, elasticdl-J-worker-N
//	ConfigMap elasticdl-J, the spec                     (owned by the Job)
//	ConfigMap elasticdl-J-state, the master's to write
//	Secret elasticdl-J-identity, the master's to fill
//	ServiceAccount, Role, RoleBinding elasticdl-J
//	Service elasticdl-J-master, elasticdl-J-ps-I
//	PodDisruptionBudget, NetworkPolicy elasticdl-J
//
// The Job owns all the rest, so that its deletion is the end of everything. Two ConfigMaps, one writer each: the user's side
// writes the spec, in which the number of workers may change while the job runs, the master writes the state. The Secret is
// made empty, so that no file, state of a stack or command line ever holds what is in it, and filled once by the master, with the key that signs
// the certificates of the job. Servers and workers get no key: they have a token that says to the master of this Job which pod they are, and in
// their environment the certificate by which they know it.
//
// Laws:
//
//  1. The same job makes the same objects, byte by byte.
//  2. What is made of a valid job has names and labels that Kubernetes takes, and no two objects of a job, or of
//     two jobs, are of one name.
//  3. Names and labels say whose pod it is: [ParsePodName] and [ParseLabels] give back what [PodName] and [PodLabels] were given.
//  4. The master may do what it does and nothing else; servers and workers run under its ServiceAccount, for what a cloud
//     allows that, and have no token of it to do anything with in the cluster.
//  5. --cluster_spec_json adds and changes fields, as kubectl patch does, but not what pods are found by. A field that Kubernetes
//     does not know is refused.
//  6. What a running job follows, as its number of workers, is not in its Job's template; all else that it is, is.
//
// A worker that runs a program of the user's may be of any image: the elasticdl binary comes along by an init container of --agent_image_name. The image's
// own entry point is not run then. Its /dev/shm is memory, and counts against the worker's limit.
//
// Pods run with no capabilities, no way to get any, and the runtime's seccomp profile. What runs our own binary cannot write to its image, but to
// volumes and to a /tmp that goes with the pod; a program of the user's writes where its image lets it. They are root within their container if the image says
// so, as data of the host and of file servers often demands.
package manifest
