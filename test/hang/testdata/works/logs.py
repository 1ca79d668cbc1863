"""Writes its lines by logging, in one of two ranks, while the other sleeps."""
import logging, os, sys, time

logging.basicConfig(level=logging.INFO)
end = time.time() + float(sys.argv[1])
while time.time() < end:
    if os.environ["RANK"] == "1":
        logging.info("alive")
    time.sleep(35)
