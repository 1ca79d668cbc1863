package nn

// Array is a dense row-major array. The first dimension of the inputs and outputs of a model is the
// batch.
type Array struct {
	Shape []int
	Data  []float32
}

// Module is a model, or a part of one: it computes its output from x by
// calling layers and methods of the tape, in any order and with any control flow.
type Module interface {
	Forward(t *Tape, x *Tensor) *Tensor
}

// Sequential is a chain of modules.
type Sequential []Module

// Forward passes x through every module.
func (s Sequential) Forward(t *Tape, x *Tensor) *Tensor {
	for _, m := range s {
		x = m.Forward(t, x)
	}
	return x
}
