"""Writes goldens.json: what PyTorch computes, in float64, for the cases of golden_test.go.

    python3 goldens.py > goldens.json

Inputs and parameters are not stored: both sides make them with values(). Of a
large tensor some elements are stored, evenly spaced, and the sum of all squares.
"""
import json
import math

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
MASK = 2**32 - 1


def values(salt, shape, scale=1.0, shift=0.0):
    out = []
    for i in range(math.prod(shape)):
        h = (i * 2654435761 + salt * 40503 + 12345) & MASK
        h = ((h ^ h >> 15) * 2246822519) & MASK
        h = ((h ^ h >> 13) * 3266489917) & MASK
        h ^= h >> 16
        out.append((h / 2**31 - 1) * scale + shift)
    return torch.tensor(out).float().double().reshape(shape)


def pad(x, kernel, stride, same, value=0.0):
    """TensorFlow's SAME: the odd element goes below and to the right; "half" is PyTorch's
    padding=kernel//2."""
    if not same:
        return x
    if same == "half":
        return F.pad(x, [kernel[1] // 2] * 2 + [kernel[0] // 2] * 2, value=value)
    around = []
    for size, k, s in reversed(list(zip(x.shape[2:], kernel, stride))):
        total = max((-(-size // s) - 1) * s + k - size, 0)
        around += [total // 2, total - total // 2]
    return F.pad(x, around, value=value)


def conv(x, w, b=None, stride=(1, 1), same=False, relu=False):
    x = pad(x.permute(0, 3, 1, 2), w.shape[:2], stride, same)
    y = F.conv2d(x, w.permute(3, 2, 0, 1), b, stride=stride).permute(0, 2, 3, 1)
    return F.relu(y) if relu else y


def pool(x, kernel, stride, same=False):
    x = pad(x.permute(0, 3, 1, 2), kernel, stride, same, -math.inf)
    return F.max_pool2d(x, kernel, stride).permute(0, 2, 3, 1)


def dense(x, w, b, relu=False):
    y = x @ w + b
    return F.relu(y) if relu else y


def norm(x, gamma, beta, epsilon=1e-3, relu=False):
    axes = tuple(range(x.dim() - 1))
    mean, variance = x.mean(axes), x.var(axes, unbiased=False)
    y = (x - mean) / torch.sqrt(variance + epsilon) * gamma + beta
    return F.relu(y) if relu else y


def shortcut(x, stride, channels):
    return F.pad(x[:, ::stride, ::stride], (0, channels - x.shape[3]))


def golden(t):
    flat = t.detach().reshape(-1)
    every = -(-len(flat) // 100)
    return {"every": every, "values": [float(f"{v:.9g}") for v in flat[::every].tolist()],
            "squares": float(f"{(flat * flat).sum().item():.9g}")}


cases = []


def case(name, x, params, f, labels=None):
    """f(x, *params) is an output, whose product with values(99) is the loss, or with labels
    logits."""
    tensors = [x] + params
    for t in tensors:
        t.requires_grad_()
    y = f(*tensors)
    if labels is None:
        loss = (y * values(99, tuple(y.shape))).sum()
    else:
        loss = F.cross_entropy(y, torch.tensor(labels))
    loss.backward()
    cases.append({"name": name, "output": golden(y), "loss": float(f"{loss.item():.9g}"),
                  "grads": [golden(t.grad) for t in tensors]})


def kernel_and_bias(*shape):
    return [values(2, shape, 0.5), values(3, shape[-1:], 0.5)]


def conv_case(name, x, kernel, filters, **kw):
    case(name, values(1, x), kernel_and_bias(*kernel, x[3], filters), lambda *t: conv(*t, **kw))


conv_case("conv valid", (3, 7, 6, 2), (3, 3), 5)
conv_case("conv valid relu", (2, 9, 8, 3), (3, 3), 4, relu=True)
conv_case("conv same", (2, 6, 5, 3), (3, 3), 17, same=True, relu=True)
conv_case("conv same even kernel", (2, 5, 6, 2), (4, 2), 3, same=True)
conv_case("conv valid stride", (2, 11, 10, 2), (5, 3), 3, stride=(2, 3))
conv_case("conv same stride", (2, 10, 7, 3), (5, 3), 3, stride=(3, 2), same=True, relu=True)
conv_case("conv stride beyond kernel", (2, 9, 9, 2), (2, 2), 3, stride=(3, 3), same=True)
conv_case("conv 1x1", (2, 4, 5, 7), (1, 1), 33, relu=True)
case("dense", values(1, (5, 7)), kernel_and_bias(7, 4), dense)
case("dense relu, three dimensions", values(1, (3, 4, 6)), kernel_and_bias(6, 5), lambda *t: dense(*t, relu=True))
case("max pool", values(1, (2, 7, 6, 3)), [], lambda x: pool(x, (2, 2), (2, 2)))
case("max pool same", values(1, (2, 7, 5, 3)), [], lambda x: pool(x, (2, 2), (2, 2), True))
case("max pool overlapping", values(1, (2, 8, 7, 2)), [], lambda x: pool(x, (3, 2), (2, 1), True))
gamma_beta = lambda c: [values(2, (c,), 0.5, 1), values(3, (c,), 0.5)]
case("batch norm", values(1, (3, 4, 5, 6), 1, 0.5), gamma_beta(6), norm)
case("batch norm, two dimensions", values(1, (9, 4), 3, -1), gamma_beta(4), norm)
case("cross-entropy", values(1, (6, 10), 4), [], lambda x: x, [3, 9, 0, 5, 5, 1])


def mnist(x, w1, b1, w2, b2, gamma, beta, w3, b3):
    x = conv(x, w1, b1, relu=True)
    x = conv(x, w2, b2, relu=True)
    x = norm(x, gamma, beta)
    x = pool(x, (2, 2), (2, 2))
    return dense(x.flatten(1), w3, b3)


case("mnist", values(1, (5, 28, 28, 1), 0.5, 0.5),
     [values(2, (3, 3, 1, 32), 0.14), values(3, (32,), 0.1), values(4, (3, 3, 32, 64), 0.08), values(5, (64,), 0.1),
      values(6, (64,), 0.1, 1), values(7, (64,), 0.1), values(8, (9216, 10), 0.025), values(9, (10,), 0.1)],
     mnist, [7, 2, 1, 0, 4])


def residual(x, w1, gamma1, beta1, w2, gamma2, beta2):
    """A block; one that has more filters than inputs halves the image."""
    channels = w1.shape[3]
    stride = channels // x.shape[3]
    y = norm(conv(x, w1, stride=(stride, stride), same="half"), gamma1, beta1, relu=True)
    y = norm(conv(y, w2, same="half"), gamma2, beta2)
    return F.relu(y + shortcut(x, stride, channels))


def resnet(x, *p):
    """The network of zoo's cifar10_resnet20, with any number of blocks and filters."""
    x = norm(conv(x, p[0], same="half"), p[1], p[2], relu=True)
    for i in range(3, len(p) - 2, 6):
        x = residual(x, *p[i:i + 6])
    return dense(x.mean((1, 2)), p[-2], p[-1])


case("conv half", values(1, (2, 7, 6, 3)), [values(2, (3, 3, 3, 4), 0.5)], lambda *t: conv(*t, same="half"))
case(
    "conv half stride",
    values(1, (2, 8, 7, 3)),
    [values(2, (3, 3, 3, 4), 0.5)],
    lambda *t: conv(*t, stride=(2, 2), same="half"),
)
case("conv half even kernel", values(1, (2, 7, 6, 2)), kernel_and_bias(4, 2, 2, 3),
     lambda *t: conv(*t, stride=(2, 1), same="half", relu=True))
case("max pool half", values(1, (2, 7, 5, 3)), [], lambda x: pool(x, (3, 3), (2, 2), "half"))
case("batch norm relu", values(1, (3, 4, 5, 6), 1, 0.5), gamma_beta(6), lambda *t: norm(*t, relu=True))
case("global average pool", values(1, (3, 5, 4, 6)), [], lambda x: x.mean((1, 2)))
case("shortcut", values(1, (2, 5, 4, 3)), [], lambda x: shortcut(x, 2, 7))
block = lambda salt, c, f: [
    values(salt, (3, 3, c, f), 0.5),
    values(salt + 1, (f,), 0.5, 1),
    values(salt + 2, (f,), 0.5),
    values(salt + 3, (3, 3, f, f), 0.5),
    values(salt + 4, (f,), 0.5, 1),
    values(salt + 5, (f,), 0.5),
]
case("residual block", values(1, (3, 5, 6, 4)), block(2, 4, 4), residual)
case("residual block that halves", values(1, (3, 6, 5, 4)), block(2, 4, 8), residual)
case("resnet", values(1, (4, 8, 8, 3)),
     [values(2, (3, 3, 3, 4), 0.5), values(3, (4,), 0.5, 1), values(4, (4,), 0.5)] + block(5, 4, 4) + block(11, 4, 4)
     + block(17, 4, 8) + block(23, 8, 8) + [values(29, (8, 5), 0.5), values(30, (5,), 0.5)], resnet, [3, 0, 4, 1])

print("[\n" + ",\n".join(json.dumps(c) for c in cases) + "\n]")
