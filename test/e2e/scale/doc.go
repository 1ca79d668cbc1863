// Package scale simulates jobs on nodes that do not exist, so that elastic scheduling can be tested
// with more processors than a machine has. The API server, the scheduler, the controllers and the
// master are real. kwok simulates nodes and the phases of pods; the processes of pods are simulated
// here:
//
//	pod                         simulated by
//	elasticdl-J-master-…        the real launcher (trainer/runtime/kube/incluster)
//	elasticdl-J-master          the real master, a process of this machine
//	elasticdl-J-ps-I            [Server]: joins, and answers the master's questions over gRPC
//	elasticdl-J-worker-N        [Worker]: joins, leases, takes a set time for each minibatch,
//	                            reports
//	pods of others              nothing: they only take up room
//
// [Kubelet] starts them when their pods are Running, and kills them at once when their pods are
// deleted. [Ledger] is the model: how often each record was trained on. [Meter] samples how many
// processors are in use, and [Chart] draws the samples.
//
// [Server] makes checkpoints: the ledger has the copy of the model. A job with checkpoints has one
// server. In a queue of Kueue, also Kueue is real: it admits and preempts the pods. Where nodes
// follow a job, also Karpenter is real: it makes and deletes the nodes of a simulated cloud.
//
// The tests with the tag e2e need a cluster of tools/kubernetes; they start one if none is named:
//
//	go test -tags e2e -count=1 -v -timeout 20m ./test/e2e/scale
package scale
