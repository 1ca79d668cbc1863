package program

import (
	"bufio"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// A process gets SIGTERM once, for any number of requests with any grace period.
func TestOneSIGTERM(t *testing.T) {
	b := newBench(t, Options{Command: []string{"sh", "-c",
		`trap 'echo term' TERM; trap 'echo usr' USR1; echo ready; while :; do sleep 0.02; done`}}, nil)
	g := b.start(1)
	await(t, "the traps", func() bool { return strings.Contains(b.out.String(), "ready") })
	for _, grace := range []time.Duration{time.Minute, time.Hour, time.Second, time.Hour} {
		g.Kill(0, grace)
		await(t, "the signal", func() bool { return strings.Contains(b.out.String(), "term") })
	}
	g.Signal(syscall.SIGUSR1) // handled after those before
	await(t, "the last signal", func() bool { return strings.Contains(b.out.String(), "usr") })
	if n := strings.Count(b.out.String(), "term"); n != 1 {
		t.Errorf("it got SIGTERM %d times", n)
	}
	g.Kill(0, 0)
	if e := b.ends(g)[0]; e.Signal != 9 || !e.Stopped {
		t.Errorf("%+v", e)
	}
}

// SIGKILL comes when the longest of the graces is over: a worker that is to leave while its
// processes start again gives them its grace period.
func TestTheLongestGraceCounts(t *testing.T) {
	for name, graces := range map[string][]time.Duration{
		"one":    {time.Minute},
		"longer": {time.Second, time.Minute},
		"less":   {time.Minute, time.Second},
		"many":   {time.Second, time.Minute, time.Millisecond, 59 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("sh", "-c", `trap '' TERM; echo ready; exec sleep 1000`)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			pid := cmd.Process.Pid
			defer syscall.Kill(-pid, syscall.SIGKILL)
			if line, err := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
				t.Fatal(line, err)
			}
			synctest.Test(t, func(t *testing.T) {
				it := &process{pid: pid}
				for _, grace := range graces {
					it.end(syscall.SIGTERM, grace)
				}
				time.Sleep(time.Minute - time.Millisecond)
				var status syscall.WaitStatus
				if ended, err := syscall.Wait4(pid, &status, syscall.WNOHANG, nil); ended != 0 || err != nil {
					t.Fatalf("it has ended before its time: %v, %v", status, err)
				}
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status.Signal() != syscall.SIGKILL {
					t.Errorf("it ended with %v, %v", status, err)
				}
			})
		})
	}
}
