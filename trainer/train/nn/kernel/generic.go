package kernel

import "math"

// The portable set. A float32 conversion round a product keeps the compiler from fusing it into the
// addition, so that the bits are those of the other sets.

var generic = set{
	name: "generic", gemm: gemmGeneric,
	axpy: axpyGeneric, add: addGeneric, sum: sumGeneric, scale: scaleGeneric,
	reluGrad: reluGradGeneric, addRows: addRowsGeneric, columnStats: columnStatsGeneric,
	scaleShift: scaleShiftGeneric, batchNormGrad: batchNormGradGeneric,
	maxPool: maxPoolGeneric, maxPoolGrad: maxPoolGradGeneric, dropout: dropoutGeneric,
	transpose: transposeGeneric, winograd: winogradGeneric, bytesToFloat: bytesToFloatGeneric,
	firstNonFinite: firstNonFiniteGeneric,
	sgd:            sgdGeneric, momentum: momentumGeneric, nesterov: nesterovGeneric, adam: adamGeneric, amsgrad: amsgradGeneric,
	adagrad: adagradGeneric, fmaPeak: fmaPeakGeneric,
}

func axpyGeneric(a float32, x, y []float32) {
	for i, v := range x {
		y[i] += float32(a * v)
	}
}

func addGeneric(dst, x []float32) {
	for i, v := range x {
		dst[i] += v
	}
}

func sumGeneric(dst, x, z []float32, floor float32) {
	for i, v := range x {
		v += z[i]
		if v < floor {
			v = floor
		}
		dst[i] = v
	}
}

func scaleGeneric(a float32, x []float32) {
	for i := range x {
		x[i] *= a
	}
}

func reluGradGeneric(dy, y []float32) {
	for i, v := range y {
		if !(v > 0) {
			dy[i] = 0
		}
	}
}

func addRowsGeneric(dst, x []float32) {
	for ; len(x) > 0; x = x[len(dst):] {
		addGeneric(dst, x[:len(dst)])
	}
}

func columnStatsGeneric(s1, s2 []float64, x, z []float32) {
	for r := 0; r < len(x); r += len(s1) {
		for c := range s1 {
			v := float64(x[r+c])
			s1[c] += v
			s2[c] += v * float64(z[r+c]) // exact product: fused or not is the same
		}
	}
}

func scaleShiftGeneric(dst, x, a, b []float32, floor float32) {
	for r := 0; r < len(x); r += len(a) {
		for c, k := range a {
			v := float32(x[r+c]*k) + b[c]
			if v < floor {
				v = floor
			}
			dst[r+c] = v
		}
	}
}

func batchNormGradGeneric(dx, dy, x, k1, k2, k3 []float32, keep uint32) {
	for r := 0; r < len(x); r += len(k1) {
		for c := range k1 {
			v := float32(float32(dy[r+c]*k1[c])+float32(x[r+c]*k2[c])) + k3[c]
			if keep == 0 && !(x[r+c] > 0) {
				v = 0
			}
			dx[r+c] = v
		}
	}
}

func maxPoolGeneric(dst []float32, index []uint8, top, bottom []float32, channels int) {
	for p := 0; p < len(dst); p += channels {
		for c := range channels {
			i := 2*p + c
			best, at := top[i], uint8(0)
			if v := top[i+channels]; v > best || v != v {
				best, at = v, 1
			}
			if v := bottom[i]; v > best || v != v {
				best, at = v, 2
			}
			if v := bottom[i+channels]; v > best || v != v {
				best, at = v, 3
			}
			dst[p+c], index[p+c] = best, at
		}
	}
}

func maxPoolGradGeneric(dtop, dbottom, dy []float32, index []uint8, channels int) {
	for p := 0; p < len(dy); p += channels {
		for c := range channels {
			i := 2*p + c
			var g [4]float32
			g[index[p+c]&3] = dy[p+c]
			dtop[i], dtop[i+channels], dbottom[i], dbottom[i+channels] = g[0], g[1], g[2], g[3]
		}
	}
}

func dropoutGeneric(dst, x []float32, counter, seed, threshold uint32, scale float32) {
	for i, v := range x {
		h := counter + uint32(i)
		h = (h ^ h>>16) * 0x21f0aaad
		h ^= seed
		h = (h ^ h>>15) * 0x735a2d97
		h ^= h >> 15
		if h < threshold {
			dst[i] = 0
		} else {
			dst[i] = v * scale
		}
	}
}

func transposeGeneric(dst []float32, dstRow int, src []float32, srcRow, rows, cols int) {
	const block = 16
	for r0 := 0; r0 < rows; r0 += block {
		r1 := min(r0+block, rows)
		for c := range cols {
			d := dst[c*dstRow+r0 : c*dstRow+r1]
			s := src[r0*srcRow+c:]
			for i := range d {
				d[i] = s[i*srcRow]
			}
		}
	}
}

func bytesToFloatGeneric(dst []float32, src []byte, scale, shift float32) {
	for i, v := range src {
		dst[i] = float32(float32(v)*scale) + shift
	}
}

func firstNonFiniteGeneric(x []float32) int {
	const exponent = 0xff << 23
	for i, v := range x {
		if math.Float32bits(v)&exponent == exponent {
			return i
		}
	}
	return -1
}

func sgdGeneric(p, g []float32, lr float32) {
	for i := range p {
		p[i] -= float32(lr * g[i])
	}
}

func momentumGeneric(p, g, v []float32, lr, mu float32) {
	for i := range p {
		v[i] = float32(mu*v[i]) + g[i]
		p[i] -= float32(lr * v[i])
	}
}

func nesterovGeneric(p, g, v []float32, lr, mu float32) {
	for i := range p {
		v[i] = float32(mu*v[i]) + g[i]
		p[i] -= float32(lr * (float32(mu*v[i]) + g[i]))
	}
}

func adamGeneric(p, g, m, v []float32, lr, c1, c2, eps float32) {
	for i := range p {
		m[i] += float32(c1 * (g[i] - m[i]))
		v[i] += float32(c2 * (float32(g[i]*g[i]) - v[i]))
		p[i] -= float32(lr*m[i]) / (sqrt(v[i]) + eps)
	}
}

func amsgradGeneric(p, g, m, v, vhat []float32, lr, c1, c2, eps float32) {
	for i := range p {
		m[i] += float32(c1 * (g[i] - m[i]))
		v[i] += float32(c2 * (float32(g[i]*g[i]) - v[i]))
		if v[i] > vhat[i] {
			vhat[i] = v[i]
		}
		p[i] -= float32(lr*m[i]) / (sqrt(vhat[i]) + eps)
	}
}

func adagradGeneric(p, g, acc []float32, lr, eps float32) {
	for i := range p {
		acc[i] += float32(g[i] * g[i])
		p[i] -= float32(lr*g[i]) / (sqrt(acc[i]) + eps)
	}
}

func sqrt(x float32) float32 { return float32(math.Sqrt(float64(x))) }

func fmaPeakGeneric(iterations int) int {
	a, b, c, d := float32(1), float32(2), float32(3), float32(4)
	for range iterations {
		a = a*0.5 + 1
		b = b*0.5 + 1
		c = c*0.5 + 1
		d = d*0.5 + 1
	}
	if a+b+c+d < 0 { // never: keeps the loop
		return 0
	}
	return iterations * 8
}
