// Package run holds the packages that run users' programs, such as PyTorch scripts, for
// `elasticdl run`.
//
//	agent/    a worker that runs a program: its rendezvous, its processes, their records and state
//	program/  a program's processes on one node, as torchrun's agent runs them
//	python/   the packages that scripts may import, and the programs that start scripts
//	tcpstore/ PyTorch's TCPStore, by which processes of torch.distributed find each other
//	fetch/    fetches a program from an archive, over HTTP or from a bucket
//	folder/   packs a directory of code into an archive
//
// Its packages import those of elastic, wire and store, never those of train or of the master.
package run
