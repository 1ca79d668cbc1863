// Package checkpoint keeps a model at rest: its values, the optimizer's slots, and the ledger of
// what is in them.
//
// A directory holds commits of one job, its owner. Each has a number, which no other commit of the
// directory ever has:
//
//	ckpt/
//	  owner-00000002               who owns the directory: claim 2
//	  commit-00000041-2-5f3a9c1b/  commit 41 under claim 2, whose owner's UID has that hash
//	    shard-0-of-2.safetensors   values and slots of elements [0, n) of the model's flat array
//	    shard-1-of-2.safetensors
//	    commit.json                what they are: written last, it is the commit
//	  commit-00000042-2-5f3a9c1b/
//	    shard-0-of-2.safetensors   no commit.json: nothing, yet or for ever
//
// Each holder of a stretch of the model writes its shard ([WriteShard]); the master writes the
// record ([Commit]) when all of them are there. A shard is a safetensors file of flat tensors:
// "values", and "slot/0" and so on of the trainable elements. The record names the elements of each
// shard, so any number of holders reads a commit ([Dir.Restore]), each its own stretch.
//
// Laws:
//
//  1. A commit is there whole or not at all, whenever the writers are killed: its record appears
//     last, after everything that it names is there to stay. A file appears at once: on a disk by a
//     rename, on an object store when its upload is complete.
//  2. A read returns the written bits, or an error that names the file: each shard's checksum and
//     length are in the record, and the record's own checksum is in it.
//  3. Retention removes no commit that is one of the newest that were asked for, and none that is
//     newer than the last complete one.
//  4. A directory has one owner ([Dir.Claim]). [MayUse] decides which job may follow an owner.
//  5. Files of two owners stay apart even if both hold a claim at the same time: the claim is in
//     the name of a commit, an owner sees and removes only its own commits and those of earlier
//     claims ([Dir.Under]), and a commit is read by the checksum of its record ([Dir.ReadNamed]).
//     Another commit under its name is damage.
//  6. An entry that cannot be read, or is no commit, hides no commit.
package checkpoint
