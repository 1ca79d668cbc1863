//go:build torch

package local_test

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/torch"
	"github.com/elasticdl/elasticdl/trainer/run/python"
)

// TestTorchInstalledPackage checks that a script has the agent's package where another version is
// installed, as by the wheel of another release. If Python ignores PYTHONPATH, the script fails and
// says why.
func TestTorchInstalledPackage(t *testing.T) {
	for _, p := range torch.Pythons(t) {
		t.Run(p.Name, func(t *testing.T) {
			dir := t.TempDir()
			if out, err := exec.Command(p.Path, "-m", "venv", "--without-pip", "--system-site-packages",
				dir).CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			found, err := exec.Command(p.Path, "-c",
				"import os, torch; print(os.path.dirname(os.path.dirname(torch.__file__)))").Output()
			if err != nil {
				t.Fatal(err)
			}
			sites, err := filepath.Glob(filepath.Join(dir, "lib/python3*/site-packages"))
			if err != nil || len(sites) != 1 {
				t.Fatalf("%v, %v", sites, err)
			}
			installed := filepath.Join(sites[0], "elasticdl")
			other, err := fs.Sub(python.Files(), "elasticdl")
			if err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(installed, other); err != nil {
				t.Fatal(err)
			}
			script := filepath.Join(dir, "main.py")
			for name, text := range map[string]string{
				filepath.Join(sites[0], "torch.pth"): string(found),
				filepath.Join(installed, "nccl.py"):  "raise ImportError('of another version')",
				script:                               "import elasticdl\n\nelasticdl.init()\nprint('from', elasticdl.__file__)\n",
			} {
				if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			command := []string{"run", "--num_workers=1", "--", filepath.Join(dir, "bin/python3")}
			j := launch(t, append(command, script)...)
			s := j.end(0)
			log := j.log("")
			if s.State != "Succeeded" || !strings.Contains(log, "from ") || strings.Contains(log, "from "+installed) {
				t.Errorf("%s, want the agent's package, not %s", s.State, installed)
			}
			module, err := fs.ReadFile(other, "nccl.py")
			if err != nil {
				t.Fatal(err)
			}
			module = append(module, "# of another version\n"...)
			if err := os.WriteFile(filepath.Join(installed, "nccl.py"), module, 0o644); err != nil {
				t.Fatal(err)
			}
			j = launch(t, append(command, "-E", script)...)
			j.end(1)
			if log := j.log(""); !strings.Contains(log, installed+" is not that of this job's agent") {
				t.Error("a package of another version is not refused")
			}
		})
	}
}
