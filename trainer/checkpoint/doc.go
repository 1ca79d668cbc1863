// Package checkpoint keeps a model at rest: its values, the optimizer's slots, and the ledger of what is in them.
//
// A directory holds commits. Each has a number, which no other commit of the directory ever has:
//
//	ckpt/
//	  commit-00000041/
//	    shard-0-of-2.safetensors   values and slots of elements [0, n) of the model's flat array
//	    shard-1-of-2.safetensors
//	    commit.json                what they are: written last, it is the commit
//	  commit-00000042/
//	    shard-0-of-2.safetensors   no commit.json: nothing, yet or for ever
//
// Whoever holds a stretch of the model writes its shard ([WriteShard]); the master writes the record ([Commit]) when all of
// them are there. A shard is a safetensors file of flat tensors: "values", and "slot/0" and so on of the trainable elements. As
// the record says which elements are where, a commit is read by any number of holders ([Dir.Restore]), each its own stretch.
//
// Laws:
//
//  1. A commit is there whole or not at all, whenever the writers are killed: its record appears last, after everything that it
//     names is there to stay. A file appears at once: on a disk by a rename, on an object store when its upload is complete.
//  2. What is read is what was written, bit for bit, or an error that names the file: each shard's checksum and length are in the
//     record, and the record's own checksum is in it.
//  3. Retention removes no commit that is one of the newest that were asked for, and none that is newer than the last
//     complete one.
package checkpoint
