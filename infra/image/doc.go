// Package image builds the image of a job from Go source, by `elasticdl zoo build`, and puts it
// where the nodes of the stack's cluster can get it: into its registry by `elasticdl zoo push`, or
// into minikube.
//
// Laws:
//
//  1. The image is built again if, and only if, something that goes into it has changed: see
//     [Hash]. Neither how it is built, such as the directory or the command, nor anything else
//     counts: go.mod, the stack's configuration, the version of this package.
//  2. The name that the job gets is determined by the image's content: it ends with a digest and
//     has no tag, so that the same content has the same name. In minikube, which has no registry,
//     it ends with the hash of the source.
//  3. With image.pin nothing is built again: the job keeps the image that the stack has.
//  4. No password is in a command's arguments, its environment, or the stack's state: it is passed
//     through a pipe.
//
// Deleting the command deletes no image: images are deleted with their registry, and with minikube.
package image
