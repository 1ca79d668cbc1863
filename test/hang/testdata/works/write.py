"""Writes a large file slowly, without output."""
import sys, tempfile, time

end = time.time() + float(sys.argv[1])
with tempfile.TemporaryFile() as file:
    while time.time() < end:
        file.seek(0)
        file.write(bytes(1 << 20))
        file.flush()
        time.sleep(5)
