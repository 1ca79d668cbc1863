// Package image builds the image of a job from Go source, by `elasticdl zoo build`, and brings it to where the nodes of the
// stack's cluster get it: into its registry by `elasticdl zoo push`, or into minikube.
//
// Laws:
//
//  1. It is built anew if, and only if, something changed that goes into it: see [Hash]. What else there is beside the
//     source, as the stack's own configuration, is not looked at.
//  2. The name that the job gets holds for one image: it ends with a digest, or, in minikube, with the hash of the source.
//  3. No password is in a command's arguments, its environment, or the stack's state: it goes through a pipe.
//
// To delete the command deletes nothing: images go with their registry, and with minikube.
package image
