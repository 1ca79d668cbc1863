"""Its threads compute, and the main thread waits for them."""
import sys, threading, time

end = time.time() + float(sys.argv[1])


def work():
    while time.time() < end:
        sum(range(1000))


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
