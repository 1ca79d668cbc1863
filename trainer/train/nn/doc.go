// Package nn is the engine: it computes a model's loss and the gradients of its parameters.
//
// A model is ordinary Go. It declares its parameters once, with a [Builder];
// then for every batch it computes its output on a [Tape] by calling layers, with any control flow:
//
//	b := nn.NewBuilder(seed)
//	hidden := b.Dense(784, nn.Dense{Units: 256, ReLU: true})
//	output := b.Dense(256, nn.Dense{Units: 10})
//	params, err := b.Build()
//	tape := nn.NewTape(params, threads, seed)
//	err = tape.Pass(true, []nn.Array{images}, func(t *nn.Tape) {
//		logits := output.Forward(t, hidden.Forward(t, t.Input(0)))
//		t.Backward(t.SoftmaxCrossEntropy(logits, labels))
//	})
//	// params.Grads has the gradient of params.Values.
//
// Calling a layer only records it. The tape runs what is recorded when a value is asked for, when
// Backward is called and when the pass ends, and cuts it into stages: runs of operations that each
// need of an example only what the one before has computed of it. A thread takes an eighth of the
// batch through a whole stage, so that most values are read from the cache in which they were
// written; the last stage forward and the first one backward are one. BatchNorm ends stages: it
// needs a sum over the batch.
//
//	forward   conv conv moments │ normalize pool dropout dense cross-entropy
//	backward  conv conv moments │ normalize pool dropout dense cross-entropy  ←
//	fold      after each stage backward: the sums over the batch, which are the gradients of the
//	          parameters
//
// So the last layers' gradients are final before those of the first layers are begun:
// [Tape.OnGrads] reports them.
//
// Images are [batch height width channels]. Most convolutions of 3 by 3 with stride 1 are computed
// in tiles, with 1/4 or 4/9 of the multiplications, which rounds differently than the sum of all
// products.
//
// # Laws
//
//  1. Parameters and gradients are views into one flat array each, whose layout
//     is known before the first batch: nothing is copied to be sent.
//  2. Results are equal in every bit for any number of threads: the batch is always cut into the
//     same number of parts, and sums over parts are folded in order.
//  3. A pass depends on the parameters, the batch and the noise's seed and count alone, not on
//     earlier passes.
//  4. Passes that do the same as earlier ones allocate nothing.
//  5. A misfit (a shape, a label, an empty batch) is an error of the pass that names the layer or
//     the example, and the tape can be used again.
//  6. A gradient that nothing needs, such as that of the first layer's input, is not computed.
package nn
