// Package tcpstore serves PyTorch's TCPStore, the key-value store by which the processes of a
// torch.distributed job find each other, and has a small client of it.
//
//	Serve ──> Server ── Addr ──> MASTER_ADDR, MASTER_PORT, TORCHELASTIC_USE_AGENT_STORE=True
//	             │
//	connection ──┤ decoder (wire.go)   bytes ─> request; one for PyTorch 1.x, one for 2.x
//	connection ──┤ store   (store.go)  request ─> answers, also to waiting clients; no I/O, no clock
//	connection ──┘ outbox  (server.go) answers ─> bytes
//
// The server listens before any process connects, and outlives all of them: no process of the job
// hosts the store, so none of them takes it along when it is killed. Each generation of the
// processes gets a new, empty store: a new Server.
//
// Both generations of the protocol are served on one port, to clients of one store. A client of 2.x
// says VALIDATE first; as a request of 1.x these bytes would be a key of 2.2 GB, which no client
// sends. Integers are little-endian; strings follow their length, 64 bits.
//
// Laws:
//
//  1. A wait ends when each of its keys has existed at some time since it began, and is answered
//     once. A client that sends another request has given its wait up; it is not answered any more.
//  2. A request is applied whole or not at all. A client that sends a malformed request, or exceeds
//     a limit, is disconnected; the others notice nothing.
//  3. The server never resets a connection, unless its client sends on for longer than
//     Options.Linger after the end was announced: it shuts down its own direction, reads to the end
//     of the other, then closes. A reset on the second connection of a client of 1.x aborts the
//     whole process (an uncaught std::system_error).
//  4. Close frees all clients that wait, at once: they throw. No goroutine outlives it.
//  5. The memory that clients can use is bounded: connections, the bytes of a request and of its
//     answer, the bytes of the store.
//
// Neither TCPStore nor this server knows authentication or encryption: any client that reaches the
// port can read and write. Listen on the address of the pod, and let a network policy admit only
// the job's pods.
package tcpstore
