package master

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// vouches asks the master of a program for a claim on a checkpoint, and makes it, as an agent does.
func (w *world) vouches(path string) {
	w.Helper()
	reply, err := w.Vouch(speak.As(w.Context(), worker(0)), &wire.VouchRequest{Path: path})
	var me checkpoint.Owner
	if err == nil {
		err = json.Unmarshal([]byte(reply.Owner), &me)
	}
	if err == nil {
		_, err = checkpoint.Dir{Files: checkpoint.Local(path)}.Claim(me, checkpoint.Permit{}, time.Now())
	}
	if err != nil {
		w.Fatal(err)
	}
}

// A job that has ended, in whatever way, releases the checkpoints that its program has claimed. One
// that is suspended owns them still, and what another job has claimed since is not touched.
func TestProgramReleasesItsCheckpoints(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(w *world, a, b *peer, notices chan Notice)
		want job.State
	}{
		"succeeded": {func(_ *world, a, b *peer, _ chan Notice) {
			for _, p := range []*peer{a, b} {
				p.says(func(r *wire.HeartbeatRequest) { r.Finished = 1 })
			}
		}, job.Succeeded},
		"failed": {func(_ *world, a, b *peer, _ chan Notice) {
			a.fails(1, &wire.Failure{Code: 1})
			b.fails(1)
		}, job.Failed},
		"stopped": {func(w *world, _, _ *peer, _ chan Notice) {
			w.Stop(w.Context(), &wire.StopRequest{})
		}, job.Stopped},
		"suspended": {func(_ *world, _, _ *peer, notices chan Notice) { notices <- Suspend }, job.Suspended},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				dir, notices := t.TempDir(), make(chan Notice, 1)
				w := start(t, func(c *Config) {
					runJob(0)(c)
					c.Notices = notices
				})
				a, b := w.peer(0), w.peer(1)
				a.enters("1 [0 1] from []")
				own, taken, gone := filepath.Join(dir, "own.pt"), filepath.Join(dir, "taken.pt"),
					filepath.Join(dir, "gone.pt")
				for _, path := range []string{own, own, taken, gone} {
					w.vouches(path)
				}
				if err := os.RemoveAll(gone); err != nil {
					t.Fatal(err)
				}
				claimed(t, taken, another, checkpoint.Permit{TakeOver: true})
				c.end(w, a, b, notices)
				synctest.Wait()
				w.leave()
				if got := job.State(w.status.State); got != c.want {
					t.Fatalf("the job is %s, want %s", got, c.want)
				}
				owned, err := (checkpoint.Dir{Files: checkpoint.Local(own)}).Owned()
				if err != nil || (owned == nil) != c.want.Ended() {
					t.Errorf("the checkpoint is owned by %v (%v)", owned, err)
				}
				if owned, err = (checkpoint.Dir{Files: checkpoint.Local(taken)}).Owned(); err != nil || owned == nil ||
					owned.Owner != another {
					t.Errorf("the checkpoint that was taken over is owned by %v (%v)", owned, err)
				}
				if _, err := os.Stat(gone); err == nil {
					t.Error("a directory of claims that was removed is made again")
				}
			})
		})
	}
}

// --checkpoint_dir_take_over confirms that one owner no longer exists: that which is found. A job
// that takes the checkpoint over later is not robbed.
func TestProgramTakesOverOnce(t *testing.T) {
	third := checkpoint.Owner{Job: "third-uid", Name: "third"}
	for _, confirmed := range []bool{false, true} {
		t.Run(fmt.Sprint("confirmed ", confirmed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				kept := &memory{}
				w := start(t, func(c *Config) {
					runJob(0)(c)
					c.Job.CheckpointDirTakeOver, c.Memory = confirmed, kept
					c.Look = func(checkpoint.Owner) checkpoint.Standing { return checkpoint.Alive }
				})
				w.peer(0)
				w.peer(1)
				synctest.Wait()
				standing := func(path string, owner checkpoint.Owner) checkpoint.Standing {
					text, err := json.Marshal(owner)
					if err != nil {
						t.Fatal(err)
					}
					reply, err := w.Vouch(speak.As(t.Context(), worker(0)),
						&wire.VouchRequest{Path: path, Owner: string(text)})
					if err != nil || reply.TakeOver != confirmed {
						t.Fatalf("%v, %v", reply, err)
					}
					return checkpoint.Standing(reply.Standing)
				}
				gone := map[bool]checkpoint.Standing{false: checkpoint.Alive, true: checkpoint.Dead}[confirmed]
				for _, c := range []struct {
					path  string
					owner checkpoint.Owner
					want  checkpoint.Standing
				}{
					{"/a.pt", another, gone}, {"/a.pt", another, gone},
					{"/a.pt", third, checkpoint.Alive}, {"/b.pt", third, gone}, {"/b.pt", another, checkpoint.Alive},
				} {
					if got := standing(c.path, c.owner); got != c.want {
						t.Errorf("%s of %s: standing %v, want %v", c.path, c.owner.Name, got, c.want)
					}
				}
				synctest.Wait()
				if paths, err := Claimed(kept.read()); err != nil || len(paths) != 2 ||
					paths[0] != "/a.pt" || paths[1] != "/b.pt" {
					t.Errorf("the record has the claims on %q (%v)", paths, err)
				}
			})
		})
	}
}
