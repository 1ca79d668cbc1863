// Package mesh is the connections of the ranks of one world: a [ring.Link] over TCP.
//
//	Listen ─> Node ── Connect(world 7) ─> Mesh ── Send, Recv, Flush, Arrived ──> Break or Close
//	                ── Connect(world 8) ─> Mesh …
//
// A worker has one [Node], which listens as long as the worker lives, and a [Mesh] for each world
// that it is in. There is a connection between any two ranks that [ring.Peers] makes neighbours;
// the higher rank dials. The first bytes on it name the sender, the receiver and the generation of
// the world to which it belongs, and are answered likewise. Between processes of one machine only
// the address of a long message goes over it: the receiver copies it from the sender's memory, if
// the system allows that.
//
// Laws:
//
//  1. A mesh carries the bytes of one generation. A connection of an older one is refused, one of a
//     newer one is parked until this worker hears of that world. A listener that is not the worker
//     of that world at the address refuses.
//  2. The first failure, or Break, closes every connection of the mesh, so the neighbours' calls
//     fail too, and theirs: one broken link ends every rank's collective, also of ranks that wait
//     for another, silent one, and Broken tells those that are computing. From then on every call
//     returns one and the same [BrokenError].
//  3. A peer that computes keeps the others waiting for as long as that takes. One that does not
//     answer for longer than Config.Silence while somebody waits for it, or whose bytes do not
//     arrive for so long, breaks the mesh, and is named: no kernel's word is needed for that.
//     (silence.go)
//  4. Both ends identify themselves as workers of this job with a header of package identity.
//     Others take nobody's place, hear nothing but why, and hold a bounded number of connections
//     for a bounded time. (hello.go)
//  5. Nothing is copied from the memory of a process that did not take part in the connection.
//     (near.go)
//  6. Close waits for all that was started.
package mesh
