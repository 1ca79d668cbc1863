// Package train holds what trains models that are written in Go: `elasticdl train`.
//
//	worker/   lease, read, step, push or sum with the others, report
//	ps/       a parameter server, and the client to all of them
//	ring/     all-reduce, gather and state transfer over a link of two methods
//	mesh/     the connections of one world: a ring's link
//	zoo/      the built-in models, one file each, and the engine that runs any model like them
//	nn/       tensors, tape, layers, losses; nn/kernel/ is its inner loops
//	optim/    SGD, Momentum, Nesterov, Adam, AMSGrad, Adagrad
//	data/     readers of training data; data/dataset/ makes it
//	recordio/ the file format of training data
//
// Its packages import those of elastic, wire and store, never those of run or of the master.
package train
