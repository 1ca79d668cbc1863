//go:build torch

package local_test

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/elasticdl/elasticdl/test/torch"
)

// TestTorchCampaign is [TestCampaign] with a script that uses the package and counts its records.
func TestTorchCampaign(t *testing.T) {
	const records = 800
	path, err := filepath.Abs(filepath.Join("testdata", "counts.py"))
	if err != nil {
		t.Fatal(err)
	}
	pythons := torch.Pythons(t)
	// the newest; other tests disturb scripts with each
	python := pythons[len(pythons)-1]
	campaign(t, "script", func(c *contest) {
		s := c.status
		if want := int64(2 * records); s.RecordsDone != want {
			c.t.Errorf("%d records are credited, expected %d", s.RecordsDone, want)
		}
		if text := c.command("logs", contestJob); !strings.Contains(text,
			fmt.Sprintf("counted %d right, 0 wrong", records)) {
			c.t.Error("no process has counted every record twice")
		}
	}, func(c *contest) []string {
		c.faults = []func(){c.killProcess, c.killProcess, c.killProcess}
		return []string{
			"run", "--num_workers=2", "--heartbeat_timeout=5s", "--",
			filepath.Join(filepath.Dir(python.Path), "python3"), path, c.disk, strconv.Itoa(records), "0.5",
		}
	})
}

// killProcess kills a process of the script, or a fork server.
func (c *contest) killProcess() {
	pids := pythonsOf(c.home)
	if len(pids) == 0 {
		return
	}
	pid := pids[c.chance.IntN(len(pids))]
	c.note("kill a process of the script (pid %d): %v", pid, c.signal(pid, syscall.SIGKILL))
}
