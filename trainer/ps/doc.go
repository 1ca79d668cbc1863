// Package ps is the parameter server: it keeps a contiguous [param.Range] of a
// model's flat parameters, applies the gradients that workers push, and gives
// the values to those who pull. [Server] is one server, [Client] a worker's end
// of all of them, [Run] the role: a server that serves one job under its master.
//
// # Two planes on one listener
//
// Control is gRPC (wire.ParameterServer): a worker declares its whole layout,
// which is checked once, by name and shape, and gets a session; the master asks
// for progress and says how many workers contribute. Data is raw frames
// (frame.go) on connections that present the session: a fixed header, then the
// server's slice of the float32 values, little endian, exactly as they lie in
// memory. The first four bytes of a connection tell which it is. gRPC's own
// unary calls moved 0.85 to 1.0 GB/s where one TCP stream moves 3.5 GB/s, and
// wider windows did not help: a message is copied by the codec, then in and out
// of HTTP/2 frames. Here a value is copied by the kernel and, in a pull, once
// more, so that a slow reader never holds a lock.
//
// # The rule
//
// rule.go is the pure part: what becomes of a gradient. Two numbers decide, how
// many gradients make an update (wait) and how old one may be (bound):
//
//	--use_async                            wait 1, no bound
//	--grads_to_wait=K                      wait K, bound 0; no bound if K is 1
//	--sync_version_tolerance=T             bound T
//
// Laws:
//
//  1. A gradient is accepted if and only if its age, the server's version less
//     its own, is within the bound. Without a bound none is refused for its age.
//  2. An update is the mean of exactly min(wait, contributors) gradients, or, at a
//     flush, of what there is. No update waits for more gradients than contributors.
//  3. The version counts updates, and never falls. A server that replaces one goes on
//     from that one's version, and with the values of a worker that had trained, if one is left.
//  4. A push of (worker, lease, done) has its effect once, however often it is
//     repeated. A push that did not arrive whole, or holds a NaN or an infinity, has none.
//  5. With --lr_staleness_modulation a gradient of age a > 1 weighs 1/a: its
//     learning rate if it is an update by itself, its part of the mean otherwise.
//  6. Elements past the layout's trainable ones are moving averages, moved by the
//     mean of what was observed ([param.Layout.Average]): no optimizer, no slots.
//  7. A pull that is not torn is the state between two updates. A torn one (an
//     update fell between its first byte and its last) is said to be so; each of its
//     elements is of its version or newer.
//  8. A synchronous pull waits only while the worker's own gradient is gathered
//     and not yet applied, so nobody waits for an update that will not come.
//
// # Memory
//
// In floats per parameter: 1 for the values, 1 for the push that is being
// received (one at a time; the others wait in their sockets), the optimizer's
// slots (SGD 0, Momentum and Adagrad 1, Adam 2); with wait > 1 one for the sum,
// and with evaluation one for the snapshot. So 2 with SGD, 4 with Adam.
package ps
