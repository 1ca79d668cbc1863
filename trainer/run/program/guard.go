package program

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// watchdog kills the processes of a program when the agent dies, for any reason. It is a small
// shell that reads from a pipe whose only write end is the agent's. It knows their process groups;
// then it looks for those that were started in the moment of the agent's death, or are in sessions
// of their own, by a variable that all of them have from their start. Then it removes a temporary
// log directory, unless it has an error file.
type watchdog struct {
	mu  sync.Mutex
	cmd *exec.Cmd
	in  *os.File
}

const guardScript = `trap '' TERM INT HUP QUIT USR1 USR2
all= over=
while read -r op id; do
  case $op in
  +) all="$all $id" ;;
  -) rest=; for i in $all; do [ "$i" = "$id" ] || rest="$rest $i"; done; all=$rest ;;
  .) over=1 ;;
  esac
done
for i in $all; do kill -9 "-$i"; done 2>/dev/null
[ -z "$over" ] || exit 0
for round in 1 2 3; do
  found=$(grep -l -F -e "$1" /proc/[0-9]*/environ 2>/dev/null)
  for i in $found; do i=${i#/proc/}; kill -9 "${i%/environ}"; done 2>/dev/null
done
[ -n "$2" ] || exit 0
for file in "$2"/*/*/error.json; do [ ! -e "$file" ] || exit 0; done
rm -rf "$2"`

// startWatchdog starts a watchdog of processes whose initial environment has a text that no other
// has. If the agent dies, the watchdog also removes the directory temporary, unless it has an error
// file; "": it removes none. It returns an error if there is no shell; a nil watchdog does nothing.
func startWatchdog(mark, temporary string) (*watchdog, error) {
	out, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command("sh", "-c", guardScript, "elasticdl-watchdog", mark, temporary)
	cmd.Stdin, cmd.Dir, cmd.Env = out, "/", []string{"PATH=" + os.Getenv("PATH")}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	children.starting.RLock()
	defer children.starting.RUnlock()
	if err := cmd.Start(); err != nil {
		in.Close()
		return nil, fmt.Errorf("start a shell that ends processes if this one is killed: %w", err)
	}
	children.know(cmd.Process.Pid)
	return &watchdog{cmd: cmd, in: in}, nil
}

// watch makes the watchdog kill the process group if the agent dies before forget is called.
func (g *watchdog) watch(group int) { g.send('+', group) }

// forget removes an ended group from the watchdog's list: its number may be reused.
func (g *watchdog) forget(group int) { g.send('-', group) }

func (g *watchdog) send(op rune, group int) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	fmt.Fprintf(g.in, "%c %d\n", op, group)
}

// close ends the watchdog, and the process groups that it watches.
func (g *watchdog) close() {
	if g == nil {
		return
	}
	// nothing dies: daemons of the program stay
	g.send('.', 0)
	g.in.Close()
	g.cmd.Wait()
	children.forget(g.cmd.Process.Pid)
}
