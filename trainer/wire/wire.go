// Package wire is the calls and messages of a job: elasticdl.proto, and the Go code that `make generate` makes from it. All
// else in this folder is generated. Package rpc connects and admits who calls. Pure packages import neither.
package wire

//go:generate go run -C ../../tools/gen ./proto ../../trainer/wire elasticdl.proto
