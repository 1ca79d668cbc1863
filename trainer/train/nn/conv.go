package nn

import "github.com/elasticdl/elasticdl/trainer/train/nn/kernel"

// Conv2D is a convolution over images [batch height width channels], to
// [batch height width Filters]. The kernel is [height width channels Filters], as in Keras.
type Conv2D struct {
	// "" is conv2d, conv2d_1 and so on
	Name    string
	Filters int
	// height, width
	Kernel [2]int
	// zero is 1, 1
	Stride  [2]int
	Padding Padding
	// without bias, as before a BatchNorm, which would remove it
	NoBias bool
	ReLU   bool

	in int
	// kernel, and bias if there is one
	vars []*Param
}

// Conv2D declares a convolution of images of in channels.
func (b *Builder) Conv2D(in int, c Conv2D) *Conv2D {
	c.Name = b.name(c.Name, "conv2d")
	c.in = in
	c.vars = []*Param{b.Variable(c.Name+"/kernel", GlorotUniform, c.Kernel[0], c.Kernel[1], in, c.Filters)}
	if !c.NoBias {
		c.vars = append(c.vars, b.Variable(c.Name+"/bias", Zeros, c.Filters))
	}
	return &c
}

// Forward convolves x.
func (c *Conv2D) Forward(t *Tape, x *Tensor) *Tensor {
	stride := c.Stride
	if stride == [2]int{} {
		stride = [2]int{1, 1}
	}
	g := t.window(c.Name, x, c.Kernel, stride, c.Padding)
	if g.c != c.in {
		t.fail("%s: input %v: want %d channels", c.Name, x.dims, c.in)
	}
	o := next[conv](t)
	o.window, o.filters, o.tape = g, c.Filters, t
	o.kernel, o.bias = c.vars[0], nil
	if !c.NoBias {
		o.bias = c.vars[1]
	}
	o.tiled = o.fitsTiles()
	o.ph, o.pw = g.padded()
	if o.pads() {
		o.padding = resize(o.padding, t.team.size()*o.together()*o.ph*o.pw*g.c)
		clear(o.padding)
	}
	y := t.record(o, c.vars, x, g.oh, g.ow, c.Filters)
	y.rectified = c.ReLU
	return y
}

// conv reads an image in place: for one row of the output the rows of A are overlapping stretches
// of kw*c elements, one for each output pixel, and kernel rows are segments of the sum. So nothing
// is rearranged in any of the three products. Only padding needs a copy, of one image per thread.
// Most kernels of 3 by 3 are computed in another way: see winograd.go.
type conv struct {
	node
	window
	filters int
	tape    *Tape
	// it computes in tiles
	tiled  bool
	points points

	// bias may be nil
	kernel, bias *Param
	// the normalisation that computes in[0], if nothing else reads it: image does its work
	norm    *normalize
	masking bool
	// the image with its padding
	ph, pw int
	// those images that are computed together, for each thread
	padding []float32
	// the kernel as the gradient of the input reads it
	flipped []float32
	// sums of the gradients of kernel and bias, for each part
	sums []float32
}

// pads reports whether images are copied to be padded.
func (o *conv) pads() bool { return o.ph != o.h || o.pw != o.w }

// together returns the number of images that are computed together.
func (o *conv) together() int {
	if o.tiled {
		t := tilingOf(o.oh, o.ow)
		return max(1, t.atOnce(o.ow, o.c+o.filters)*t.pixels/o.oh)
	}
	return 1
}

// padded returns the i-th image of the input, as pad has padded it with those that are computed
// together.
func (o *conv) padded(s examples, i int) []float32 {
	if size := o.h * o.w * o.c; !o.pads() {
		return o.in[0].from.data[i*size : (i+1)*size]
	}
	size := o.ph * o.pw * o.c
	return o.padding[(s.worker*o.together()+i-s.lo)*size:][:size]
}

// pad copies images that are computed together.
func (o *conv) pad(s examples) {
	size, row := o.h*o.w*o.c, o.w*o.c
	for i := s.lo; i < s.hi && o.pads(); i++ {
		padded := o.padded(s, i)
		for y := range o.h {
			at := i*size + y*row
			if dst := padded[((y+o.top)*o.pw+o.left)*o.c:][:row]; o.norm != nil {
				o.norm.apply(dst, at, at+row)
			} else {
				copy(dst, o.in[0].from.data[at:])
			}
		}
	}
}

// image returns the input's i-th image, padded, if it is computed alone.
func (o *conv) image(s examples, i int) []float32 {
	s.lo, s.hi = i, i+1
	o.pad(s)
	return o.padded(s, i)
}

// absorb takes over a normalisation: an image that is copied to be padded can be normalised on the
// way.
func (o *conv) absorb(before op) {
	if o.tiled {
		o.pointsOfKernel()
	}
	o.norm = nil
	if !o.pads() {
		return
	}
	if n := absorbs(before, o.in[0].from); n != nil && o.w*o.c%n.moments.width == 0 {
		o.norm = n
		o.norm.absorbed, o.norm.out.lost = true, true
	}
}

// maskInput zeroes the gradient of an image where the ReLU of the normalisation did.
func (o *conv) maskInput(dx, padded []float32) {
	row := o.w * o.c
	for y := range o.h {
		kernel.ReluGrad(dx[y*row:(y+1)*row], padded[((y+o.top)*o.pw+o.left)*o.c:][:row])
	}
}

func (o *conv) forward(s examples) {
	if o.tiled {
		o.forwardTiles(s)
		return
	}
	size := o.out.size
	g := kernel.GemmArgs{
		Blocks: o.oh, M: o.ow, N: o.filters, Segs: o.kh, K: o.kw * o.c,
		ABlock: o.sh * o.pw * o.c, ARow: o.sw * o.c, ASeg: o.pw * o.c, AStep: 1,
		B: o.kernel.Value, BRow: o.filters,
		CBlock: o.ow * o.filters, CRow: o.filters,
		ReLU: o.out.rectified, Scratch: &o.tape.scratch[s.worker],
	}
	if o.bias != nil {
		g.Init, g.Bias = kernel.Bias, o.bias.Value
	}
	for i := s.lo; i < s.hi; i++ {
		g.A = o.image(s, i)
		g.C = o.out.data[i*size : (i+1)*size]
		kernel.Gemm(&g)
	}
}

// total returns the number of elements of the sums of a part.
func (o *conv) total() int {
	if o.bias == nil {
		return o.kernel.Len()
	}
	return o.kernel.Len() + o.filters
}

func (o *conv) prepare() {
	o.sums = resize(o.sums, parts*o.total())
	if o.tiled {
		t := tilingOf(o.oh, o.ow)
		o.points.sums = resize(o.points.sums, o.tape.team.size()*t.points()*o.plane())
	}
	o.masking = o.norm != nil && o.in[0].grad != nil && o.masks()
	switch {
	case o.in[0].grad == nil:
	case o.tiled:
		o.turnPoints()
	default:
		o.flip()
	}
}

func (o *conv) backward(s examples) {
	if o.tiled {
		o.backwardTiles(s)
		return
	}
	size := o.out.size
	dw, db := o.sumsOf(s.part)
	g := kernel.GemmArgs{
		Blocks: o.kh, M: o.kw * o.c, N: o.filters, Segs: o.oh, K: o.ow,
		ABlock: o.pw * o.c, ARow: 1, ASeg: o.sh * o.pw * o.c, AStep: o.sw * o.c,
		BRow: o.filters,
		C:    dw, CBlock: o.kw * o.c * o.filters, CRow: o.filters,
		Init: kernel.Accumulate, Scratch: &o.tape.scratch[s.worker],
	}
	if s.lo == o.tape.first(s.part) {
		g.Init = kernel.Zero
		clear(db)
	}
	for i := s.lo; i < s.hi; i++ {
		o.mask(examples{lo: i, hi: i + 1})
		dy := o.out.grad[i*size : (i+1)*size]
		if o.bias != nil {
			kernel.AddRows(db, dy)
		}
		g.A, g.B = o.image(s, i), dy
		kernel.Gemm(&g)
		g.Init = kernel.Accumulate
		if dx := o.in[0].grad; dx != nil {
			size := o.in[0].from.size
			dx = dx[i*size : (i+1)*size]
			o.backwardInput(s, dx, dy)
			if o.masking {
				o.maskInput(dx, g.A)
			}
		}
	}
}

// sumsOf returns a part's sums for the gradients of kernel and bias.
func (o *conv) sumsOf(part int) (dw, db []float32) {
	total := o.total()
	sum := o.sums[part*total:][:total]
	return sum[:o.kernel.Len()], sum[o.kernel.Len():]
}

func (o *conv) adds() {}

// flip lays the kernel out as backwardInput reads it: for each kernel column the kernel rows as
// output rows pass over an input row, which is from below and in steps of the stride, each [filters
// c].
func (o *conv) flip() {
	block := o.filters * o.c
	o.flipped = resize(o.flipped, o.kh*o.kw*block)
	for k := range o.kw {
		for r := range o.kh {
			dst := o.flipped[(k*o.kh+o.flippedRow(r))*block:][:block]
			src := o.kernel.Value[(r*o.kw+k)*block:][:block]
			kernel.Transpose(dst, o.c, src, o.filters, o.c, o.filters)
		}
	}
}

// flippedRow returns the position of kernel row r among those of its column in flipped: ordered by
// r modulo the stride, then from below.
func (o *conv) flippedRow(r int) int {
	at := 0
	for group := range r % o.sh {
		at += (o.kh - group + o.sh - 1) / o.sh
	}
	return at + (o.kh-1-r)/o.sh
}

// backwardInput computes the gradient of one image. A row of it is the sum over the kernel's
// columns k of a product, whose segments are the output rows above it and which lands where the
// column lies: on every sw-th pixel from the first that it reaches. No product is with padding.
// Rows in the middle of an image are alike, and one call.
func (o *conv) backwardInput(s examples, dx, dy []float32) {
	g := kernel.GemmArgs{
		N: o.c, K: o.filters,
		ABlock: o.ow * o.filters, ARow: o.filters, ASeg: o.ow * o.filters, AStep: 1,
		BRow: o.c, CBlock: o.w * o.c, CRow: o.sw * o.c,
		Init: kernel.Accumulate, Scratch: &o.tape.scratch[s.worker],
	}
	lo, hi := covers(o.left, o.w, o.sw, o.left, o.ow)
	whole := o.sh == 1 && o.sw == 1 && lo == 0 && hi == o.w // column left reaches all pixels
	if !whole && !o.in[0].onto {
		clear(dx)
	}
	for y := 0; y < o.h; y += max(1, g.Blocks) {
		top, segs := o.above(y)
		g.Segs, g.Blocks = segs, 1
		if segs < 1 {
			continue
		}
		for o.sh == 1 && y+g.Blocks < o.h {
			if f, s := o.above(y + g.Blocks); f != top+g.Blocks || s != segs {
				break
			}
			g.Blocks++
		}
		from := o.flippedRow(y + o.top - top*o.sh)
		for i := range o.kw {
			k := i
			g.Init = kernel.Accumulate
			if whole && !o.in[0].onto { // the first column overwrites the gradient
				if k = (o.left + i) % o.kw; i == 0 {
					g.Init = kernel.Zero
				}
			}
			lo, hi := covers(k, o.w, o.sw, o.left, o.ow)
			if g.M = hi - lo; g.M == 0 {
				continue
			}
			g.A = dy[(top*o.ow+lo)*o.filters:]
			g.B = o.flipped[(k*o.kh+from)*o.filters*o.c:]
			g.C = dx[(y*o.w+lo*o.sw-o.left+k)*o.c:]
			kernel.Gemm(&g)
		}
	}
}

// above returns the output rows whose window covers input row y: row v has kernel row y+top-v*sh
// there.
func (o *conv) above(y int) (first, rows int) {
	first = max(0, floorDiv(y+o.top-o.kh, o.sh)+1)
	return first, min(o.oh-1, (y+o.top)/o.sh) - first + 1
}

// fold adds up the sums of the parts.
func (o *conv) fold(part int) {
	total := o.total()
	foldSums(o.kernel.Grad, o.sums, total, o.in[0].from.dims[0], part, o.add[0])
	if part == 0 && o.bias != nil {
		for i := range parts {
			foldSums(o.bias.Grad, o.sums[o.kernel.Len():], total, o.in[0].from.dims[0], i, o.add[1])
		}
	}
}

// foldSums adds up, or adds to grad, one part of the elements of a gradient: the sums of those
// parts of the batch that have examples, which lie every elements apart.
func foldSums(grad, sums []float32, every, batch, part int, add bool) {
	lo, hi := part*len(grad)/parts, (part+1)*len(grad)/parts
	for p := range parts {
		if p*batch/parts == (p+1)*batch/parts {
			continue
		}
		if sum := sums[p*every:][lo:hi]; add {
			kernel.Add(grad[lo:hi], sum)
		} else {
			copy(grad[lo:hi], sum)
			add = true
		}
	}
}
