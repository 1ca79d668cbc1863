package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/run/agent"
	"github.com/elasticdl/elasticdl/trainer/runtime/local"
)

// streamsOf returns the streams of a command that runs a program in the foreground. With asJSON,
// standard output is reserved for the job's final status.
func streamsOf(cmd *cobra.Command, j *job.Job, asJSON bool) *local.Display {
	d := &local.Display{Stdout: cmd.OutOrStdout(), Stderr: cmd.ErrOrStderr()}
	if asJSON {
		d.Stdout = d.Stderr
	}
	if f, ok := cmd.InOrStdin().(*os.File); ok && f != nil && stdinWithheld(j, false) == "" {
		d.Stdin = f
	}
	return d
}

// stdinWithheld returns the reason why standard input is not passed to a program, "" if it is
// passed.
func stdinWithheld(j *job.Job, detached bool) string {
	n, err := agent.Processes(j.Program.Processes, runtime.NumCPU())
	switch {
	case detached:
		return "a job that outlives its command has none"
	case j.NumWorkers > 1:
		return fmt.Sprintf("the program has %d workers, and one process would take it from the others", j.NumWorkers)
	case err == nil && n > 1:
		return fmt.Sprintf("the program has %d processes, and one would take it from the others", n)
	}
	return ""
}

// checkStdin applies if standard input is not passed on, such as for a detached job. It refuses a
// command that reads its program from standard input, and adds a note if there is input in a pipe.
func checkStdin(cmd *cobra.Command, c *job.Command, detached bool) error {
	why := stdinWithheld(c.Job, detached)
	if !c.Job.Runs() || why == "" {
		return nil
	}
	if command := c.Job.Program.Command; !c.Job.Program.Module && readsProgram(command) {
		return fmt.Errorf("%s: it reads the program from standard input, which is not passed on: "+
			"%s; give the program as a file", strings.Join(command, " "), why)
	}
	if f, ok := cmd.InOrStdin().(*os.File); ok && f != nil && piped(f) {
		c.Notes = append(c.Notes, "standard input is not passed on: "+why)
	}
	return nil
}

// shell matches the names of shells and of Python, which read their program from standard input if
// no other is given.
var shell = regexp.MustCompile(`^(?:(?:ba|da|z|k|a)?sh|python(?:\d+(?:\.\d+)*)?)$`)

// readsProgram reports whether a command is an interpreter that reads its program from standard
// input: bash -s, python3 -, or an interpreter without arguments.
func readsProgram(command []string) bool {
	if len(command) == 0 || !shell.MatchString(filepath.Base(command[0])) {
		return false
	}
	for i, word := range command[1:] {
		switch {
		case word == "-", word == "-s" && !strings.HasPrefix(filepath.Base(command[0]), "python"):
			return true
		case !strings.HasPrefix(word, "-"):
			before := command[i]
			return slices.Contains([]string{"-X", "-W", "-o"}, before) && i+2 == len(command)
		case strings.ContainsAny(strings.TrimLeft(word, "-"), "cmVh") && !strings.HasPrefix(word, "--"),
			word == "--version", word == "--help":
			return false
		}
	}
	return true
}

// pipedWait limits the wait for the first byte of a pipe, in milliseconds.
const pipedWait = 100

// piped reports whether the command's standard input is a file or pipe that has input.
func piped(f *os.File) bool {
	info, err := f.Stat()
	fd := int(f.Fd())
	switch {
	case err != nil || term.IsTerminal(fd):
		return false
	case info.Mode().IsRegular():
		return info.Size() > 0
	case info.Mode()&(os.ModeNamedPipe|os.ModeSocket) == 0: // /dev/null
		return false
	}
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, pipedWait)
	if n < 1 || err != nil {
		return false
	}
	waiting, err := unix.IoctlGetInt(fd, unix.TIOCINQ)
	return err == nil && waiting > 0
}
