package local_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protojson"

	"github.com/elasticdl/elasticdl/test/count"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

var (
	campaignJobs = flag.Int("campaign", 4, "TestCampaign: number of jobs of each strategy")
	campaignSeed = flag.Uint64("campaign_seed", 1, "TestCampaign: seed of the first job")
)

// countedRecords is the number of records of the jobs of TestCampaign, in three files.
const countedRecords = 3001 + 500 + 499

// modelSeed chooses the initial values of the model that counts.
const modelSeed = 7

// stillLimit is the time that a job may stand still without saying in its status what it waits for.
const stillLimit = 10 * time.Second

// TestCampaign trains jobs of the model that counts. Each is disturbed by faults that its seed
// draws: kills and stops of its processes, planned stops, a full disk, a second job in its
// checkpoint directory. Every record is in the model once, and a job that stands still says why.
func TestCampaign(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	if err := count.Write(data, 3001, 500, 499); err != nil {
		t.Fatal(err)
	}
	for strategy, servers := range map[string]int{"servers": 2, "ring": 0} {
		campaign(t, strategy, counted, func(c *contest) []string {
			return []string{
				"train", fmt.Sprint("--num_ps_pods=", servers), "--num_workers=3", "--num_epochs=1",
				fmt.Sprintf("--model_def=count.records%d.custom_model", countedRecords),
				fmt.Sprint("--seed=", modelSeed),
				"--training_data=" + data, "--minibatch_size=16", "--num_minibatches_per_task=4",
				"--checkpoint_interval=1s", "--checkpoint_dir=" + filepath.Join(c.disk, "checkpoints"),
			}
		})
	}
}

// campaign runs the jobs of one kind, two at a time. Command returns the command of a job without
// its name; verify checks the model of one that has succeeded.
func campaign(t *testing.T, kind string, verify func(*contest), command func(*contest) []string) {
	for i := range *campaignJobs {
		seed := *campaignSeed + uint64(i)
		t.Run(fmt.Sprintf("%s/%d", kind, seed), func(t *testing.T) {
			t.Parallel()
			c := newContest(t, seed)
			c.start = command(c)
			c.play()
			if s := c.look(); job.State(s.State) != job.Succeeded {
				t.Errorf("%s with %d of %d records: %s", s.State, s.RecordsDone, s.RecordsTotal, s.Reason)
			} else {
				verify(c)
				if out, code := c.try("audit", contestJob); code != 0 {
					t.Errorf("elasticdl audit: exit code %d\n%s", code, out)
				}
			}
		})
	}
}

// contest is one job of the campaign, with its disturbances.
type contest struct {
	t *testing.T
	// ELASTICDL_HOME
	home string
	// a file system of 2 MB of its own, if this process may mount one
	disk string
	// the command that starts the job, without its name
	start []string
	// faults of jobs of this kind only
	faults []func()
	chance *rand.Rand
	// what was done and what it answered
	log bytes.Buffer

	// the newest; nil: none yet
	status *wire.JobStatus
	// when the job last got on, said what it waits for, or was disturbed
	moved time.Time
}

// contestJob is the name of each job; its state directory is its own.
const contestJob = "contest"

func newContest(t *testing.T, seed uint64) *contest {
	c := &contest{t: t, home: t.TempDir(), chance: rand.New(rand.NewPCG(seed, 27))}
	c.disk = filepath.Join(c.home, "disk")
	if err := os.Mkdir(c.disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", c.disk, "tmpfs", 0, "size=2m"); err == nil {
		t.Cleanup(func() { syscall.Unmount(c.disk, syscall.MNT_DETACH) })
	} else if os.Geteuid() == 0 {
		t.Fatalf("mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		c.command("stop", contestJob)
		if t.Failed() {
			t.Logf("%s\n%s", c.log.String(), c.command("logs", contestJob))
		}
		eventually(t, "end of all processes", 3*time.Minute, c.abandoned)
	})
	return c
}

// abandoned reports whether no process of a job is left: each holds the lock of its directory.
func (c *contest) abandoned() bool {
	locks, err := filepath.Glob(filepath.Join(c.home, "jobs", "*", "lock"))
	if err != nil {
		c.t.Error(err)
	}
	return !slices.ContainsFunc(locks, func(name string) bool {
		file, err := os.Open(name)
		if err != nil {
			return false // it was removed
		}
		defer file.Close()
		return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
	})
}

// submit starts a job with the contest's command.
func (c *contest) submit(name string) (out string, code int) {
	flags := []string{c.start[0], "--runtime=local", "--detach", "--job_name=" + name}
	return c.try(append(flags, c.start[1:]...)...)
}

// command runs a command of the program and returns what it printed.
func (c *contest) command(args ...string) string {
	out, _ := c.try(args...)
	return out
}

// try runs a command of the program, and returns what it printed and its exit code.
func (c *contest) try(args ...string) (out string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Env = append(os.Environ(), "ELASTICDL_HOME="+c.home)
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else if err != nil {
		c.t.Errorf("elasticdl %s: %v", strings.Join(args, " "), err)
	}
	if args[0] != "status" && args[0] != "logs" {
		fmt.Fprintf(&c.log, "elasticdl %s: exit code %d\n%s", strings.Join(args, " "), code, text)
	}
	return string(text), code
}

// play starts the job, disturbs it, and returns when it has ended.
func (c *contest) play() {
	c.t.Helper()
	c.hold(30 * time.Millisecond)
	if out, code := c.submit(contestJob); code != 0 {
		c.t.Fatalf("the job is refused: %s", out)
	}
	c.await("training", func(s *wire.JobStatus) bool { return s.RecordsDone > 0 })
	for range 2 + c.chance.IntN(5) {
		c.pause(700 * time.Millisecond)
		if s := c.look(); job.State(s.State) == job.Succeeded {
			break
		}
		faults := append([]func(){
			c.kill, c.kill, c.kill, c.freeze, c.suspend, c.stop, c.terminate, c.fill, c.share, c.scale,
		}, c.faults...)
		faults[c.chance.IntN(len(faults))]()
	}
	c.hold(0)
	c.await("the end", func(s *wire.JobStatus) bool { return job.State(s.State).Ended() })
}

// counted checks that the trained model has each record once.
func counted(c *contest) {
	c.t.Helper()
	model := filepath.Join(c.home, "jobs", contestJob, "model", "model.safetensors")
	tally, err := count.Verify(model, countedRecords, modelSeed, 1)
	if err != nil {
		c.t.Error(err)
	} else if done := c.status.RecordsDone; !tally.Exact() || done != countedRecords {
		c.t.Errorf("the job has succeeded with %d records done, but %v", done, tally)
	}
}

// hold makes each minibatch take at least pause; 0 lets the job end.
func (c *contest) hold(pause time.Duration) {
	err := count.Hold(c.home, pause)
	if pause == 0 { // for scripts
		err = errors.Join(err, os.WriteFile(filepath.Join(c.disk, "enough"), nil, 0o644))
	}
	if err != nil {
		c.t.Fatal(err)
	}
}

// pause waits for a random time of up to most.
func (c *contest) pause(most time.Duration) { time.Sleep(time.Duration(c.chance.Int64N(int64(most)))) }

// note notes a disturbance.
func (c *contest) note(format string, args ...any) {
	fmt.Fprintf(&c.log, format+"\n", args...)
	c.moved = time.Now()
}

// look reads the status of the job, and checks that a job that stands still says why. A job that a
// planned stop has ended, or whose status is being written, returns the status before.
func (c *contest) look() *wire.JobStatus {
	text, code := c.try("status", contestJob, "-o", "json")
	s := new(wire.JobStatus)
	if code == 3 || (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), s) != nil {
		return c.status
	}
	before := c.status
	c.status = s
	still := before != nil && before.State == s.State && before.RecordsDone == s.RecordsDone &&
		before.Version == s.Version
	if !still || s.Waiting != "" {
		c.moved = time.Now()
	}
	if since := time.Since(c.moved); since > stillLimit && s.State == string(job.Running) {
		c.t.Errorf("the job stands still for %v and does not say why: %s", since.Round(time.Second), text)
		c.moved = time.Now()
	}
	return s
}

// await looks at the job until a condition is true.
func (c *contest) await(what string, is func(*wire.JobStatus) bool) {
	c.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(3 * time.Minute); ; <-tick.C {
		switch s := c.look(); {
		case s != nil && is(s), s != nil && job.State(s.State).Ended():
			return
		case time.Now().After(deadline):
			c.t.Fatalf("no %s: %v", what, s)
		}
	}
}

// pods returns the pids of the job's running processes, by name.
func (c *contest) pods() (names []string, pids map[string]int) {
	pids = make(map[string]int)
	s := c.look()
	if s == nil {
		return nil, pids
	}
	for _, p := range s.Pods {
		if p.State == "Running" && p.Pid > 0 {
			name := fmt.Sprintf("%v-%d", p.Role, p.Index)
			names, pids[name] = append(names, name), int(p.Pid)
		}
	}
	slices.Sort(names)
	return names, pids
}

// kill kills one of the job's processes, or two at once.
func (c *contest) kill() {
	names, pids := c.pods()
	for range min(1+c.chance.IntN(2), len(names)) {
		name := names[c.chance.IntN(len(names))]
		c.note("kill %s (pid %d): %v", name, pids[name], c.signal(pids[name], syscall.SIGKILL))
	}
}

// freeze stops a process for a while.
func (c *contest) freeze() {
	names, pids := c.pods()
	if len(names) == 0 {
		return
	}
	name := names[c.chance.IntN(len(names))]
	c.note("stop %s (pid %d): %v", name, pids[name], c.signal(pids[name], syscall.SIGSTOP))
	c.pause(1500 * time.Millisecond)
	c.signal(pids[name], syscall.SIGCONT)
}

// signal sends a signal to a process of the contest: its number may be another process's by now.
func (c *contest) signal(pid int, signal syscall.Signal) error {
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil || !slices.Contains(strings.Split(string(text), "\x00"), "ELASTICDL_HOME="+c.home) {
		return errors.Join(err, fmt.Errorf("process %d is none of the job's", pid))
	}
	return syscall.Kill(pid, signal)
}

func (c *contest) suspend() {
	c.note("suspend")
	c.try("suspend", contestJob)
	c.resume()
}

func (c *contest) stop() {
	c.note("stop")
	c.try("stop", contestJob)
	c.resume()
}

// terminate ends the process that supervises the job, by a signal that can be caught or not.
func (c *contest) terminate() {
	_, pids := c.pods()
	launcher := parent(pids["MASTER-0"])
	if launcher <= 1 {
		return
	}
	signal := []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGKILL}[c.chance.IntN(4)]
	c.note("%v to the launcher (pid %d): %v", signal, launcher, c.signal(launcher, signal))
	c.await("end of the job", func(s *wire.JobStatus) bool { return job.State(s.State).Ended() })
	c.resume()
}

// resume continues the job unless it has succeeded.
func (c *contest) resume() {
	c.pause(300 * time.Millisecond)
	s := c.look()
	if s != nil && job.State(s.State) == job.Succeeded {
		return
	}
	if out, code := c.try("resume", contestJob, "--detach"); code != 0 && c.look().State != string(job.Succeeded) {
		c.t.Errorf("resume: exit code %d: %s", code, out)
	}
	c.moved = time.Now()
}

// fill makes the disk of the checkpoints full for a while.
func (c *contest) fill() {
	path := filepath.Join(c.disk, "fill")
	f, err := os.Create(path)
	if err != nil {
		return
	}
	for chunk := make([]byte, 16<<10); err == nil; {
		_, err = f.Write(chunk)
	}
	f.Close()
	c.note("full disk: %v", err)
	c.pause(2 * time.Second)
	os.Remove(path)
}

// share starts a second job in the same checkpoint directory, which must be refused with the name
// of the first. Of a script its agents claim the checkpoint: the second job is refused when its
// processes ask for it. If the first has ended meanwhile, the second may train on, and then it does
// nothing that the first has not done.
func (c *contest) share() {
	c.t.Helper()
	c.await("training, to which the directory belongs", func(s *wire.JobStatus) bool {
		return job.State(s.State) == job.Running && s.RecordsDone > 0
	})
	c.note("a second job in the directory")
	out, code := c.submit("other")
	if code == 0 {
		out, code = c.try("wait", "other", "--timeout=90s")
		defer c.command("stop", "other")
	}
	switch {
	case job.State(c.look().State).Ended():
	case code == 0 || code == 124:
		c.t.Errorf("a second job in the checkpoint directory of a running job is accepted: %s", out)
	case !strings.Contains(out, contestJob):
		c.t.Errorf("the refusal does not name the job that owns the directory: %s", out)
	}
}

func (c *contest) scale() {
	n := 1 + c.chance.IntN(4)
	c.note("scale to %d", n)
	c.try("scale", contestJob, fmt.Sprint("--num_workers=", n))
}

// parent returns the pid of the parent of a process, 0 if there is none.
func parent(pid int) int {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) < 2 {
		return 0
	}
	ppid, _ := strconv.Atoi(fields[1])
	return ppid
}
