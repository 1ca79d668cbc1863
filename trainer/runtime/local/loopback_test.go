package local

import (
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// alone runs a test in a network namespace of its own. Its loopback interface is down, and has no
// address.
func alone(t *testing.T, test func()) {
	t.Helper()
	privately(t, unix.CLONE_NEWNET, test)
}

// privately runs a test in a namespace of its own, on a thread that ends with it.
func privately(t *testing.T, namespace int, test func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		// never unlocked: the thread ends with this goroutine
		runtime.LockOSThread()
		err := unix.Unshare(namespace)
		if err == nil {
			test()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Skipf("no namespace (it takes root): %v", err)
	}
}

// change makes a request about the loopback interface of this thread's namespace.
func change(t *testing.T, request uint, set func(*unix.Ifreq) error) {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Error(err)
		return
	}
	defer unix.Close(s)
	r, err := unix.NewIfreq("lo")
	if err == nil {
		err = set(r)
	}
	if err == nil {
		err = unix.IoctlIfreq(s, request, r)
	}
	if err != nil {
		t.Error(os.NewSyscallError("ioctl", err))
	}
}

func TestLoopback(t *testing.T) {
	up := func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP); return nil }
	noIPv4 := func(r *unix.Ifreq) error { return r.SetInet4Addr(net.IPv4zero.To4()) }
	for name, c := range map[string]struct {
		prepare func()
		want    string // host; "": an error
	}{
		"down": {func() {}, ""},
		"up":   {func() { change(t, unix.SIOCSIFFLAGS, up) }, "127.0.0.1"},
		"IPv6 only": {func() {
			change(t, unix.SIOCSIFFLAGS, up)
			change(t, unix.SIOCSIFADDR, noIPv4)
		}, "::1"},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, func() {
				c.prepare()
				l, err := listenLocally()
				if err == nil {
					defer l.Close()
				}
				switch {
				case c.want == "" && (err == nil || !strings.Contains(err.Error(), "ip link set lo up")):
					t.Errorf("no loopback interface: %v", err)
				case c.want != "" && err != nil:
					t.Error(err)
				case c.want != "":
					if host, _, _ := net.SplitHostPort(l.Addr().String()); host != c.want {
						t.Errorf("listens at %s, want %s", host, c.want)
					}
				}
			})
		})
	}
}

// A state directory that cannot be written names the variable that chooses another.
func TestStateDirectoryThatCannotBeWritten(t *testing.T) {
	file := t.TempDir() + "/file"
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, home := range map[string]string{"no directory": file, "below a file": file + "/below",
		"read-only": "/proc/elasticdl"} {
		t.Setenv("ELASTICDL_HOME", home)
		d, err := openDir("job")
		if err != nil {
			t.Fatal(err)
		}
		if _, err = d.lock(); err == nil ||
			!strings.Contains(err.Error(), "set ELASTICDL_HOME to a directory that can be written") ||
			!strings.Contains(err.Error(), home) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A job that cannot start for want of room says which variable chooses another disk, once.
func TestStartOnAFullDisk(t *testing.T) {
	home := t.TempDir()
	t.Setenv("ELASTICDL_HOME", home)
	privately(t, unix.CLONE_NEWNS, func() {
		err := errors.Join(unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			unix.Mount("none", home, "tmpfs", 0, "size=64k"))
		if err == nil {
			_, err = openDir("full") // and what it makes is there
			os.WriteFile(home+"/fill", make([]byte, 1<<20), 0o600)
		}
		if err != nil {
			t.Error(err)
			return
		}
		_, err = Start(t.Context(), &job.Job{Name: "full"}, StartOptions{})
		want := "free space, or set ELASTICDL_HOME to a directory with more"
		if err == nil || strings.Count(err.Error(), want) != 1 || strings.Contains(err.Error(), "\n") ||
			!strings.Contains(err.Error(), "no space left on "+home) {
			t.Errorf("%v, want %q", err, want)
		}
	})
}
