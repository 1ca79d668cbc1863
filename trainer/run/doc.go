// Package run holds what runs programs that users have written for PyTorch: `elasticdl run`.
//
//	agent/    a worker whose engine is a program: its place in the rendezvous, its processes'
//	          records
//	          and state
//	program/  a program's processes on one node, as torchrun's agent runs them
//	python/   the packages that scripts may import, and what starts them
//	tcpstore/ PyTorch's TCPStore, by which processes of torch.distributed find each other
//	fetch/    gets a program from an archive, over HTTP or from a bucket
//	folder/   packs a directory of code
//
// Its packages import those of elastic, wire and store, never those of train or of the master.
package run
