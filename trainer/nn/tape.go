package nn

// Tape records a forward pass, to run it backward.
type Tape struct{}

// Tensor is a value on a tape.
type Tensor struct{}
