// Package train holds the packages that train models written in Go: `elasticdl train`.
//
//	worker/   a worker's loop: lease, read, step, push or all-reduce, report
//	ps/       a parameter server, and the client to all of them
//	ring/     all-reduce, gather and state transfer over a link of two methods
//	mesh/     the connections between the workers of one world: a ring's link
//	zoo/      the built-in models, one file each, and the engine that runs any model of this form
//	nn/       tensors, tape, layers, losses; nn/kernel/ has its inner loops
//	optim/    SGD, Momentum, Nesterov, Adam, AMSGrad, Adagrad
//	data/     readers of training data; data/dataset/ makes data sets
//	recordio/ the file format of training data
//
// Its packages import those of elastic, wire and store, never those of run or of the master.
package train
