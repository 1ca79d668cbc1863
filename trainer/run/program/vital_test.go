package program

import (
	"encoding/binary"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A process that receives from the network, itself or by a child, and one that writes files move
// bytes. One that sleeps does not. Neither has output.
func TestVitalsOfProcesses(t *testing.T) {
	needPython(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() { // a slow server
				defer conn.Close()
				for text := make([]byte, 4<<10); err == nil; time.Sleep(5 * time.Millisecond) {
					_, err = conn.Write(text)
				}
			}()
		}
	}()
	const script = `
import os, socket, sys, time
def download():
    s = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
    while True: s.recv(1 << 16)
rank = os.environ["RANK"]
if rank == "0": download()
if rank == "1" and os.fork() == 0: download()
while rank == "2":
    with open("saved", "wb") as f: f.write(bytes(1 << 16))
    time.sleep(.01)
if rank == "3":
    import threading
    def spin():
        while True: pass
    threading.Thread(target=spin, daemon=True).start()
time.sleep(1000)
`
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	b := newBench(t, Options{Command: []string{"main.py", port}, StartMethod: Exec, Env: []string{needPython(t)}},
		map[string]string{"main.py": script})
	pids := b.start(5).Pids()
	var v Vitals
	first := v.Look(Processes(), pids)
	eventually(t, func() error {
		time.Sleep(50 * time.Millisecond)
		last := v.Look(Processes(), pids)
		for i := range 3 {
			if last[pids[i]].Moved < 4<<20 {
				return fmt.Errorf("rank %d has moved %d", i, last[pids[i]].Moved)
			}
		}
		if !last[pids[3]].Ready || last[pids[4]].Ready || last[pids[4]].Held {
			return fmt.Errorf("%+v, %+v", last[pids[3]], last[pids[4]])
		}
		// it has started meanwhile, by some files of Python's
		if moved := last[pids[4]].Moved; moved > 4<<20 {
			t.Fatalf("a process that sleeps has moved %d", moved)
		}
		return nil
	})
	if len(first) != 5 || first[pids[0]].Moved != 0 {
		t.Errorf("the first look: %+v", first)
	}
	syscall.Kill(pids[4], syscall.SIGSTOP)
	eventually(t, func() error {
		if v.Look(Processes(), pids)[pids[4]].Held {
			return nil
		}
		return fmt.Errorf("it is not held")
	})
	syscall.Kill(pids[4], syscall.SIGCONT)
	if all := v.Look(Processes(), []int{1 << 30}); len(all) != 0 {
		t.Errorf("%+v", all)
	}
}

func TestFileBytes(t *testing.T) {
	for text, want := range map[string]int64{
		"rchar: 10\nwchar: 5\nsyscr: 7\nread_bytes: 4096\n": 4111, "": 0, "rchar: x\nwchar: -5\n": 0,
		"rchar: 9223372036854775807\nwchar: 1\n": 1<<63 - 1,
	} {
		if got := fileBytes([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// Counters that begin again, and processes that end, do not decrease what was moved.
func TestVitalsSince(t *testing.T) {
	var v Vitals
	if n := v.since(v.files, 1, 100); n != 0 {
		t.Errorf("the first look counts %d", n)
	}
	v.looked = true
	for _, c := range []struct{ before, now, want int64 }{{0, 100, 100}, {40, 100, 60}, {100, 40, 0}} {
		if n := v.since(map[int]int64{1: c.before}, 1, c.now); n != c.want {
			t.Errorf("%+v: %d", c, n)
		}
	}
}

// diag returns a message of the kernel with one connection.
func diag(inode uint32, acked, received uint64) []byte {
	info := make([]byte, unix.SizeofTCPInfo)
	binary.NativeEndian.PutUint64(info[120:], acked)
	binary.NativeEndian.PutUint64(info[128:], received)
	size := unix.SizeofNlMsghdr + diagMessage + 8 + 4 + len(info)
	m := make([]byte, size)
	binary.NativeEndian.PutUint32(m, uint32(size))
	binary.NativeEndian.PutUint16(m[4:], sockDiagByFamily)
	binary.NativeEndian.PutUint32(m[unix.SizeofNlMsghdr+diagInode:], inode)
	at := m[unix.SizeofNlMsghdr+diagMessage:]
	binary.NativeEndian.PutUint16(at, 5) // another attribute, with padding
	binary.NativeEndian.PutUint16(at[2:], 8)
	at = at[8:]
	binary.NativeEndian.PutUint16(at, uint16(4+len(info)))
	binary.NativeEndian.PutUint16(at[2:], diagInfo)
	copy(at[4:], info)
	return m
}

func TestReadDiag(t *testing.T) {
	all := make(map[int]int64)
	end := make([]byte, unix.SizeofNlMsghdr+4)
	binary.NativeEndian.PutUint32(end, uint32(len(end)))
	binary.NativeEndian.PutUint16(end[4:], unix.NLMSG_DONE)
	two := append(diag(7, 100, 23), diag(8, 1<<63, 0)...)
	if readDiag(two, all) || len(all) != 2 || all[7] != 123 || all[8] != 1<<62 {
		t.Errorf("%v", all)
	}
	if !readDiag(append(diag(9, 1, 1), end...), all) || all[9] != 2 {
		t.Errorf("%v after the end", all)
	}
}

// FuzzReadDiag: whatever the kernel says, bytes are not negative, and nothing panics.
func FuzzReadDiag(f *testing.F) {
	f.Add(diag(7, 100, 23))
	f.Add(diag(7, 100, 23)[:100])
	f.Fuzz(func(t *testing.T, data []byte) {
		all := make(map[int]int64)
		readDiag(data, all)
		for inode, n := range all {
			if n < 0 || inode == 0 {
				t.Errorf("%d: %d", inode, n)
			}
		}
	})
}
