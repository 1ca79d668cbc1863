package image

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// The agent is installed, executable for every user, also if it existed before: a container
// that restarts finds its first copy. A binary without an agent installs itself.
func TestInstall(t *testing.T) {
	dir := t.TempDir()
	binary, agent := programs(t, 1)[0].Path, write(t, filepath.Join(dir, "agent"), "the agent")
	both := filepath.Join(dir, "both")
	if err := AddAgent(binary, agent, both); err != nil {
		t.Fatal(err)
	}
	for from, what := range map[string]string{both: agent, binary: binary} {
		to := t.TempDir()
		want, err := os.ReadFile(what)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := Install(from, to); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(filepath.Join(to, "elasticdl"))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s installs %d bytes, %v; want those of %s", from, len(got), err, what)
		}
		if info, _ := os.Stat(filepath.Join(to, "elasticdl")); info.Mode().Perm() != 0o755 {
			t.Errorf("%s installs a file of mode %v", from, info.Mode())
		}
		if all, _ := os.ReadDir(to); len(all) != 1 {
			t.Errorf("left behind: %v", all)
		}
	}
	if err := Install(both, filepath.Join(dir, "none")); err == nil {
		t.Error("installed where there is nothing")
	}
}

// elasticdl is compiled with an agent, which is a worker's program and is small: each pod of a
// program copies it.
func TestCompileElasticDL(t *testing.T) {
	dir := t.TempDir()
	platform := "linux/" + runtime.GOARCH
	all, err := Compile(t.Context(), "../../../cmd/elasticdl", dir, []string{platform}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	if err := Install(all[0].Path, to); err != nil {
		t.Fatal(err)
	}
	agent := filepath.Join(to, "elasticdl")
	info, err := os.Stat(agent)
	if err != nil || info.Size() > 30e6 {
		t.Errorf("the agent: %d bytes, %v; want at most 30 MB", info.Size(), err)
	}
	out, err := exec.CommandContext(t.Context(), agent, "worker", "--index=0").CombinedOutput()
	if err == nil || !strings.Contains(string(out), "elasticdl worker: --master_address=: expected") {
		t.Errorf("its worker: %v, %q", err, out)
	}
}

// A binary with an agent is an executable of the same modules, and always of the same bytes. Damage
// of the agent is found before a pod runs it.
func TestAddAgent(t *testing.T) {
	dir := t.TempDir()
	binary := programs(t, 1)[0]
	agent := write(t, filepath.Join(dir, "agent"), "the agent")
	var made [][]byte
	for _, name := range []string{"one", "two"} {
		path := filepath.Join(dir, name)
		if err := AddAgent(binary.Path, agent, path); err != nil {
			t.Fatal(err)
		}
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, content)
	}
	if !bytes.Equal(made[0], made[1]) {
		t.Error("the same files make other bytes")
	}
	one := filepath.Join(dir, "one")
	if f, err := elf.Open(one); err != nil {
		t.Error(err)
	} else {
		f.Close()
	}
	was, err := binary.BOM()
	if err != nil {
		t.Fatal(err)
	}
	if b, err := Inspect(one); err != nil {
		t.Error(err)
	} else if bill, err := b.BOM(); err != nil || !bytes.Equal(bill, was) {
		t.Errorf("the bill of materials is another, %v:\n%s", err, bill)
	}
	at := bytes.LastIndex(made[0][:bytes.LastIndex(made[0], []byte(agentName))], []byte(agentName)) + len(agentName)
	made[0][at+3] ^= 1
	damaged := write(t, filepath.Join(dir, "damaged"), string(made[0]))
	to := t.TempDir()
	if err := Install(damaged, to); err == nil {
		t.Error("a damaged agent is installed")
	}
	if all, _ := os.ReadDir(to); len(all) != 0 {
		t.Errorf("left behind: %v", all)
	}
}
