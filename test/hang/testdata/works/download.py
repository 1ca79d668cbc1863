"""Downloads slowly from a server of another process, without output."""
import multiprocessing, socket, sys, time


def serve(listener):
    connection, _ = listener.accept()
    try:
        while True:
            connection.sendall(bytes(10_000))
            time.sleep(0.1)
    except OSError:
        pass


listener = socket.create_server(("127.0.0.1", 0))
server = multiprocessing.get_context("fork").Process(target=serve, args=(listener,), daemon=True)
server.start()
download = socket.create_connection(listener.getsockname())
end = time.time() + float(sys.argv[1])
while time.time() < end:
    download.recv(1 << 16)
