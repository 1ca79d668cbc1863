// Package infra is the infrastructure of a training job as a Pulumi program. It has what its parts share: [Load] reads the
// stack's settings, a [Cluster] is what each cloud gives to the rest, [Register] registers objects of Kubernetes.
//
//	settings ──> gke | eks | minikube ──> Cluster ──> platform ──> image ──> dataset ──> trainingjob
//
// The packages of the clouds know nothing of each other, because their SDKs take minutes to compile; infra imports none
// of them. policy looks at every resource that any of them asks for.
//
// Laws:
//
//  1. Everything that is wrong with a configuration is reported at once, by its path in the stack's file, before any
//     resource is asked for.
//  2. No change of a setting replaces what holds data.
//  3. Nothing secret is written in clear: kubeconfigs name a command that gets credentials.
package infra
