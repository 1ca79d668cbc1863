package master

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// another is a job that shares a directory by mistake.
var another = checkpoint.Owner{Job: "other-uid", Name: "other"}

// claimed has a job claim a directory of this machine.
func claimed(t *testing.T, dir string, by checkpoint.Owner, permit checkpoint.Permit) checkpoint.Claim {
	t.Helper()
	c, err := checkpoint.Dir{Files: checkpoint.Local(dir)}.Claim(by, permit, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return c.Claim
}

// left returns the commits that were begun in a directory.
func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "commit-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range found {
		names = append(names, filepath.Base(name))
	}
	return names
}

// A job whose checkpoint directory another job owns ends before it has a pod, and says who owns it.
// One that is dead, or is confirmed not to exist, is no obstacle; nor is a job that this one
// resumes.
func TestDirectoryOfAnotherJob(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Config)
		runs   bool
	}{
		"it may run": {nil, false},
		"it runs": {func(c *Config) {
			c.Look = func(o checkpoint.Owner) checkpoint.Standing { return checkpoint.Alive }
		}, false},
		"it is suspended": {func(c *Config) {
			c.Look = func(o checkpoint.Owner) checkpoint.Standing { return checkpoint.Suspended }
		}, false},
		"it is dead": {func(c *Config) {
			c.Look = func(o checkpoint.Owner) checkpoint.Standing {
				return map[checkpoint.Owner]checkpoint.Standing{another: checkpoint.Dead}[o]
			}
		}, true},
		"the user confirms that it no longer exists": {func(c *Config) { c.Job.CheckpointDirTakeOver = true }, true},
		"this one resumes it": {func(c *Config) {
			c.Resume, c.Ancestors = true, []string{another.Job}
		}, true},
		"this one resumes a third": {func(c *Config) {
			c.Resume, c.Ancestors = true, []string{"third"}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				dir := t.TempDir()
				claimed(t, dir, another, checkpoint.Permit{})
				w := start(t, func(m *Config) {
					m.Job.CheckpointDir, m.Job.CheckpointSteps = dir, 1
					if c.change != nil {
						c.change(m)
					}
				})
				synctest.Wait()
				if c.runs {
					if n := len(w.pods.running()); n != 3 {
						t.Errorf("%d pods run", n)
					}
					return
				}
				<-w.ended
				if !errors.Is(w.err, checkpoint.ErrOwned) ||
					!strings.Contains(w.err.Error(), "--checkpoint_dir="+dir) ||
					!strings.Contains(w.err.Error(), another.String()) {
					t.Error(w.err)
				}
				if n := len(w.pods.created); n > 0 || w.status.State != string(job.Failed) {
					t.Errorf("%d pods were created, the job is %s", n, w.status.State)
				}
			})
		})
	}
}

// A job owns its directory while it runs and while it is suspended, and releases it when it has
// ended.
func TestDirectoryIsReleased(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		r := reign(t, ringJob(func(c *Config) { c.Job.CheckpointDir, c.Job.CheckpointSteps = dir, 1000 }))
		refuses := func(want bool) {
			t.Helper()
			err := checkpoint.Dir{Files: checkpoint.Local(dir)}.MayClaim(another, checkpoint.Permit{})
			if refused := errors.Is(err, checkpoint.ErrOwned); refused != want || err != nil && !refused {
				t.Fatal(err)
			}
		}
		refuses(true)
		r.ends(Suspend, ErrSuspended)
		refuses(true)
		r.follow()
		time.Sleep(time.Minute)
		refuses(true)
		r.JobClient.Stop(r.Context(), &wire.StopRequest{})
		<-r.ended
		refuses(false)
		if r.status.State != string(job.Stopped) {
			t.Error(r.status)
		}
	})
}

// A job whose directory a user has given to another job ends when it would write its next
// checkpoint. It removes nothing of the other.
func TestDirectoryIsTakenOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		w, p := startRing(t, func(c *Config) {
			c.Job.CheckpointDir, c.Job.CheckpointSteps, c.Job.KeepCheckpointMax = dir, 1, 1
		})
		next := claimed(t, dir, another, checkpoint.Permit{TakeOver: true})
		name := checkpoint.Name{Number: 1, Claim: next.Tag()}
		if _, err := checkpoint.WriteShard(checkpoint.Dir{Files: checkpoint.Local(dir)}, name, "shard",
			checkpoint.Part{Values: make([]float32, 4)}); err != nil {
			t.Fatal(err)
		}
		first := w.task(0)
		p[0].says(func(r *wire.HeartbeatRequest) { of(first, 2)(r); r.Version, r.Generation = 7, 1 })
		p[0].says(func(r *wire.HeartbeatRequest) { r.Cut = copied(1, 7) })
		<-w.ended
		if !errors.Is(w.err, checkpoint.ErrOwned) || !strings.Contains(w.err.Error(), another.String()) {
			t.Error(w.err)
		}
		if names := left(t, dir); len(names) != 1 || names[0] != name.String() {
			t.Errorf("left are %v", names)
		}
	})
}

// A job continues from a commit of its own lineage only, even if the other's has the same records
// of the same data.
func TestResumesItsOwnCheckpoints(t *testing.T) {
	for _, c := range []struct {
		job       string
		claimed   bool
		ancestors []string
		// number of the checkpoint that it continues from
		want int64
	}{
		{"uid", true, nil, 5},
		{"before", true, []string{"first", "before"}, 5},
		{"before", false, nil, 5}, // from before claims
		{"other-uid", true, []string{"before"}, 2},
	} {
		conf := config(t)
		rest(t, &conf)
		dir := conf.Job.CheckpointDir
		d := checkpoint.Dir{Files: checkpoint.Local(dir)}
		own, err := d.ReadCommit(checkpoint.Name{Number: 2})
		if err != nil {
			t.Fatal(err)
		}
		own.Job, own.JobName, own.Number = c.job, "other", 5
		if c.claimed {
			own.Claim = claimed(t, dir, checkpoint.Owner{Job: c.job, Name: "other"}, checkpoint.Permit{}).Tag()
			conf.Job.CheckpointDirTakeOver = true
		}
		shard, err := checkpoint.WriteShard(d, own.Name(), "shard", checkpoint.Part{Values: make([]float32, 4)})
		own.Shards = []checkpoint.Shard{shard}
		if err := errors.Join(err, d.WriteCommit(*own)); err != nil {
			t.Fatal(err)
		}
		conf.Ancestors = c.ancestors
		m, err := newMaster(conf)
		if err != nil {
			t.Fatal(err)
		}
		m.prepareAndStart(t.Context())
		if m.stage.Over() || m.checkpoints.newest().Number != c.want {
			t.Errorf("%+v: %v, %+v", c, m.stage.Err(), m.checkpoints.newest())
		}
	}
}

// The files of an abandoned checkpoint are removed, also those of a slow holder: it would fill the
// disk.
func TestGivenUpCheckpointIsRemoved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		w, p := startRing(t, func(c *Config) { c.Job.CheckpointDir, c.Job.CheckpointSteps = dir, 1 })
		p[0].hears("world 1.1 [0 1] from []")
		first := w.task(0)
		p[0].says(func(r *wire.HeartbeatRequest) { of(first, 2)(r); r.Version, r.Generation = 7, 1 })
		cut := p[0].word().GetCut()
		write := func(number int64) {
			t.Helper()
			name := checkpoint.Name{Number: number, Claim: cut.Claim}
			if _, err := checkpoint.WriteShard(checkpoint.Dir{Files: checkpoint.Local(dir)}, name,
				"shard", checkpoint.Part{Values: make([]float32, 4)}); err != nil {
				t.Fatal(err)
			}
		}
		write(1)
		p[0].says(func(r *wire.HeartbeatRequest) {
			r.Cut = &wire.CutReport{Number: 1, Phase: wire.CutPhase_FAILED, Error: "no space left on device"}
		})
		synctest.Wait()
		if names := left(t, dir); len(names) > 0 {
			t.Errorf("after it is given up: %v", names)
		}
		write(1) // late
		time.Sleep(2 * checkpointPause)
		synctest.Wait()
		if next := p[0].word().GetCut(); next.GetNumber() != 2 {
			t.Fatalf("worker 0 hears of checkpoint %v", next)
		}
		if names := left(t, dir); len(names) > 0 {
			t.Errorf("while the next one is made: %v", names)
		}
		write(2) // and it is never reported
		w.JobClient.Stop(w.Context(), &wire.StopRequest{})
		<-w.ended
		if names := left(t, dir); len(names) > 0 {
			t.Errorf("at the end of the job: %v", names)
		}
	})
}

// A checkpoint is begun only when its number is stored: the next master would give it out again.
func TestNumbersAreWrittenBeforeTheyAre(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := reign(t, ringJob(func(c *Config) { c.Job.CheckpointDir, c.Job.CheckpointSteps = t.TempDir(), 1 }))
		p := []*peer{r.peer(0), r.peer(1)}
		p[0].hears("world 1.1 [0 1] from []")
		first := r.task(0)
		r.memory.fail(errors.New("no API server"))
		p[0].says(func(b *wire.HeartbeatRequest) { of(first, 1)(b); b.Version, b.Generation = 6, 1 })
		time.Sleep(time.Minute)
		if word := p[0].word(); word != nil {
			t.Errorf("worker 0 hears %q, and the next master would not know of it", say(word))
		}
		if c := r.look().Checkpoint; !strings.Contains(c.Problem, "its number could not be written") {
			t.Error(c)
		}
		r.memory.fail(nil)
		time.Sleep(time.Minute)
		if cut := p[0].word().GetCut(); cut.GetNumber() < 2 {
			t.Errorf("worker 0 hears of checkpoint %v", cut)
		}
	})
}

// While the directory cannot be read, the status says that it is not known whether there are
// checkpoints, and why.
func TestUnreadDirectory(t *testing.T) {
	bubble(t, func(t *testing.T) {
		dir := t.TempDir()
		disk := &failing{Files: checkpoint.Local(dir)}
		disk.broken.Store(true)
		w := start(t, func(c *Config) {
			c.Job.CheckpointDir, c.Job.CheckpointSteps = dir, 1
			c.Open = func(string) (checkpoint.Dir, error) { return checkpoint.Dir{Files: disk}, nil }
		})
		if c := w.look().Checkpoint; !c.Unread ||
			!strings.Contains(c.Problem, "reading "+dir+" fails: ") ||
			!strings.Contains(c.Problem, "no route to host") {
			t.Error(c)
		}
		disk.broken.Store(false)
		time.Sleep(time.Minute)
		if c := w.look().Checkpoint; c.Unread || c.Problem != "" {
			t.Error(c)
		}
	})
}

// A file, or a directory that cannot be read, with the name of a commit keeps no job from its own
// checkpoints.
func TestStrangersInTheDirectory(t *testing.T) {
	for name, put := range map[string]func(dir string) error{
		"a file": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "commit-00009999"), nil, 0o644)
		},
		"a file with a name nearly right": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "commit-9999"), nil, 0o644)
		},
		"a link that leads nowhere": func(dir string) error {
			return os.Symlink("commit-00009999", filepath.Join(dir, "commit-00009999"))
		},
		"a directory for a record": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, "commit-00009999", "commit.json"), 0o755)
		},
		"a record of nothing": func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, "commit-00009999"), 0o755),
				os.WriteFile(filepath.Join(dir, "commit-00009999", "commit.json"), nil, 0o644))
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := start(t, func(c *Config) {
					rest(t, c)
					if err := put(c.Job.CheckpointDir); err != nil {
						t.Fatal(err)
					}
				})
				if s := w.look(); s.Checkpoint.GetNumber() != 2 || s.RecordsDone != 2 {
					t.Errorf("the job is at %v", s)
				}
			})
		})
	}
}
