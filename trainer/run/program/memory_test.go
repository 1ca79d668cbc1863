package program

import (
	"fmt"
	"testing"
)

func TestResident(t *testing.T) {
	for text, want := range map[string]int64{
		"1000 250 90 1 0 300 0\n": 250 * 4096, "1000 0 0": 0,
		"": 0, "1000": 0, "1000 x": 0, "1000 -1 0": 0, "1 9223372036854775807 0": 0,
	} {
		if got := residentOf([]byte(text), 4096); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// FuzzResident: whatever /proc says, memory is not negative, and nothing panics.
func FuzzResident(f *testing.F) {
	f.Add([]byte("1000 250 90 1 0 300 0\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if n := residentOf(text, 4096); n < 0 || n%4096 != 0 {
			t.Errorf("%q: %d", text, n)
		}
	})
}

// The memory of a rank has that of its descendants: here of a child with 30 MB of its own.
func TestMemoryOfProcesses(t *testing.T) {
	b := newBench(t, Options{Command: []string{"/bin/sh", "-c",
		`if [ $RANK = 1 ]; then
			(head -c 30000000 /dev/zero; sleep 1000) | tail -c 30000000 >/dev/null; fi; sleep 1000`},
		NoPython: true}, nil)
	pids := b.start(2).Pids()
	const most = 20 << 20
	eventually(t, func() error {
		memory := Memory(Processes(), append(pids, 1<<30))
		if memory[pids[0]] <= 0 || memory[pids[0]] > most {
			t.Fatalf("a shell that sleeps has %d bytes", memory[pids[0]])
		}
		if _, ok := memory[1<<30]; ok {
			t.Fatalf("a process that does not exist has %d bytes", memory[1<<30])
		}
		if memory[pids[1]] > 30000000 {
			return nil
		}
		return fmt.Errorf("memory %v of %v", memory, pids)
	})
}
