// Package policy has the guard rails of a stack: rules on the resources that its program asks for, whoever wrote the
// program. [Check] judges recorded resources, in tests. [Enforce] judges them in a running program: a preview that asks for
// anything against a rule fails and says all that is wrong, and an update does not make it.
//
// What is not known yet is judged when it is known: in the preview, an address or an ARN may not be there, and that is no
// violation; the update looks again.
//
// A team lets a rule go by its name in the stack's file, for everything or for one resource:
//
//	elasticdl:policy:
//	  allow: [unpinned-image, "privileged-pod:debug"]
package policy
