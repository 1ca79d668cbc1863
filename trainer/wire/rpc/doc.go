// Package rpc connects the roles of a job by gRPC. Every call names its sender, both ends are
// authenticated by their certificates, and the number of connections of unauthenticated and silent
// peers is limited. The calls themselves are those of package wire.
//
//	Connect ──> calls ──────── metadata: identity.Header ───────> tap ──> handler
//	            (who calls,    mutual TLS: credential             (who may call what:
//	             who answers,                                      identity.Calls;
//	             deadline)                                         door: strangers are few)
//
// A process has one [Self], which it passes to each [Connect] and to [NewServer]. A handler asks
// [Caller] who calls.
//
// # Laws
//
//  1. A call reaches a handler only if its header names a pod of this job that may make it, and the
//     certificate of the connection proves that pod. identity.Open lists the exceptions.
//  2. An answer reaches the caller only if the pod that was meant gave it, in the incarnation that
//     was meant.
//  3. Every call ends: one without a deadline of its own has timing.Call, and a connection whose
//     other end vanished is closed within timing.Vanish.
//  4. Whatever strangers do, they hold at most maxStrangers connections of a server.
package rpc
