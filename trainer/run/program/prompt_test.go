package program

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAwaited(t *testing.T) {
	descriptors := func(at uint64) int { return int(at) - 100 }
	for _, c := range []struct {
		text string
		fd   int
		ok   bool
	}{
		{fmt.Sprintf("%d 0x0 0x7f00 0x400 0x0", unix.SYS_READ), 0, true},
		{fmt.Sprintf("%d 0x5 0x7f00 0x400 0x0", unix.SYS_READ), 5, true},
		{fmt.Sprintf("%d 0xffffffffffffffff 0x7f00 0x400", unix.SYS_READ), 0, false},
		{fmt.Sprintf("%d 0x1 0x7f00 0x0", unix.SYS_PSELECT6), 0, true},
		{fmt.Sprintf("%d 0x4 0x7f00 0x0", unix.SYS_PSELECT6), 0, false},
		{fmt.Sprintf("%d 0x67 0x1 0x0", unix.SYS_PPOLL), 3, true},
		{fmt.Sprintf("%d 0x67 0x2 0x0", unix.SYS_PPOLL), 0, false},
		{fmt.Sprintf("%d 0x1 0x1 0x0", unix.SYS_PPOLL), -99, false},
		{"23 0x1 0x7f00 0x0", 0, true}, {"7 0x67 0x1 0x0", 3, true},
		{fmt.Sprintf("%d 0x0 0x0", unix.SYS_NANOSLEEP), 0, false},
		{"running", 0, false}, {"-1 0x7ffc 0x7f11", 0, false}, {"", 0, false}, {"0 0x0", 0, false},
	} {
		if runtime.GOARCH != "amd64" && (c.text[:2] == "23" || c.text[:2] == "7 ") {
			continue
		}
		if fd, ok := awaited(c.text, runtime.GOARCH, descriptors); fd != c.fd || ok != c.ok {
			t.Errorf("%s: %d, %v", c.text, fd, ok)
		}
	}
	if _, ok := awaited("23 0x1 0x7f00 0x0", "arm64", descriptors); ok {
		t.Error("another call on arm64")
	}
}

// A Python that prompts at a terminal waits for a user, by input() and in pdb. One that reads a
// pipe, waits for a connection or sleeps does not, also with a terminal as its standard input.
func TestAwaitsUser(t *testing.T) {
	needPython(t)
	const connection = "import socket; s = socket.create_server(('127.0.0.1', 0)); s.settimeout(1000); s.accept()"
	const twoFiles = "import select; select.select([0, 5], [], [])"
	scripts := map[string]bool{
		"input('name: ')":                                              true,
		"import readline; input('name: ')":                             true,
		"import pdb; pdb.set_trace(); x = 1":                           true,
		"import sys; sys.stdin.readline()":                             true,
		"import os; r, w = os.pipe(); os.read(r, 1)":                   false,
		"import time; time.sleep(1000)":                                false,
		twoFiles:                                                       false,
		"import select; p = select.poll(); p.register(0, 1); p.poll()": true,
		connection: false,
	}
	running := make(map[string]*exec.Cmd)
	for script := range scripts {
		terminal, err := openTerminal(nil, false)
		if err != nil {
			t.Fatal(err)
		}
		defer terminal.slave.Close()
		defer terminal.master.Close()
		cmd := exec.Command("python3", "-c", script)
		if script == twoFiles {
			cmd.ExtraFiles = []*os.File{terminal.slave, terminal.slave, terminal.slave}
		}
		cmd.Stdin, cmd.Stdout = terminal.slave, terminal.slave
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running[script] = cmd
		defer cmd.Wait()
		defer cmd.Process.Kill()
	}
	for script, want := range scripts {
		pid := running[script].Process.Pid
		dir := fmt.Sprintf("/proc/%d", pid)
		eventually(t, func() error {
			if s, ok := readStatus(dir); !ok || s.state != 'S' || s.caught == 0 {
				return fmt.Errorf("%s: %+v", script, s)
			}
			if got := new(Vitals).Look(Processes(), []int{pid})[pid].Held; got != want {
				return fmt.Errorf("%s: waits for a user: %v", script, got)
			}
			return nil
		})
	}
}
