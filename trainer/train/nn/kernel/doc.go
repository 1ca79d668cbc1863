// Package kernel holds the inner loops of the engine and of the optimizers:
// single-threaded functions over float32 slices, in three sets: avx512,
// avx2 (with FMA) and generic, which is plain Go and serves every machine. The
// best set that the processor and its operating system support is chosen at
// start; ELASTICDL_KERNELS=avx512|avx2|generic overrides.
//
// # Laws
//
//  1. A function reads and writes nothing but the elements that its documentation names.
//  2. Results depend on the arguments only: not on alignment, on neighbours
//     or on earlier calls. The same set gives the same bits.
//  3. [Gemm] adds the products of one element of C in the order of k, as one
//     chain, whatever the shape: a result does not depend on how rows and
//     columns were split among calls. avx512 and avx2 fuse multiply and add, so
//     they agree in every bit; generic may round twice.
//  4. Every other function gives the same bits in all three sets.
//  5. Slices are checked once, at the entry: too short a slice is the caller's
//     mistake and panics with the numbers.
//
// Matrices are row-major; "rows" of x for a slice of columns c means
// len(x)/len(c) consecutive rows of len(c) elements. Destination and sources do not
// overlap unless they are the same slice and the function reports it.
package kernel
