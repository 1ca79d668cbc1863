package kernel

import "math"

// Axpy adds a*x to y. y has at least len(x) elements, as in every function here the
// first-named source sets the length.
func Axpy(a float32, x, y []float32) {
	check("Axpy", "y", len(y), len(x))
	for i, j := range chunks(len(x)) {
		active.axpy(a, x[i:j], y[i:j])
	}
}

// Add adds x to dst.
func Add(dst, x []float32) {
	check("Add", "dst", len(dst), len(x))
	for i, j := range chunks(len(x)) {
		active.add(dst[i:j], x[i:j])
	}
}

// Sum sets dst = x + z, then its negative elements to 0 if relu. dst may be x or z.
func Sum(dst, x, z []float32, relu bool) {
	check("Sum", "z", len(z), len(x))
	check("Sum", "dst", len(dst), len(x))
	active.sum(dst[:len(x)], x, z[:len(x)], floor(relu))
}

// floor returns the lower bound of results: 0 if relu, otherwise -Inf.
func floor(relu bool) float32 {
	if relu {
		return 0
	}
	return float32(math.Inf(-1))
}

// Scale multiplies x by a.
func Scale(a float32, x []float32) {
	for i, j := range chunks(len(x)) {
		active.scale(a, x[i:j])
	}
}

// ReluGrad sets dy to 0 where y, the output of a ReLU, is not above 0.
func ReluGrad(dy, y []float32) {
	check("ReluGrad", "y", len(y), len(dy))
	active.reluGrad(dy, y[:len(dy)])
}

// AddRows adds every row of x to dst, in order: the gradient of a bias.
func AddRows(dst, x []float32) {
	checkRows("AddRows", len(x), len(dst))
	active.addRows(dst, x)
}

// ColumnStats adds to s1 and s2 the sums of x and of x*z over the rows, in float64 and in order.
// BatchNorm: (x, x) forward, (dy, x) backward.
func ColumnStats(s1, s2 []float64, x, z []float32) {
	checkRows("ColumnStats", len(x), len(s1))
	check("ColumnStats", "s2", len(s2), len(s1))
	check("ColumnStats", "z", len(z), len(x))
	active.columnStats(s1, s2[:len(s1)], x, z[:len(x)])
}

// ScaleShift sets dst = x*a[c] + b[c] in every row, then its negative elements to 0 if relu. dst
// may be x.
func ScaleShift(dst, x, a, b []float32, relu bool) {
	checkRows("ScaleShift", len(x), len(a))
	check("ScaleShift", "b", len(b), len(a))
	check("ScaleShift", "dst", len(dst), len(x))
	active.scaleShift(dst[:len(x)], x, a, b[:len(a)], floor(relu))
}

// BatchNormGrad sets dx = dy*k1[c] + x*k2[c] + k3[c] in every row; if relu, x is the output of a
// ReLU and dx becomes 0 where x is not above 0. dx may be dy or x.
func BatchNormGrad(dx, dy, x, k1, k2, k3 []float32, relu bool) {
	checkRows("BatchNormGrad", len(dy), len(k1))
	check("BatchNormGrad", "k2", len(k2), len(k1))
	check("BatchNormGrad", "k3", len(k3), len(k1))
	check("BatchNormGrad", "x", len(x), len(dy))
	check("BatchNormGrad", "dx", len(dx), len(dy))
	keep := ^uint32(0)
	if relu {
		keep = 0
	}
	active.batchNormGrad(dx[:len(dy)], dy, x[:len(dy)], k1, k2[:len(k1)], k3[:len(k1)], keep)
}

// MaxPool2x2 pools one pair of image rows, top and bottom, of pixels of channels elements, with
// stride 2: len(dst) is a number of pixels, each of two pixels of either row. index, of len(dst)
// elements, gets which of the four was taken: 0, 1 from top, 2, 3 from bottom; the
// first one of equals. A NaN is larger than all numbers; the last NaN is taken.
func MaxPool2x2(dst []float32, index []uint8, top, bottom []float32, channels int) {
	checkRows("MaxPool2x2", len(dst), channels)
	check("MaxPool2x2", "index", len(index), len(dst))
	check("MaxPool2x2", "top", len(top), 2*len(dst))
	check("MaxPool2x2", "bottom", len(bottom), 2*len(dst))
	active.maxPool(dst, index[:len(dst)], top[:2*len(dst)], bottom[:2*len(dst)], channels)
}

// MaxPool2x2Grad sets dtop and dbottom, 2*len(dy) elements each: dy where index says that
// MaxPool2x2 took the element, otherwise 0.
func MaxPool2x2Grad(dtop, dbottom, dy []float32, index []uint8, channels int) {
	checkRows("MaxPool2x2Grad", len(dy), channels)
	check("MaxPool2x2Grad", "index", len(index), len(dy))
	check("MaxPool2x2Grad", "dtop", len(dtop), 2*len(dy))
	check("MaxPool2x2Grad", "dbottom", len(dbottom), 2*len(dy))
	active.maxPoolGrad(dtop[:2*len(dy)], dbottom[:2*len(dy)], dy, index[:len(dy)], channels)
}

// Dropout sets dst = x*scale where a hash of (seed, offset+i) is at least threshold, otherwise 0:
// the probability of a zero is threshold/2³². The gradient is the same call with dy for x. Element
// i depends on offset+i only, so any stretch can be done alone. dst may be x.
func Dropout(dst, x []float32, seed uint64, offset, threshold uint32, scale float32) {
	check("Dropout", "dst", len(dst), len(x))
	// One round of splitmix64, so that similar seeds give unrelated masks.
	seed += 0x9e3779b97f4a7c15
	seed = (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
	seed = (seed ^ seed>>27) * 0x94d049bb133111eb
	seed ^= seed >> 31
	active.dropout(dst[:len(x)], x, offset+uint32(seed), uint32(seed>>32), threshold, scale)
}

// Transpose sets dst[c*dstRow+r] = src[r*srcRow+c] for rows × cols elements of src.
func Transpose(dst []float32, dstRow int, src []float32, srcRow, rows, cols int) {
	if rows <= 0 || cols <= 0 {
		return
	}
	check("Transpose", "dst", len(dst), (cols-1)*dstRow+rows)
	check("Transpose", "src", len(src), (rows-1)*srcRow+cols)
	active.transpose(dst, dstRow, src, srcRow, rows, cols)
}

// BytesToFloat sets dst = src*scale + shift.
func BytesToFloat(dst []float32, src []byte, scale, shift float32) {
	check("BytesToFloat", "dst", len(dst), len(src))
	active.bytesToFloat(dst[:len(src)], src, scale, shift)
}

// FirstNonFinite returns the index of the first NaN or infinity in x, -1 if there is none.
func FirstNonFinite(x []float32) int {
	for i, j := range chunks(len(x)) {
		if n := active.firstNonFinite(x[i:j]); n >= 0 {
			return i + n
		}
	}
	return -1
}

// FMAPeak runs iterations of a loop of independent fused multiply-adds that touches no memory, of
// the set's vector width, and returns the number of floating-point operations: over the time taken,
// the peak of one core.
func FMAPeak(iterations int) (flops int) { return active.fmaPeak(iterations) }
