// Package price has the prices of the clouds' machines, in US dollars per hour, and computes the
// cost of a job by the machines that its pods run on. The tables in its directory name their source
// and date.
//
//	labels of a node ──> [MachineOf] ──> [Machine.Hour] ┐
//	requests of a pod, what its node has ──> [Share] ───┴──> [Pod] ──> [Sum]
//
//	m, _ := price.MachineOf(node.Labels, gpus)
//	cost := price.Sum([]price.Pod{{Role: "worker", Machine: m, Share: 0.5, Start: start}}, now)
//	fmt.Println(cost.Spent, cost.Hour)
//
// # Laws
//
//  1. A pod without a known price is counted as such, and never as free.
//  2. The cost of the same pods never falls as time passes.
//  3. Pods that fill a node, each with a part of what it has, cost what the node costs, or more: a
//     pod has the largest of its parts.
package price
