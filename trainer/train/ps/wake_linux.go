package ps

import (
	"net"
	"syscall"
)

// wakeAt has readers of a socket sleep until that many bytes have arrived, or the connection ends.
// A connection that is no socket is left unchanged.
func wakeAt(conn net.Conn, bytes int) {
	socket, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return
	}
	raw.Control(func(fd uintptr) {
		// if it cannot be set, readers are woken more often
		syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes)
	})
}
