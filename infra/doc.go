// Package infra is the infrastructure of training jobs as a library for Pulumi programs, of which
// stacks is one and examples/clusters another. It contains what its parts share: [ClusterArgs] has
// what the arguments of all clusters have in common, a [Cluster] has what the package of a cloud
// returns to the rest, [Register] registers objects of Kubernetes, and [LookUp] looks up parts that
// exist already.
//
//	arguments ──> gke | eks | minikube | existing ──> Cluster
//	Cluster  ──> platform ──> image ──> dataset ──> trainingjob
//
// The packages of the clouds do not depend on each other, because their SDKs take minutes to
// compile; infra imports none of them. Package policy checks every resource that any of them
// requests.
//
// Laws:
//
//  1. Every problem of a configuration is reported at once, by its path in the stack's file, before
//     any resource is requested.
//  2. No change of a setting replaces a resource that holds data.
//  3. No secret is stored in plain text: kubeconfigs name a command that gets credentials.
//  4. Nothing below stacks reads the configuration of a stack or exports an output.
//  5. Clusters of one program, and their jobs, share no name.
package infra
