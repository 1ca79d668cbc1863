// Package policy has the rules on the resources that a stack's program may request. [Check] judges
// recorded resources, in tests. [Enforce] judges them in a running program: a preview that requests
// anything against a rule fails and reports all violations, and an update refuses to create it.
//
// A value is judged when it is known: in a preview, an address or an ARN may be unknown, which is
// no violation; the update checks again.
//
// A team exempts a resource, or all resources, from a rule by its name in the stack's file:
//
//	elasticdl:policy:
//	  allow: [unpinned-image, "privileged-pod:debug"]
package policy
