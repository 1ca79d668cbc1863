"""Compresses a large file."""
import gzip, io, os, sys, time

data = os.urandom(1 << 20)
end = time.time() + float(sys.argv[1])
with gzip.open(os.devnull, "wb", compresslevel=9) as file:
    while time.time() < end:
        file.write(data)
