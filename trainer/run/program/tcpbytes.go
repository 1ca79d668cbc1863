package program

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Sizes and numbers of linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	diagInfo         = 2 // the attribute with the TCP info
	diagRequest      = 56
	diagMessage      = 72
	// offset of the inode in a message
	diagInode = 68
	// states ESTABLISHED, FIN_WAIT1, FIN_WAIT2 and CLOSE_WAIT of a connection
	diagStates = 1<<1 | 1<<4 | 1<<5 | 1<<8
)

// tcpBytes returns by inode the bytes that the TCP connections of this network namespace have
// received and sent. It is empty if the kernel does not answer.
func tcpBytes() map[int]int64 {
	all := make(map[int]int64)
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return all
	}
	defer unix.Close(fd)
	// the kernel answers at once, or not at all
	if unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 200_000}) != nil {
		return all
	}
	for _, family := range []byte{unix.AF_INET, unix.AF_INET6} {
		ask := make([]byte, unix.SizeofNlMsghdr+diagRequest)
		binary.NativeEndian.PutUint32(ask, uint32(len(ask)))
		binary.NativeEndian.PutUint16(ask[4:], sockDiagByFamily)
		binary.NativeEndian.PutUint16(ask[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
		body := ask[unix.SizeofNlMsghdr:]
		body[0], body[1], body[2] = family, unix.IPPROTO_TCP, 1<<(diagInfo-1)
		binary.NativeEndian.PutUint32(body[4:], diagStates)
		if unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}) != nil {
			return all
		}
		buffer := make([]byte, 64<<10)
		for done := false; !done; {
			n, _, err := unix.Recvfrom(fd, buffer, 0)
			if err != nil {
				return all
			}
			done = readDiag(buffer[:n], all)
		}
	}
	return all
}

// readDiag reads messages of the kernel into the map, and reports whether they were the last.
func readDiag(data []byte, all map[int]int64) (done bool) {
	for len(data) >= unix.SizeofNlMsghdr {
		size := int(binary.NativeEndian.Uint32(data))
		if size < unix.SizeofNlMsghdr || size > len(data) {
			return true
		}
		if kind := binary.NativeEndian.Uint16(data[4:]); kind != sockDiagByFamily {
			return true // the end, or an error
		}
		if body := data[unix.SizeofNlMsghdr:size]; len(body) >= diagMessage {
			inode := int(binary.NativeEndian.Uint32(body[diagInode:]))
			if n, ok := infoBytes(body[diagMessage:]); ok && inode != 0 {
				all[inode] = n
			}
		}
		data = data[min(len(data), (size+3)&^3):]
	}
	return len(data) > 0
}

// infoBytes returns the bytes in the TCP info among the attributes of a message.
func infoBytes(attributes []byte) (int64, bool) {
	const acked, received = unsafe.Offsetof(unix.TCPInfo{}.Bytes_acked), unsafe.Offsetof(unix.TCPInfo{}.Bytes_received)
	for len(attributes) >= 4 {
		size := int(binary.NativeEndian.Uint16(attributes))
		if size < 4 || size > len(attributes) {
			return 0, false
		}
		value := attributes[4:size]
		if binary.NativeEndian.Uint16(attributes[2:]) == diagInfo && len(value) >= int(received)+8 {
			sum := binary.NativeEndian.Uint64(value[acked:]) + binary.NativeEndian.Uint64(value[received:])
			return int64(min(sum, 1<<62)), true
		}
		attributes = attributes[min(len(attributes), (size+3)&^3):]
	}
	return 0, false
}
