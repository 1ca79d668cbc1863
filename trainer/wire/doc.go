// Package wire holds the calls and messages between the processes of a job: elasticdl.proto, and
// the Go code that `make generate` makes from it. The packages below it connect the processes.
//
//	rpc/        connections, identity of the caller, authorization, deadlines
//	credential/ the job's authority, certificates, mutual TLS
//	membership/ a worker's side of joining the job and of the rendezvous
//
// This package imports nothing else of this module; its other Go files are generated. The packages
// below it import this folder and elastic only. No package of elastic imports them: elastic
// decides, and does not communicate.
package wire

//go:generate go run -C ../../tools/gen ./proto ../../trainer/wire elasticdl.proto
