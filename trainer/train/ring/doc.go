// Package ring sums, gathers and passes on what the ranks of one world hold. It
// is the arithmetic and the order of it; a [Link] carries the bytes.
//
//	Reduce   every rank's numbers become their sum      each rank sums up a block, by halving and
//	                                                    doubling: 2*log2(size) rounds; few of them:
//	                                                    gathered, and summed on each rank
//	Gather   every rank gets every rank's header        Bruck: log2(size) steps, rounded up
//	Relay    ranks in need get an array from the others  from rank to rank, each passing on while
//	                                                     it receives
//	Buckets  which stretch of the gradient is next      from its end, where the backward pass
//	                                                    begins
//
// All ranks call the same functions in the same order, with the same size and
// lengths. They talk to the ranks at a distance of a power of two, in the ring, and to no
// others: see [Peers].
//
// Laws:
//
//  1. What Reduce gives is the same on every rank, bit by bit, and depends on what the ranks gave,
//     their order and number, and nothing else: on no timing, no call before.
//  2. A call that returns nil has read all that was sent to it, and what it was given is the
//     caller's again. After an error the content of the slices is undefined, and the link cannot be
//     used any more.
//  3. With a link that takes [Ahead] sends without waiting, there is no circle of ranks that wait
//     for one another.
//  4. Lengths from a peer are checked before use.
//
// Numbers travel as they lie in memory: the link sees to it that all ranks have one order of bytes.
package ring
