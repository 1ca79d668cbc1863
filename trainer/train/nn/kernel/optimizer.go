package kernel

// The optimizers update the parameters p with the gradient g, and their slots; all slices have at
// least len(p) elements. They are element-wise, so any stretch can be updated alone. The rates are
// float64 because 1-b2 is taken before rounding to float32: after it, it would be wrong by 1e-5 of
// its value.

// SGD: p -= lr*g.
func SGD(p, g []float32, lr float64) {
	check("SGD", "g", len(g), len(p))
	for i, j := range chunks(len(p)) {
		active.sgd(p[i:j], g[i:j], float32(lr))
	}
}

// Momentum: v = mu*v + g; p -= lr*v, or with Nesterov's p -= lr*(g + mu*v).
func Momentum(p, g, v []float32, lr, mu float64, nesterov bool) {
	check("Momentum", "g", len(g), len(p))
	check("Momentum", "v", len(v), len(p))
	update := active.momentum
	if nesterov {
		update = active.nesterov
	}
	for i, j := range chunks(len(p)) {
		update(p[i:j], g[i:j], v[i:j], float32(lr), float32(mu))
	}
}

// Adam: m += (1-b1)*(g-m); v += (1-b2)*(g²-v); p -= lr*m/(√v+eps). lr holds the bias correction
// of this step: rate*√(1-b2^t)/(1-b1^t).
func Adam(p, g, m, v []float32, lr, b1, b2, eps float64) {
	check("Adam", "g", len(g), len(p))
	check("Adam", "m", len(m), len(p))
	check("Adam", "v", len(v), len(p))
	for i, j := range chunks(len(p)) {
		active.adam(p[i:j], g[i:j], m[i:j], v[i:j], float32(lr), float32(1-b1), float32(1-b2), float32(eps))
	}
}

// AMSGrad is Adam with vhat = max(vhat, v) under the root.
func AMSGrad(p, g, m, v, vhat []float32, lr, b1, b2, eps float64) {
	check("AMSGrad", "g", len(g), len(p))
	check("AMSGrad", "m", len(m), len(p))
	check("AMSGrad", "v", len(v), len(p))
	check("AMSGrad", "vhat", len(vhat), len(p))
	for i, j := range chunks(len(p)) {
		active.amsgrad(p[i:j], g[i:j], m[i:j], v[i:j], vhat[i:j], float32(lr), float32(1-b1),
			float32(1-b2), float32(eps))
	}
}

// Adagrad: acc += g²; p -= lr*g/(√acc+eps).
func Adagrad(p, g, acc []float32, lr, eps float64) {
	check("Adagrad", "g", len(g), len(p))
	check("Adagrad", "acc", len(acc), len(p))
	for i, j := range chunks(len(p)) {
		active.adagrad(p[i:j], g[i:j], acc[i:j], float32(lr), float32(eps))
	}
}
