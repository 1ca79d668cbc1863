// Package wire is what the roles of a job say to each other: the .proto file
// and the code generated from it. It is the only generated Go of the trainer;
// pure packages do not import it.
package wire

//go:generate go run -C ../../tools/gen ./proto ../../trainer/wire elasticdl.proto
