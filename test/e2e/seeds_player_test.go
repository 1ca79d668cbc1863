//go:build e2e

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/seeds"
)

// player runs the commands of a tutorial in one shell, as a reader who copies them there.
type player struct {
	*namespace
	*replica
	seed *seeds.Seed
	// commands that were run
	done int

	// of the reader, who has it as home directory too
	dir string
	in  io.Writer
	// exit status of each command
	status chan string
}

// newPlayer starts the shell of a reader in a directory with the commands that the tutorial
// expects on PATH. Whatever it names without a namespace is in the test's.
func newPlayer(t *testing.T, name string, ns *namespace, c *replica, environment ...string) *player {
	t.Helper()
	seed, err := seeds.Read(name)
	if err != nil {
		t.Fatal(err)
	}
	p := &player{namespace: ns, replica: c, seed: seed, dir: t.TempDir(), status: make(chan string)}
	if err := os.Chmod(p.dir, 0o755); err != nil { // pods may mount a directory in it
		t.Fatal(err)
	}
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(p.dir, "kubeconfig")
	text, err := os.ReadFile(os.Getenv("KUBECONFIG"))
	if err == nil {
		err = os.WriteFile(kubeconfig, text, 0o600)
	}
	if err == nil {
		err = command("kubectl", "--kubeconfig="+kubeconfig, "config", "set-context", "--current",
			"--namespace="+ns.name)
	}
	if err != nil {
		t.Fatal(err)
	}
	environment = append(environment, "HOME="+p.dir, "KUBECONFIG="+kubeconfig, "PATH="+p.programs()+":"+
		os.Getenv("PATH"),
		"ELASTICDL_HOME="+filepath.Join(p.dir, "state"), "REPOSITORY="+repository,
		"DIGITS="+filepath.Join(repository, "examples/mnist/data"),
		"REGISTRY="+registry, "ELASTICDL_IMAGE="+image, "NODES="+strings.Join(c.names, " "), "GOFLAGS=-buildvcs=false")
	p.remote(repository, []string{"https://github.com/sql-machine-learning/", "https://github.com/wangkuiyi/"})
	p.start(environment)
	return p
}

// programs makes a directory with elasticdl, with a python as all readers have it, and with what
// elasticdl asks of minikube: that an image is loaded into the node.
func (p *player) programs() string {
	p.t.Helper()
	bin := filepath.Join(p.dir, "bin")
	python, err := exec.LookPath("python3")
	if err == nil {
		err = os.Mkdir(bin, 0o755)
	}
	if err == nil {
		err = os.Symlink(*elasticdl, filepath.Join(bin, "elasticdl"))
	}
	if err == nil {
		err = os.Symlink(python, filepath.Join(bin, "python"))
	}
	socket := filepath.Join(*cluster, p.names[0], "containerd.sock")
	load := "#!/bin/sh\n[ \"$1 $2 $3 $4\" = \"-p minikube image load\" ] || exit 64\nexec ctr -a " +
		socket + " -n k8s.io images import \"$5\"\n"
	if err == nil {
		err = os.WriteFile(filepath.Join(bin, "minikube"), []byte(load), 0o755)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return bin
}

// remote makes a repository of git of examples/elasticdl, which git clone finds at addresses of
// the internet.
func (p *player) remote(repository string, addresses []string) {
	p.t.Helper()
	at := filepath.Join(p.dir, "remote")
	script := `set -e
cp -r "$1"/examples/elasticdl "$2"
git init -q "$2" && cd "$2" && git add . && git -c user.name=e2e -c user.email=e2e@localhost commit -q -m files`
	cmd := exec.CommandContext(p.t.Context(), "bash", "-c", script, "-", repository, filepath.Join(at, "elasticdl.git"))
	cmd.Env = append(os.Environ(), "HOME="+p.dir)
	err := os.MkdirAll(at, 0o755)
	if err == nil {
		var out []byte
		if out, err = cmd.CombinedOutput(); err != nil {
			err = fmt.Errorf("%w\n%s", err, out)
		}
	}
	config := fmt.Sprintf("[url %q]\n", "file://"+at+"/")
	for _, address := range addresses {
		config += fmt.Sprintf("\tinsteadOf = %s\n", address)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(p.dir, ".gitconfig"), []byte(config), 0o644)
	}
	if err != nil {
		p.t.Fatal(err)
	}
}

// start starts the shell, which ends with the test.
func (p *player) start(environment []string) {
	p.t.Helper()
	// which depend on the home directory
	for _, name := range []string{"GOCACHE", "GOMODCACHE", "GOPROXY", "GOTOOLCHAIN"} {
		out, err := exec.Command("go", "env", name).Output()
		if err != nil {
			p.t.Fatal(err)
		}
		environment = append(environment, name+"="+strings.TrimSpace(string(out)))
	}
	cmd := exec.Command("bash", "--norc", "--noprofile")
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), environment...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	from, to, err := os.Pipe()
	if err != nil {
		p.t.Fatal(err)
	}
	cmd.ExtraFiles = []*os.File{to}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	to.Close()
	p.in = in
	go func() {
		defer close(p.status)
		for lines := bufio.NewScanner(from); lines.Scan(); {
			select {
			case p.status <- lines.Text():
			case <-p.t.Context().Done():
			}
		}
	}()
	p.t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		cmd.Wait()
		from.Close()
	})
}

// prepares runs commands that are not the tutorial's, and returns what they print. None may fail.
func (p *player) prepares(commands string) string {
	p.t.Helper()
	out, failed := p.types(commands)
	if failed {
		p.t.Fatalf("%s failed\n%s", commands, out)
	}
	return out
}

// types runs commands in the reader's shell, and returns what they print.
func (p *player) types(commands string) (out string, failed bool) {
	p.t.Helper()
	file, printed := filepath.Join(p.dir, "typed.sh"), filepath.Join(p.dir, "printed")
	if err := os.WriteFile(file, []byte(commands+"\n"), 0o644); err != nil {
		p.t.Fatal(err)
	}
	fmt.Fprintf(p.in, ". '%s' </dev/null >'%s' 2>&1; echo $? >&3\n", file, printed)
	limit := time.NewTimer(2 * patience)
	defer limit.Stop()
	select {
	case status, alive := <-p.status:
		text, err := os.ReadFile(printed)
		if err != nil || !alive {
			p.t.Fatalf("%s: the shell has ended: %v\n%s", commands, err, text)
		}
		return string(text), status != "0"
	case <-limit.C:
		text, _ := os.ReadFile(printed)
		p.t.Fatalf("no end of a command in %v: %s\n%s", 2*patience, commands, text)
		return "", true
	}
}

// replaced returns a command with the test's registry in place of Google's.
func replaced(command string) string { return strings.ReplaceAll(command, "gcr.io", registry) }

// run runs the next command, with the tutorial's files that it names in the shell's directory.
func (p *player) run(c seeds.Command) (out string, failed bool) {
	p.t.Helper()
	commands := replaced(c.Text)
	if c.StandIn != nil {
		commands = c.StandIn.Instead
	}
	for name, text := range p.seed.Files {
		if !regexp.MustCompile(`(^|\s)` + regexp.QuoteMeta(name) + `(\s|$)`).MatchString(commands) {
			continue
		}
		at := p.prepares("pwd")
		if err := os.WriteFile(filepath.Join(strings.TrimSpace(at), name), []byte(text), 0o644); err != nil {
			p.t.Fatal(err)
		}
	}
	if commands == "" {
		p.t.Logf("%s:%d: %s\n(nothing: %s)", p.seed.Name, c.Line, c.Text, c.StandIn.Why)
		return "", false
	}
	began := time.Now()
	out, failed = p.types(commands)
	why := ""
	if c.StandIn != nil {
		why = fmt.Sprintf("\n(%s: %s)", c.StandIn.Instead, c.StandIn.Why)
	}
	p.t.Logf("%s:%d, %v: %s%s\n%s", p.seed.Name, c.Line, time.Since(began).Round(10*time.Millisecond), c.Text, why, out)
	return out, failed
}

// runTo runs all commands up to and with the next that begins with a text, and returns its output.
// None may fail.
func (p *player) runTo(begins string) (out string) {
	p.t.Helper()
	for p.done < len(p.seed.Commands) {
		c := p.seed.Commands[p.done]
		p.done++
		out, failed := p.run(c)
		if failed {
			p.t.Fatalf("%s:%d failed: %s", p.seed.Name, c.Line, c.Text)
		}
		if strings.HasPrefix(c.Text, begins) {
			return out
		}
	}
	p.t.Fatalf("%s has no further command that begins with %q", p.seed.Name, begins)
	return ""
}

// sees runs all commands up to and with the next that begins with a text, and that one again until
// every pattern matches a line that it prints.
func (p *player) sees(begins string, patterns ...string) (out string) {
	p.t.Helper()
	last := p.done
	for !strings.HasPrefix(p.seed.Commands[last].Text, begins) {
		if last++; last == len(p.seed.Commands) {
			p.t.Fatalf("%s has no further command that begins with %q", p.seed.Name, begins)
		}
	}
	if last > p.done {
		p.runTo(p.seed.Commands[last-1].Text)
	}
	c := p.seed.Commands[last]
	commands := replaced(c.Text)
	if c.StandIn != nil {
		commands = c.StandIn.Instead
	}
	out = p.repeats(commands, fmt.Sprintf("%s:%d, %s", p.seed.Name, c.Line, c.Text), patterns)
	p.done = last + 1
	p.t.Logf("%s:%d: %s\n%s", p.seed.Name, c.Line, c.Text, out)
	return out
}

// repeats runs commands again until every pattern matches a line that they print. what names them.
func (p *player) repeats(commands, what string, patterns []string) (out string) {
	p.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(300 * time.Millisecond) {
		out, _ = p.types(commands)
		missing := lacks(out, patterns)
		if missing == "" {
			return out
		}
		if time.Now().After(deadline) {
			missed(p.t, "line of "+missing+" of "+what, patience, out)
		}
	}
}

// lacks returns the first pattern that matches no line of a text, or "".
func lacks(text string, patterns []string) string {
	for _, pattern := range patterns {
		if len(grep(text, pattern)) == 0 {
			return pattern
		}
	}
	return ""
}

// shows waits until kubectl get pods prints what a page shows.
func (p *player) shows(patterns ...string) {
	p.t.Helper()
	out := p.repeats("kubectl get pods", "kubectl get pods", patterns)
	p.t.Logf("kubectl get pods\n%s", out)
}

// over checks that every command was run.
func (p *player) over() {
	p.t.Helper()
	for _, c := range p.seed.Commands[p.done:] {
		p.t.Errorf("%s:%d was not run: %s", p.seed.Name, c.Line, c.Text)
	}
}

// isRunning returns the pattern of the line of a running pod.
func isRunning(pod string) string { return `^` + pod + ` +1/1 +Running +0 ` }
