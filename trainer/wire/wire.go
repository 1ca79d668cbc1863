// Package wire has the calls and messages between the processes of a job: elasticdl.proto, and the
// Go code that `make generate` makes from it. Everything else in this folder is generated. Package
// rpc connects processes and authenticates callers. Pure packages import neither.
package wire

//go:generate go run -C ../../tools/gen ./proto ../../trainer/wire elasticdl.proto
