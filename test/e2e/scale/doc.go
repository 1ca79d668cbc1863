// Package scale plays jobs on nodes that are not there, so that elastic scheduling can be seen with more processors
// than a machine has. The API server, the scheduler, the controllers and the master are real. Nodes and
// the phases of pods are kwok's; what runs in a pod is played:
//
//	pod                         played by
//	elasticdl-J-master          the real one (trainer/kube/incluster), a process of this machine
//	elasticdl-J-ps-I            [Server]: joins, and answers the master's questions over gRPC
//	elasticdl-J-worker-N        [Worker]: joins, leases, takes a set time for each minibatch, reports
//	of anybody else             nobody: it only takes its place
//
// [Kubelet] starts them when their pods are Running and ends them at once, without a word, when their pods are deleted.
// [Ledger] is the model: how often each record was trained on. [Meter] samples what of the
// processors is taken, and [Chart] draws it.
//
// The tests with the tag e2e need a cluster of tools/kubernetes; they boot one if none is named:
//
//	go test -tags e2e -count=1 -v -timeout 20m ./test/e2e/scale
package scale
