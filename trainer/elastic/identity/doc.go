// Package identity identifies the sender of each message of a job, and authorizes its calls.
//
// Every message carries a [Header], in both directions: as gRPC metadata, in the first frame of a
// data connection, in the hello of a mesh. One function, [Admit], checks it at whichever end reads
// it:
//
//	protocol     the versions of both programs must be equal
//	job          the UID: a job of the same name that was started again is another one
//	role, index  the pod that sends the message
//	incarnation  which start of that pod: a server's successor has its index and a higher
//	             incarnation
//	master       the newest incarnation of the master that the speaker has heard
//	generation   of the model: raised whenever values are lost and the training returns
//
// A header is a claim. The certificate of its connection proves it: see [Name] and package
// credential.
//
// Laws:
//
//  1. A header that does not name this job and this protocol, or whose job, role, index or
//     incarnation are not those of the certificate, is refused before anything else is read, and
//     the error says what was found and what was expected.
//  2. A call is made by the roles that [Calls] lists for it, and by nobody else. A call that is not
//     listed does not exist.
//  3. An older incarnation of a server or of the master is notified that it was replaced; a newer
//     one than is known is never taken for the known one. The newest master that either end of a
//     call has heard is the one that counts.
//  4. A caller with another model generation than the receiver's, in a call that depends on it,
//     changes nothing; the error says both.
//  5. [Parse] of [Header.Append] is the header, and Append of Parse is the bytes.
package identity
