package mesh

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// canCopy is whether this system has such a call at all.
const canCopy = true

// admit lets the processes that this one's parent started copy from it, where only a parent may
// (Yama).
var admit = sync.OnceFunc(func() {
	// fails where there is no such rule
	unix.Prctl(unix.PR_SET_PTRACER, uintptr(os.Getppid()), 0, 0, 0)
})

// copyMemory fills b from an address in another process, and after that also c: the kernel takes
// one after the other.
func copyMemory(pid int, b []byte, from uintptr, c []byte, fromC uintptr) error {
	local := []unix.Iovec{{Base: unsafe.SliceData(c)}}
	local[0].SetLen(len(c))
	remote := []unix.RemoteIovec{{Base: fromC, Len: len(c)}}
	if len(b) > 0 {
		first := unix.Iovec{Base: unsafe.SliceData(b)}
		first.SetLen(len(b))
		local = []unix.Iovec{first, local[0]}
		remote = []unix.RemoteIovec{{Base: from, Len: len(b)}, remote[0]}
	}
	n, err := unix.ProcessVMReadv(pid, local, remote, 0)
	if err != nil {
		return err
	}
	if n != len(b)+len(c) {
		return fmt.Errorf("%d bytes of %d", n, len(b)+len(c))
	}
	return nil
}
