"""Decomposes matrices with NumPy."""
import sys, time
import numpy

end = time.time() + float(sys.argv[1])
while time.time() < end:
    numpy.linalg.svd(numpy.random.rand(200, 200))
