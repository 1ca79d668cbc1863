"""Reads a file that it has mapped."""
import mmap, sys, tempfile, time

end = time.time() + float(sys.argv[1])
with tempfile.TemporaryFile() as file:
    file.truncate(64 << 20)
    with mmap.mmap(file.fileno(), 0) as memory:
        while time.time() < end:
            for at in range(0, len(memory), 4096):
                memory[at]
