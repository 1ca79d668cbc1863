package nn

// Padding determines how a window treats the border of an image.
type Padding int

const (
	Valid Padding = iota // windows stay inside the image
	// zeros around, so that the output is ⌈input/stride⌉, as TensorFlow pads: the odd one below and
	// right
	Same
	// half a window of zeros on every side, as PyTorch's padding=window//2; with an odd window and
	// stride 1 it is Same
	Half
)

// window describes how a kernel or a pool moves over an NHWC image.
type window struct {
	h, w, c   int // input
	kh, kw    int
	sh, sw    int // stride
	top, left int // padding before
	oh, ow    int // output
}

// window computes how kernel moves over x. It fails with the name of the layer if they do not fit.
// The zero stride stands for the default of the caller.
func (t *Tape) window(layer string, x *Tensor, kernel, stride [2]int, padding Padding) window {
	if len(x.dims) != 4 {
		t.fail("%s: input %v: want [batch height width channels]", layer, x.dims)
	}
	g := window{h: x.dims[1], w: x.dims[2], c: x.dims[3], kh: kernel[0], kw: kernel[1], sh: stride[0], sw: stride[1]}
	switch {
	case min(g.kh, g.kw, g.sh, g.sw) < 1:
		t.fail("%s: window %v with stride %v: want at least 1", layer, kernel, stride)
	case padding == Valid && (g.h < g.kh || g.w < g.kw):
		t.fail("%s: input %v is smaller than the window %v", layer, x.dims, kernel)
	}
	g.oh, g.top = along(g.h, g.kh, g.sh, padding)
	g.ow, g.left = along(g.w, g.kw, g.sw, padding)
	return g
}

// along returns the size of the output and the padding before, in one dimension.
func along(size, kernel, stride int, padding Padding) (out, before int) {
	switch padding {
	case Valid:
		return (size-kernel)/stride + 1, 0
	case Half:
		return (size+kernel/2*2-kernel)/stride + 1, kernel / 2
	}
	out = (size + stride - 1) / stride
	return out, max(0, (out-1)*stride+kernel-size) / 2
}

// covers returns the range [lo, hi) of outputs whose window, in one dimension, has its element k on
// the input.
func covers(k, size, stride, before, out int) (lo, hi int) {
	if k < before {
		lo = (before - k + stride - 1) / stride
	}
	return lo, max(lo, min(out, floorDiv(size-1+before-k, stride)+1))
}

// padded returns the size of the input with the padding that windows reach.
func (g *window) padded() (h, w int) {
	return max(g.h+g.top, (g.oh-1)*g.sh+g.kh), max(g.w+g.left, (g.ow-1)*g.sw+g.kw)
}

func floorDiv(a, b int) int {
	if a < 0 {
		return -((b - 1 - a) / b)
	}
	return a / b
}
