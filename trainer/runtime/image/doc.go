// Package image builds container images for jobs without Docker, and pushes them.
//
//	a Go module ──Compile──> static binaries ──Assemble──> Image ──Save──> Store ──Push──> registry
//	                         (one a platform)   (+ a base)   └──WriteArchive──> a file for docker
//
// An image is a base and one layer, which has the binary at /elasticdl, the entry point, and its
// bill of materials at /elasticdl.cdx.json. Without a base a layer with /tmp and certificate
// authorities takes its place, which is enough for a static Go binary and leaves nothing to update.
// A directory of Python code is another layer, at WorkDir, on a base that has Python: after a
// change of the code only that layer is pushed.
//
// elasticdl holds a second program, the agent, for pods whose image is a user's: [AddAgent] puts it
// in, [Install] writes it to the pod's disk.
//
// Laws:
//
//  1. The same binaries, code, base and certificates make the same digest: it depends on no clock,
//     user or path of this machine.
//  2. A Store has complete images only. A build that fails leaves the previous image.
//  3. An image of several platforms is an index; of one, a plain image.
//  4. A binary that cannot run in the image (of another system, linked with a C library, not
//     ElasticDL's) is refused when the image is made, not when the pod starts.
package image

// Progress is the progress of one step of building or pushing.
type Progress struct {
	// "compile for linux/amd64", "push"
	Step string
	// Done and Total are in bytes; false: they are counts
	Bytes bool
	// Total is 0 while it is not known
	Done, Total int64
}
