package checkpoint

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// prepare maps memory that may never have been used. Its content is lost. One call that maps many
// pages takes less time than a fault for each of them.
func prepare(b []byte) {
	whole := uintptr(os.Getpagesize())
	begun := -uintptr(unsafe.Pointer(unsafe.SliceData(b))) % whole // of a page that begins before b
	first := b[:min(uintptr(len(b)), begun)]
	touch(first)
	b = b[len(first):]
	if len(b) > 0 && unix.Madvise(b, unix.MADV_POPULATE_WRITE) != nil {
		touch(b) // by a kernel before Linux 5.14
	}
}

// readInOrder has the kernel read a file ahead twice as far as it would.
func readInOrder(f *os.File) {
	// of no effect in a file system that cannot
	unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_SEQUENTIAL)
}
