//go:build torch

package local_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/torch"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// writeShards writes shards of numbers from 0 to records-1, of random lengths, some of which are 0.
func writeShards(t *testing.T, dir string, records int) (shards int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "shards"), 0o755); err != nil {
		t.Fatal(err)
	}
	chance := rand.New(rand.NewPCG(1, 2))
	for record := 0; record < records || shards%2 == 0; shards++ {
		var text strings.Builder
		for n := chance.IntN(120) * chance.IntN(2); n > 0 && record < records; n-- {
			fmt.Fprintln(&text, record)
			record++
		}
		path := filepath.Join(dir, "shards", fmt.Sprintf("%03d.txt", shards))
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return shards
}

// TestTorchStream checks a script that trains on shards of unknown length: processes, an agent and
// a master are killed, workers join and leave, and the job is suspended and resumed. Every record
// is in the model once in each epoch, by the count of the processes, the master's, and the audit.
func TestTorchStream(t *testing.T) {
	const records = 8000
	for i, python := range torch.Pythons(t) {
		t.Run(python.Name, func(t *testing.T) {
			dir := t.TempDir()
			shards := writeShards(t, dir, records)
			j := scriptIn(t, python, "streams.py", dir, []string{strconv.Itoa(records), "0.1", strconv.Itoa(2 * i)},
				"--max_workers=4", "--heartbeat_timeout=5s")
			pids := j.whole(3)
			more := func(n int) {
				t.Helper()
				before := len(j.steps())
				eventually(t, "steps", runLimit, func() bool {
					if s := j.status(); s.State == "Failed" || s.State == "Succeeded" {
						t.Fatalf("%s after %d of %d records: %s", s.State, s.RecordsDone, 2*records, s.Reason)
					}
					return len(j.steps()) >= before+n
				})
			}
			syscall.Kill(pids[1], syscall.SIGKILL)
			j.whole(3, pids[1])
			if s := j.status(); s.RecordsTotal != 0 || s.RecordsDone == 0 || s.Epoch != 1 || s.Epochs != 2 {
				t.Errorf("status %v, want records of the first of 2 epochs, and no total", s)
			}
			if out, err := exec.Command(program, "audit", j.name).CombinedOutput(); err != nil {
				t.Errorf("audit: %v\n%s", err, out)
			}
			j.scale(4)
			j.whole(4)
			j.kill(pod(j.status(), wire.Role_WORKER, 1), syscall.SIGKILL)
			more(30)
			for _, pid := range j.roles("master") {
				syscall.Kill(pid, syscall.SIGKILL)
			}
			more(30)
			if out, err := exec.Command(program, "suspend", j.name).CombinedOutput(); err != nil {
				t.Fatalf("suspend: %v\n%s", err, out)
			}
			j.wait()
			j.enough()
			if out, err := exec.Command(program, "resume", j.name).CombinedOutput(); err != nil {
				t.Fatalf("resume: %v\n%s", err, out)
			}
			eventually(t, "end of the job", runLimit, func() bool { return j.status().State == "Succeeded" })
			s := j.status()
			if s.RecordsDone != 2*records || s.RecordsTotal != 0 || s.Restarts != 0 {
				t.Errorf("%d of %d records, want %d; %d failures counted: %s", s.RecordsDone, s.RecordsTotal,
					2*records, s.Restarts, s.Reason)
			}
			if !strings.Contains(j.log(""), fmt.Sprintf("counted %d right, 0 wrong", records)) {
				t.Error("no process has counted every record twice")
			}
			want := fmt.Sprintf("PROVED: each record of %d shards, from the first to the last, was applied exactly "+
				"once in each of 2 epochs", shards)
			out, err := exec.Command(program, "audit", j.name).CombinedOutput()
			if err != nil || !strings.Contains(string(out), want) ||
				!strings.Contains(string(out), "16,000 records are in the model") {
				t.Errorf("audit: %v\n%s", err, out)
			}
			j.nobody()
		})
	}
}

// A job of another name continues a checkpoint in the middle of a shard. Other shards, or as many
// of other names, are refused, with the names of what differs.
func TestTorchStreamResumes(t *testing.T) {
	const records = 600
	pythons := torch.Pythons(t)
	python := pythons[len(pythons)-1]
	dir := t.TempDir()
	writeShards(t, dir, records)
	args := func(pause string) []string { return []string{strconv.Itoa(records), pause, "0"} }
	j := scriptIn(t, python, "streams.py", dir, args("0.05"), "--num_workers=2")
	eventually(t, "checkpoint", time.Minute, func() bool {
		commits, _ := filepath.Glob(filepath.Join(dir, "checkpoint.pt/commit-*/commit.json"))
		return len(commits) > 0
	})
	j.cmd.Process.Signal(os.Interrupt)
	j.end(130)
	renamed := filepath.Join(dir, "shards", "000.txt")
	if err := os.Rename(renamed, filepath.Join(dir, "shards", "zzz.txt")); err != nil {
		t.Fatal(err)
	}
	other := scriptIn(t, python, "streams.py", dir, args("0"), "--num_workers=2")
	if s := other.end(1); !strings.Contains(s.Reason, "digest=") || !strings.Contains(s.Reason, "cannot be resumed") {
		t.Errorf("%s: %s; want that the names of the shards differ", s.State, s.Reason)
	}
	if err := os.Rename(filepath.Join(dir, "shards", "zzz.txt"), renamed); err != nil {
		t.Fatal(err)
	}
	again := scriptIn(t, python, "streams.py", dir, args("0"), "--num_workers=2")
	again.enough()
	if s := again.end(0); s.State != "Succeeded" || s.Restarts != 0 {
		t.Errorf("%s: %s", s.State, s.Reason)
	}
	if !strings.Contains(again.log(""), fmt.Sprintf("counted %d right, 0 wrong", records)) {
		t.Error("no process has counted every record twice")
	}
	if out, err := exec.Command(program, "audit", again.name).CombinedOutput(); err != nil {
		t.Errorf("audit: %v\n%s", err, out)
	}
	again.nobody()
}
