package local

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// The owner of a checkpoint directory that is a job of this machine lives as long as its launcher,
// and longer while it is suspended.
func TestStandingOfAnOwner(t *testing.T) {
	gone := exec.Command("sleep", "1000")
	if err := gone.Start(); err != nil {
		t.Fatal(err)
	}
	useHome(t)
	d := home(t, "owner")
	launched := func(pid int) checkpoint.Owner { return d.owner("uid", pid) }
	alive, dead := launched(os.Getpid()), launched(gone.Process.Pid)
	if err := gone.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	gone.Wait() // it was killed
	if alive.Started == "" {
		t.Skip("this system does not tell when processes start")
	}
	for name, c := range map[string]struct {
		owner checkpoint.Owner
		uid   string    // of the job that is there; "": none is
		state job.State // "": it has no status
		want  checkpoint.Standing
	}{
		"its launcher lives":               {alive, "uid", job.Running, checkpoint.Alive},
		"and its state is deleted":         {alive, "", "", checkpoint.Alive},
		"its launcher has ended":           {dead, "uid", job.Running, checkpoint.Dead},
		"before it had a status":           {dead, "uid", "", checkpoint.Dead},
		"it has failed":                    {dead, "uid", job.Failed, checkpoint.Dead},
		"it is suspended":                  {dead, "uid", job.Suspended, checkpoint.Suspended},
		"its state is deleted":             {dead, "", "", checkpoint.Dead},
		"another job of the name is there": {dead, "later", job.Running, checkpoint.Dead},
		"another one, which is suspended":  {dead, "later", job.Suspended, checkpoint.Dead},
		"from before the machine was booted": {func() checkpoint.Owner {
			o := dead
			o.Boot = "before"
			return o
		}(), "uid", job.Running, checkpoint.Unknown},
		"in a container": {func() checkpoint.Owner {
			o := dead
			o.PIDs = "pid:[1]"
			return o
		}(), "", "", checkpoint.Unknown},
		"whose state is not known": {func() checkpoint.Owner {
			o := dead
			o.State = ""
			return o
		}(), "", "", checkpoint.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			err := errors.Join(os.RemoveAll(string(d)), os.MkdirAll(string(d), privateDir))
			if c.uid != "" {
				err = errors.Join(err, d.write("uid", []byte(c.uid+"\n")))
			}
			if c.state != "" {
				err = errors.Join(err, d.store(&wire.JobStatus{State: string(c.state)}))
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := Standing(c.owner); got != c.want {
				t.Errorf("%d, want %d", got, c.want)
			}
		})
	}
}
