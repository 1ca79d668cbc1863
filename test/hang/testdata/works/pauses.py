"""Writes a line every 40 s, and sleeps."""
import sys, time

end = time.time() + float(sys.argv[1])
while time.time() < end:
    print("still here", flush=True)
    time.sleep(min(40, max(0, end - time.time())))
