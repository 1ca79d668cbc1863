// Package trainingjob is a training job as a component of a Pulumi program: the objects that `elasticdl train` makes, made
// by the same code (trainer/manifest), and nothing else.
//
//	TrainingJob ── Job ──depends on──> ConfigMaps, ServiceAccount, Role, RoleBinding, Services ──> what the stack gives
//	                └─owns─> pods of servers and workers, which Pulumi does not know
//
// Pulumi's objects have no owner reference, so that none is replaced or collected with another.
//
// Laws:
//
//  1. A change of the number of workers is one update of the spec ConfigMap. A change of what the job is replaces the Job
//     and nothing else.
//  2. Nothing waits for pods: not `pulumi up`, which a GPU that is not to be had would hold, nor a Service for its
//     master's. The Job is the first object to go, at once, and its pods follow; the claim and the namespace wait for them.
//  3. A job that has ended is not run again: its Job stays until the stack lets it go, so --ttl is refused.
//  4. Pulumi writes nothing that the master writes, and of what `elasticdl scale` writes it has the last word.
package trainingjob
