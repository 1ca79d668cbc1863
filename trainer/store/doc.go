// Package store holds stored data, such as checkpoints and predictions, and handles the failures of
// storage.
//
//	checkpoint/  commits in a directory, exported models, ownership of a directory; its laws/ test
//	             an implementation of a directory
//	bucket/      opens a directory by its path or URL, in object stores too
//	safetensors/ the file format of trained parameters
//	prediction/  predictions: the parts that workers write, and the file merged from them
//	tensorboard/ scalars of a job, as event files of TensorBoard
//	outage/      temporary failures of storage, and retries
//
// Its packages import those of elastic and wire. master, train and run import them.
package store
