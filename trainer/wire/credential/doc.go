// Package credential authenticates the processes of a job: by certificates of the job's own
// authority, and TLS 1.3 with them at both ends of every connection.
//
//	Authority  signs the certificates of one job. Its key never leaves the master, or on one
//	           machine the launcher
//	Root       what everybody may know of it: its certificate, by which others are checked
//	Card       the certificate and the key of one process
//	Credential what a process proves itself with now: a Root, and a Card that may be renewed
//
// A certificate names an [identity.Name]: job, role, index, incarnation. Which address a process is
// found at does not matter: who dials says whom it expects, and who accepts learns who came. A
// certificate that was given is valid until it expires; who was replaced meanwhile is refused by
// its incarnation, which is for package identity to say.
//
// Protocols on one port are distinguished by ALPN. Those of data have two names, one for
// connections that stay inside TLS and one for those that leave it when both ends are proved: see
// [Protocol.Plain].
//
// Laws:
//
//  1. A connection is used only after both ends have shown certificates of this job's authority; a
//     [Stranger] may be let in to ask for one.
//  2. The dialling end speaks with the peer that it expects, or not at all.
//  3. No key is ever in an error, in a log, or in what [Root.String] says.
package credential
