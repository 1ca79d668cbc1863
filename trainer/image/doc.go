// Package image makes container images of a job without Docker, and pushes them.
//
//	a Go module ──Compile──> static binaries ──Assemble──> Image ──Save──> Store ──Push──> a registry
//	                         (one a platform)   (+ a base)   └──WriteArchive──> a file, for docker load and the like
//
// An image is one layer with the binary at /elasticdl, its entry point, and what that is made of at /elasticdl.cdx.json, on a base. Without a base it is that
// and a layer with /tmp and certificate authorities: enough for a static Go binary, and nothing to update. A directory of Python code
// is a second layer, at WorkDir, on a base that has Python: a change of the code pushes that layer only.
//
// Laws:
//
//  1. The same binaries, code, base and certificates make the same digest: no clock, no user, no path of this machine is in it.
//  2. What is in a Store is a whole image. A build that fails leaves the one before.
//  3. An image of several platforms is an index; of one, a plain image.
//  4. A binary that cannot run in the image (of another system, linked with a C library, not ElasticDL's) is refused
//     when the image is made, not when the pod starts.
package image

// Progress tells how far one step is.
type Progress struct {
	Step        string // "compile for linux/amd64", "push"
	Bytes       bool   // Done and Total are bytes, not things
	Done, Total int64  // Total is 0 while it is not known
}
