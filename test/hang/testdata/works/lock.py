"""Rank 1 waits for the lock of a file that rank 0 holds, which computes."""
import fcntl, os, sys, time

path = os.path.join(os.environ["TMPDIR"], "hang-lock-" + os.environ["TORCHELASTIC_RUN_ID"])
end = time.time() + float(sys.argv[1])
with open(path, "a") as file:
    if os.environ["RANK"] == "1":
        time.sleep(5)
    fcntl.flock(file, fcntl.LOCK_EX)
    while os.environ["RANK"] == "0" and time.time() < end:
        words = " ".join(str(i) for i in range(1000))
        words.split()
