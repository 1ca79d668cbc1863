// Package store holds what is at rest: the model, what was predicted, and how storage fails.
//
//	checkpoint/  commits in a directory, exports, and who owns a directory; its laws/ test a kind
//	             of place
//	bucket/      opens a directory by its name, in object stores too
//	safetensors/ the file format of trained parameters
//	prediction/  what was predicted: parts, and the file that they make
//	outage/      failures of a storage that may go away, and waiting for that
//
// Its packages import those of elastic and wire. Packages that train, supervise or decide are above
// them.
package store
