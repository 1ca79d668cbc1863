package nn

import "github.com/elasticdl/elasticdl/trainer/train/nn/kernel"

// A convolution of 3 by 3 with stride 1 is computed in tiles of 2 by 2 or 4 by 4 output pixels,
// which takes 4/9 or 1/4 of the multiplications: see [kernel.Transform]. For some rows of tiles at
// a time, all points of the image are computed, then the 16 or 36 products, then the pixels:
//
//	forward         points of x   · points of the kernel          → y
//	of the input    points of dy  · those of the turned kernel    → dx
//	of the kernel   points of xᵀ  · points of dy as a gradient    → points of the gradient
//
// The points of the gradient of the kernel are summed over the examples of a part.

// tiling is a size of tiles.
type tiling struct {
	// of a tile: output pixels, and points, in both directions
	pixels, side                              int
	image, kernel, result, grad, kernelResult kernel.Transform
}

var (
	smallTiles = tiling{2, 4, kernel.ImageToTile, kernel.KernelToTile, kernel.TileToImage,
		kernel.GradToTile, kernel.TileToKernel}
	largeTiles = tiling{4, 6, kernel.ImageToLargeTile, kernel.KernelToLargeTile, kernel.LargeTileToImage,
		kernel.GradToLargeTile, kernel.LargeTileToKernel}
)

// tilingOf returns the tiles that an image is computed in.
func tilingOf(height, width int) tiling {
	if height%largeTiles.pixels == 0 && width%largeTiles.pixels == 0 {
		return largeTiles
	}
	return smallTiles
}

// points returns the number of points of a tile, and of a kernel.
func (t *tiling) points() int { return t.side * t.side }

// points has the points of a kernel, each [in out].
type points struct {
	kernel []float32
	// for the gradient of the input: the kernel turned by half a turn, and its points
	turned, turnedPoints []float32
	// the gradient of an image with its padding, and the points of the gradient of the kernel, for
	// each thread
	padding, sums []float32
	// for ReLU and bias: a scale of one, and no bias
	one, zero []float32
}

// fitsTiles reports whether the convolution is computed in tiles. With few channels the transforms
// take more time than the products save.
func (o *conv) fitsTiles() bool {
	const enough = 256
	return o.kh == 3 && o.kw == 3 && o.sh == 1 && o.sw == 1 && o.oh%2 == 0 && o.ow%2 == 0 &&
		o.c*o.filters >= enough
}

// planes returns squares of size by size planes of n elements.
func planes(data []float32, size, n int) kernel.Squares {
	return kernel.Squares{Data: data, Row: size * n, Column: n}
}

// tiles returns the points of lines of tiles next to each other.
func (t *tiling) tiles(data []float32, width, channels int) kernel.Squares {
	return kernel.Squares{Data: data, Row: t.side * channels, Column: channels, Tile: t.tile(channels),
		Line: width * t.tile(channels)}
}

// tile returns the number of elements from a tile to the next one: neighbours lie in different sets
// of the cache.
func (t *tiling) tile(channels int) int { return t.points()*channels + 16 }

// squares returns squares of adjacent pixels: those of tiles next to each other in an image.
func (t *tiling) squares(data []float32, width, channels int) kernel.Squares {
	return kernel.Squares{Data: data, Row: width * channels, Column: channels, Tile: t.pixels * channels,
		Line: t.pixels * width * channels}
}

// pointsOfKernel computes the points of the kernel.
func (o *conv) pointsOfKernel() {
	p := &o.points
	p.kernel = o.transformKernel(p.kernel, tilingOf(o.oh, o.ow), o.kernel.Value)
	if len(p.one) != o.filters {
		p.one, p.zero = make([]float32, o.filters), make([]float32, o.filters)
		Ones(nil, nil, 0, p.one)
	}
}

// transformKernel resizes dst to the points of a kernel of any order of channels and filters.
func (o *conv) transformKernel(dst []float32, t tiling, value []float32) []float32 {
	n := o.c * o.filters
	dst = resize(dst, t.points()*n)
	kernel.Winograd(t.kernel, planes(dst, t.side, n), planes(value, 3, n), 1, 1, n)
	return dst
}

// turnPoints computes the points of the kernel turned by half a turn, with channels and filters
// exchanged.
func (o *conv) turnPoints() {
	n, p := o.c*o.filters, &o.points
	p.turned = resize(p.turned, o.kernel.Len())
	for i := range o.kh * o.kw {
		to := p.turned[(o.kh*o.kw-1-i)*n:]
		kernel.Transpose(to, o.c, o.kernel.Value[i*n:], o.filters, o.c, o.filters)
	}
	p.turnedPoints = o.transformKernel(p.turnedPoints, tilingOf(o.h, o.w), p.turned)
	height, width := o.h+2, o.w+2
	p.padding = resize(p.padding, o.tape.team.size()*height*width*o.filters)
	clear(p.padding)
}

// rows is a walk over the rows of tiles of a span's images, some rows at a time.
type rows struct {
	tiling
	s examples
	// rows of tiles of an image, and tiles of a row
	height, width int
	// rows that are done together
	most int
	next int
}

// atOnce returns the number of rows of tiles that are done together: as many as leave their points
// in the cache, but enough to use the points of the kernel often.
func (t *tiling) atOnce(width, channels int) int {
	const cache, enough = 1 << 16, 32 // elements, tiles
	return max(1, max(enough, cache/(t.points()*channels))/(width/t.pixels))
}

// rowsOf returns a walk over images of height by width pixels, with channels those of input and
// output.
func (t tiling) rowsOf(s examples, height, width, channels int) rows {
	return rows{tiling: t, s: s, height: height / t.pixels, width: width / t.pixels,
		most: t.atOnce(width, channels)}
}

// more returns the next rows, by their number in the span.
func (w *rows) more() (from, to int) {
	from = w.next
	w.next = min(from+w.most, (w.s.hi-w.s.lo)*w.height)
	return from, w.next
}

// place returns the image of a row of tiles, the first of its pixels' rows there, and the number of
// the image's rows of tiles from there to row to.
func (w *rows) place(row, to int) (i, y, n int) {
	return w.s.lo + row/w.height, row % w.height * w.pixels, min(to-row, w.height-row%w.height)
}

// memory returns the thread's memory for points of two kinds of channels, and some elements more.
func (o *conv) memory(w *rows, c, f, more int) (a, b, rest []float32) {
	a0, b0 := w.most*w.width*w.tile(c), w.most*w.width*w.tile(f)
	m := &o.tape.tiles[w.s.worker]
	*m = resize(*m, a0+b0+more)
	return (*m)[:a0], (*m)[a0:][:b0], (*m)[a0+b0:][:more]
}

// convolve computes dst, height by width pixels of f channels for every image of a span, or adds to
// it, from images of c channels with a border of one pixel more, by a kernel of points.
func (o *conv) convolve(s examples, dst []float32, add bool, height, width, c, f int, points []float32,
	image func(i int) []float32) {
	w := tilingOf(height, width).rowsOf(s, height, width, c+f)
	in, out, sum := o.memory(&w, c, f, w.most*w.pixels*width*f)
	g := kernel.GemmArgs{
		Blocks: w.points(), N: f, K: c, A: in, ABlock: c, ARow: w.tile(c), AStep: 1,
		B: points, BBlock: c * f, BRow: f, C: out, CBlock: f, CRow: w.tile(f),
	}
	var x []float32
	last := -1
	for from, to := w.more(); from < to; from, to = w.more() {
		for r, n := from, 0; r < to; r += n {
			i, y, lines := w.place(r, to)
			n = lines
			if i != last {
				x, last = image(i), i
			}
			kernel.Winograd(w.tiling.image, w.tiles(in[(r-from)*w.width*w.tile(c):], w.width, c),
				w.squares(x[y*(width+2)*c:], width+2, c), n, w.width, c)
		}
		g.M = (to - from) * w.width
		kernel.Gemm(&g)
		for r, n := from, 0; r < to; r += n {
			i, y, lines := w.place(r, to)
			n = lines
			result := dst[(i*height+y)*width*f:][:n*w.pixels*width*f]
			to := result
			if add {
				to = sum[:len(result)]
			}
			kernel.Winograd(w.result, w.squares(to, width, f),
				w.tiles(out[(r-from)*w.width*w.tile(f):], w.width, f), n, w.width, f)
			if add {
				kernel.Add(result, to)
			}
		}
	}
}

// groups calls f with the images of a span that are computed together.
func (o *conv) groups(s examples, f func(s examples)) {
	for end, n := s.hi, o.together(); s.lo < end; s.lo = s.hi {
		s.hi = min(s.lo+n, end)
		f(s)
	}
}

func (o *conv) forwardTiles(s examples) {
	o.groups(s, func(s examples) {
		o.pad(s)
		o.convolve(s, o.out.data, false, o.oh, o.ow, o.c, o.filters, o.points.kernel,
			func(i int) []float32 { return o.padded(s, i) })
		bias := o.points.zero
		if o.bias != nil {
			bias = o.bias.Value
		}
		if o.bias != nil || o.out.rectified {
			y := s.of(o.out.data, o.out.size)
			kernel.ScaleShift(y, y, o.points.one, bias, o.out.rectified)
		}
	})
}

func (o *conv) backwardTiles(s examples) {
	dw, db := o.sumsOf(s.part)
	if o.bias != nil && s.lo == o.tape.first(s.part) {
		clear(db)
	}
	o.groups(s, func(s examples) {
		o.mask(s)
		if o.bias != nil {
			kernel.AddRows(db, s.of(o.out.grad, o.out.size))
		}
		o.pad(s)
		o.kernelGrad(s, dw)
		dx, size := o.in[0].grad, o.in[0].from.size
		if dx == nil {
			return
		}
		o.convolve(s, dx, o.in[0].onto, o.h, o.w, o.filters, o.c, o.points.turnedPoints,
			func(i int) []float32 { return o.gradImage(s, i) })
		for i := s.lo; i < s.hi && o.masking; i++ {
			o.maskInput(dx[i*size:(i+1)*size], o.padded(s, i))
		}
	})
}

// plane returns the number of elements from a point of the gradient of the kernel to the next one:
// neighbours lie in different sets of the cache.
func (o *conv) plane() int { return o.c*o.filters + 16 }

// kernelGrad adds to the points of the gradient of the kernel, of a part of which these are the
// first or further examples. After the last it sets dw to the part's gradient.
func (o *conv) kernelGrad(s examples, dw []float32) {
	w := tilingOf(o.oh, o.ow).rowsOf(s, o.oh, o.ow, o.c+o.filters)
	n, plane := o.c*o.filters, o.plane()
	sums := o.points.sums[s.worker*w.points()*plane:][:w.points()*plane]
	in, out, _ := o.memory(&w, o.c, o.filters, 0)
	g := kernel.GemmArgs{
		Blocks: w.points(), M: o.c, N: o.filters, A: in, ABlock: o.c, ARow: 1, AStep: w.tile(o.c),
		B: out, BBlock: o.filters, BRow: w.tile(o.filters),
		C: sums, CBlock: plane, CRow: o.filters, Init: kernel.Accumulate,
	}
	if s.lo == o.tape.first(s.part) {
		g.Init = kernel.Zero
	}
	for from, to := w.more(); from < to; from, to = w.more() {
		for r, n := from, 0; r < to; r += n {
			i, y, lines := w.place(r, to)
			n = lines
			kernel.Winograd(w.tiling.image, w.tiles(in[(r-from)*w.width*w.tile(o.c):], w.width, o.c),
				w.squares(o.padded(s, i)[y*o.pw*o.c:], o.pw, o.c), n, w.width, o.c)
			kernel.Winograd(w.grad,
				w.tiles(out[(r-from)*w.width*w.tile(o.filters):], w.width, o.filters),
				w.squares(o.out.grad[i*o.out.size+y*o.ow*o.filters:], o.ow, o.filters), n, w.width, o.filters)
		}
		g.K = (to - from) * w.width
		kernel.Gemm(&g)
		g.Init = kernel.Accumulate
	}
	if s.hi == o.tape.first(s.part+1) {
		kernel.Winograd(w.kernelResult, planes(dw, 3, n), planes(sums, w.side, plane), 1, 1, n)
	}
}

// gradImage returns the gradient of the i-th image of the output, padded so that the kernel covers
// every pixel of the input three times in both directions.
func (o *conv) gradImage(s examples, i int) []float32 {
	width, row := o.w+2, o.ow*o.filters
	padded := o.points.padding[s.worker*(o.h+2)*width*o.filters:]
	dy := o.out.grad[i*o.out.size:]
	for y := range o.oh {
		copy(padded[((y+2-o.top)*width+2-o.left)*o.filters:][:row], dy[y*row:])
	}
	return padded
}
