package command

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"
)

// signalEnv makes the test binary a command that waits for signals, and prints the causes. With
// "takes" it handles a second request itself.
const signalEnv = "ELASTICDL_TEST_SIGNAL"

// hearSignals is the main function of such a command.
func hearSignals(takes bool) {
	ctx := UntilSignal()
	var hurry <-chan struct{}
	if takes {
		hurry = Hurried(ctx)
	}
	os.Stdout.WriteString("ready\n")
	<-ctx.Done()
	os.Stdout.WriteString(context.Cause(ctx).Error() + "\n")
	<-hurry
	os.Stdout.WriteString("hurried\n")
	os.Exit(7)
}

// TestMain runs the tests; the same binary is also a command that waits for signals.
func TestMain(m *testing.M) {
	if what := os.Getenv(signalEnv); what != "" {
		hearSignals(what == "takes")
	}
	os.Exit(m.Run())
}

// Each signal that asks a command to end is the cause of the end of its context. Ctrl-\ prints no
// stacks.
func TestSignalsEndACommand(t *testing.T) {
	for signal, want := range map[syscall.Signal]string{
		syscall.SIGINT: "by Ctrl-C (SIGINT)", syscall.SIGTERM: "by SIGTERM",
		syscall.SIGHUP: "as its terminal was closed (SIGHUP)", syscall.SIGQUIT: `by Ctrl-\ (SIGQUIT)`,
	} {
		t.Run(signal.String(), func(t *testing.T) {
			cmd, out := startListener(t, "takes")
			// in quick succession, as timeout(1) sends them, they are one request
			for range 2 {
				syscall.Kill(cmd.Process.Pid, signal)
			}
			if said := out(); said != want+"\n" {
				t.Errorf("it ends %q, want %q", said, want)
			}
			cmd.Process.Kill()
			cmd.Wait()
		})
	}
}

// A second, later request ends a command at once, as if the signal had not been caught, or is
// handled by the command. Then a third one ends the command at once.
func TestSecondSignal(t *testing.T) {
	for what, want := range map[string]string{"takes": "exit status 7", "plain": "signal: interrupt"} {
		t.Run(what, func(t *testing.T) {
			cmd, out := startListener(t, what)
			syscall.Kill(cmd.Process.Pid, syscall.SIGINT)
			out()
			heard := make(chan string, 1)
			go func() { heard <- out() }() // "" at its end
			tick := time.NewTicker(100 * time.Millisecond)
			defer tick.Stop()
			for waits := true; waits; {
				select {
				case said := <-heard:
					waits = false
					if takes := said == "hurried\n"; takes != (what == "takes") {
						t.Errorf("then it says %q", said)
					}
				case <-tick.C:
					// until it is not the same request any more
					syscall.Kill(cmd.Process.Pid, syscall.SIGINT)
				}
			}
			if err := cmd.Wait(); err == nil || err.Error() != want {
				t.Errorf("it ended with %v, want %s", err, want)
			}
		})
	}
}

// Under nohup(1) a closed terminal is ignored, and SIGTERM is not.
func TestNohup(t *testing.T) {
	cmd, out := startListener(t, "takes", "nohup")
	syscall.Kill(cmd.Process.Pid, syscall.SIGHUP)
	syscall.Kill(cmd.Process.Pid, syscall.SIGTERM)
	if said := out(); said != "by SIGTERM\n" {
		t.Errorf("it ends %q", said)
	}
	cmd.Process.Kill()
	cmd.Wait()
}

// startListener starts a command that waits for signals, behind other commands, and returns a
// function that returns its next output.
func startListener(t *testing.T, what string, behind ...string) (*exec.Cmd, func() string) {
	t.Helper()
	words := append(behind, os.Args[0])
	cmd := exec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), signalEnv+"="+what)
	// Where this test is started with a signal ignored, as under nohup(1), the command would be,
	// too: a signal that is caught is the default in a child.
	caught := make(chan os.Signal, 1)
	signal.Notify(caught, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	defer signal.Stop(caught)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
	next := func() string {
		var line strings.Builder
		for b := make([]byte, 1); !strings.HasSuffix(line.String(), "\n"); {
			if n, _ := out.Read(b); n == 0 {
				break
			}
			line.Write(b)
		}
		return line.String()
	}
	if said := next(); said != "ready\n" {
		t.Fatalf("it says %q", said)
	}
	return cmd, next
}

// The signal that has ended a process is reported by its name.
func TestSignalled(t *testing.T) {
	for s, want := range map[os.Signal]string{syscall.SIGTERM: "by SIGTERM", os.Interrupt: "by Ctrl-C (SIGINT)"} {
		if got := signalled(s).Error(); got != want {
			t.Errorf("%v: %q, want %q", s, got, want)
		}
	}
}
