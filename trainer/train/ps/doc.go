// Package ps is the parameter server: it keeps a contiguous [param.Range] of a
// model's flat parameters, applies the gradients that workers push, and gives
// the values to those who pull. [Server] is one server, [Client] a worker's end
// of all of them, [Run] the role: a server that serves one job under its master.
//
// # Two planes on one listener
//
// Control is gRPC (wire.ParameterServer): a worker declares its whole layout, which is checked by
// name and shape; the master asks for progress, and says how many workers contribute, which epochs
// are settled, and which model generation it is. Data is raw frames (frame.go) on connections
// whose two ends have said who they are ([identity.Header]): a fixed header, then the server's
// slice of the float32 values, little endian, exactly as they lie in memory. The first four bytes
// of a connection tell which it is. gRPC's own unary calls moved 0.85 to 1.0 GB/s where one TCP
// stream moves 3.5 GB/s, and wider windows did not help: a message is copied by the codec, then in
// and out of HTTP/2 frames. Here a value is copied by the kernel and, in a pull over TLS, once
// more. No slow reader holds a lock: without TLS the kernel copies a chunk under the lock of that
// chunk, as far as the socket has room (direct.go).
//
// # Model generations
//
// A server makes the initial values itself, from the model and the job's seed. Its state is of one
// model generation. Where a server is lost, the master raises the generation: each server drops all
// that it has, and begins again from the initial values, or with its elements of a checkpoint of
// any writer (generation.go). It serves nobody who works in another generation than its own, and
// says both.
//
// # Checkpoints
//
// On the master's order a server takes nothing new, says what it has, takes what it lacks of what
// the others have, copies its values and slots, and continues while it writes the copy (cut.go).
// [custody.Cut] is the other side. A server that is asked to leave ([Config].Leave) reports it to
// the master, and exits when a checkpoint has what it holds.
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
//  3. The version counts the updates of this generation, and never falls in it.
//  4. Each record of a training task is in the values once, from any worker and after any number of
//     pushes. A server's records of a task are a stretch of the task's order from its first record,
//     its marker. A gradient is taken that begins at the marker's end; one that the marker covers
//     had its effect; any other is answered with where the server is. A push that did not arrive
//     whole, or holds a NaN or an infinity, has no effect.
//  5. With --lr_staleness_modulation a gradient of age a > 1 weighs 1/a: its
//     learning rate if it is an update on its own, its part of the mean otherwise.
//  6. Elements past the layout's trainable ones are moving averages, moved by the
//     mean of what was observed ([param.Layout.Average]): no optimizer, no slots.
//  7. A pull that is not torn is the state between two updates. A torn one (an
//     update fell between its first byte and its last) is reported to be so; each of its
//     elements is of its version or newer.
//  8. Nothing of one generation is in another: no value, slot, marker, gathered gradient or
//     snapshot.
//  9. An order of the master says how things are to be, so a repeat changes nothing, and neither
//     does an older one that comes late.
//  10. No memory is taken for a peer before it has said who it is, and a sender that holds others
//     up has a deadline for all of its values.
//  11. A server's part of a checkpoint has exactly the records that the master said, its values,
//     slots and version after them. Other pushes wait meanwhile, timing.HoldLimit at most, and lose
//     nothing.
//  12. A synchronous pull waits only while the worker's own gradient is gathered
//     and not yet applied, so nobody waits for an update that will not come.
//
// # Memory
//
// In floats per parameter: 1 for the values, 1 for the push that is being received (one at a time;
// the others wait in their sockets), the optimizer's slots (SGD 0, Momentum and Adagrad 1, Adam 2);
// with wait > 1 one for the sum, and with evaluation one for the snapshot. So 2 with SGD, 4 with
// Adam. With checkpoints a copy of values and slots more, from the first one on: 3 and 7. Less than
// 2 cannot be: a push that does not arrive whole has no effect. Garbage is at most a hundredth of
// that, or 2 MB, and each pull over TLS that is being sent has a buffer of 128 KB.
package ps
