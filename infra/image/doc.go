// Package image builds the image of a job from Go source, by `elasticdl zoo build`, and brings it to where the nodes of the
// stack's cluster get it: into its registry by `elasticdl zoo push`, or into minikube.
//
// Laws:
//
//  1. It is built anew if, and only if, something changed that goes into it: see [Hash]. Neither how it is built is looked at, as
//     the directory or the command, nor what else is there: go.mod, the stack's own configuration, the version of this package.
//  2. The name that the job gets is that of its content: it ends with a digest and has no tag, so that the same digest is the same
//     name. In minikube, which has no registry, it ends with the hash of the source.
//  3. With image.pin nothing is built again: the job keeps the image that the stack has.
//  4. No password is in a command's arguments, its environment, or the stack's state: it goes through a pipe.
//
// To delete the command deletes nothing: images go with their registry, and with minikube.
package image
