package program

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// socketPath is the longest path of a unix socket.
const socketPath = len(unix.RawSockaddrUnix{}.Path) - 1

// MakeTemporary makes a temporary directory in which sockets can be made at paths of up to room
// bytes below it. It is in the directory of temporary files, or in another one if the path of that
// is too long for sockets, as it may be in a batch system, or nothing can be made there.
func MakeTemporary(pattern string, room int) (string, error) {
	dir, err := makeTemporary(pattern, func(parent string) error {
		// MkdirTemp adds up to ten digits.
		if len(parent)+1+len(pattern)+10+1+room > socketPath {
			return fmt.Errorf("%s: its path is too long for sockets", parent)
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("%w; name a short one that can be written by TMPDIR", err)
	}
	return dir, nil
}

// makeTemporary makes a directory in the first directory of temporary files that suits and can be
// written, as Python's tempfile does.
func makeTemporary(pattern string, suits func(parent string) error) (string, error) {
	first, err := filepath.Abs(os.TempDir()) // it is used from other directories
	if err != nil {
		first = os.TempDir()
	}
	var failed []error
	for _, parent := range []string{first, "/tmp", "/var/tmp", "/dev/shm"} {
		if err := suits(parent); err != nil {
			failed = append(failed, err)
			continue
		}
		dir, err := os.MkdirTemp(parent, pattern)
		if err == nil {
			return dir, nil
		}
		failed = append(failed, err)
	}
	return "", fmt.Errorf("make a temporary directory: %w", errors.Join(failed...))
}

// litter are the names of the directories that Python's multiprocessing and PyTorch's shared memory
// make for sockets in the directory of temporary files. A process that is killed leaves them.
var litter = []string{"pymp-*", "torch-shm-dir-*"}

// sweepTemporary removes what processes of an ended session have left of that kind in the directory
// of temporary files: what is of this user, has changed since they began, and has sockets only, on
// which nobody listens.
func sweepTemporary(dir string, since time.Time) {
	dir = cmp.Or(dir, "/tmp")
	var listeners string
	for _, pattern := range litter {
		// the pattern is valid, or dir has none of those
		found, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, path := range found {
			info, err := os.Lstat(path)
			if err != nil || !info.IsDir() || info.ModTime().Before(since) ||
				int(info.Sys().(*syscall.Stat_t).Uid) != os.Getuid() {
				continue
			}
			if listeners == "" {
				text, err := os.ReadFile("/proc/net/unix")
				if err != nil {
					return
				}
				listeners = string(text)
			}
			if sockets := abandoned(path, listeners); sockets != nil {
				for _, socket := range sockets {
					os.Remove(socket)
				}
				os.Remove(path) // it fails if it has got another file
			}
		}
	}
}

// abandoned returns the sockets of a directory if it has nothing else, and nobody listens on any.
// listeners is the text of /proc/net/unix.
func abandoned(dir, listeners string) (sockets []string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, entry := range entries {
		path := filepath.Join(dir, entry.Name())
		if entry.Type() != os.ModeSocket || strings.Contains(listeners, " "+path+"\n") || !refuses(path) {
			return nil
		}
		sockets = append(sockets, path)
	}
	return sockets
}

// refuses reports whether nobody listens on a socket: not in another network namespace either,
// whose sockets this one does not list.
func refuses(path string) bool {
	for _, kind := range []int{unix.SOCK_STREAM, unix.SOCK_DGRAM} {
		fd, err := unix.Socket(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return false
		}
		err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		unix.Close(fd)
		if !slices.ContainsFunc([]error{unix.ECONNREFUSED, unix.EPROTOTYPE}, func(is error) bool {
			return errors.Is(err, is)
		}) {
			return false
		}
	}
	return true
}
