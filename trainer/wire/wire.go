// Package wire is what the roles of a job say to each other: the .proto file, the
// code generated from it, which is the only generated Go of the trainer, and how they
// connect. Pure packages do not import it.
package wire

//go:generate go run -C ../../tools/gen ./proto ../../trainer/wire elasticdl.proto
