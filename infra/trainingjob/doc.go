// Package trainingjob is a component of a Pulumi program that submits a training job: it registers
// the objects that `elasticdl train` creates, built by the same code (trainer/runtime/manifest),
// and nothing else.
//
//	TrainingJob ── Job ──depends on──> ConfigMaps, ServiceAccount, Role, RoleBinding, Services
//	                │                  ──depends on──> resources of the stack
//	                └─owns─> pods of parameter servers and workers, which Pulumi does not manage
//
// Pulumi's objects have no owner reference, so that Kubernetes deletes none of them with another.
//
// Laws:
//
//  1. A change of the number of workers updates the spec ConfigMap, and nothing else. A change of
//     other settings of the job replaces the Job and nothing else.
//  2. No resource waits for pods: neither the Job, whose update would hang without free GPUs, nor a
//     Service for the pod of its master. An update that has created the Job waits for a limited
//     time until it trains, which is no part of a resource: see [Stand]. The Job is deleted first
//     and at once, and its pods follow; the claim and the namespace are deleted after them.
//  3. A job that has ended is not run again: its Job is kept until it is removed from the stack, so
//     --ttl is refused.
//  4. Pulumi writes no field that the master writes, and overwrites what `elasticdl scale` has
//     written.
package trainingjob
