"""Draws a progress bar on standard error, without ends of lines."""
import sys, time

begin, length = time.time(), float(sys.argv[1])
while time.time() < begin + length:
    done = int(100 * (time.time() - begin) / length)
    sys.stderr.write(f"\r{done:3}% {'#' * (done // 2)}")
    sys.stderr.flush()
    time.sleep(15)
