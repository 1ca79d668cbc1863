package credential

import (
	"net"
	"syscall"
)

// Socket returns the socket of a connection, nil if it has none of its own, as an encrypted one.
func Socket(conn net.Conn) syscall.RawConn {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// WakeAt has the kernel wake a reader of a socket, also one that waits already, when this number of
// bytes has arrived, the buffer of the connection is full, or the connection has ended. A kernel
// that refuses wakes it for any byte.
func WakeAt(socket syscall.RawConn, bytes int) {
	socket.Control(func(fd uintptr) {
		syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVLOWAT, bytes)
	})
}
