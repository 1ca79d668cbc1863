package master

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/task"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// sums gives the shards of a config contents.
func sums(c *Config) {
	c.Training = slices.Clone(c.Training)
	for i := range c.Training {
		c.Training[i].Bytes, c.Training[i].Sum = 1000, uint64(i+1)
	}
}

// A job does not continue from a checkpoint of other data, or of another cut of it: the difference
// is reported, and nothing is trained.
func TestResumedOnOtherData(t *testing.T) {
	for _, c := range []struct {
		name, want string // want is empty: the job continues
		change     func(*Config)
	}{
		{"the same", "", func(*Config) {}},
		{"another seed without shuffle", "", func(c *Config) { c.Job.Seed++ }},
		{"other contents", " has the same size and number of records, and other contents; restore " +
			"the data and the flags", func(c *Config) {
			c.Training[0].Sum = 99
		}},
		{"another size", " has 1001 bytes, and had 1000", func(c *Config) { c.Training[0].Bytes++ }},
		{"more records", " records, and had ", func(c *Config) { c.Training[0].Count++ }},
		{"another file", "new was not there", func(c *Config) {
			c.Training = append(c.Training, task.Shard{Name: "new", Count: 5})
		}},
		{"larger tasks", "--num_minibatches_per_task), and had ", func(c *Config) { c.Job.NumMinibatchesPerTask++ }},
		{"shuffled", "--shuffle=true, and was false", func(c *Config) { c.Job.Shuffle = !c.Job.Shuffle }},
		{"an earlier end", "--max_step), and was to end after 0", func(c *Config) { c.Job.MaxStep = 3 }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := reign(t, func(config *Config) {
					sums(config)
					rest(t, config)
					c.change(config)
				})
				if c.want == "" {
					r.join()
					if s := r.look(); s.RecordsDone != 2 {
						t.Errorf("the job is at %v, want it to continue from the checkpoint", s)
					}
					return
				}
				<-r.ended
				if r.err == nil || !strings.Contains(r.err.Error(), c.want) ||
					!strings.Contains(r.err.Error(), "checkpoint 2 of "+r.config.Job.CheckpointDir) {
					t.Errorf("the job ends with %v, want %q", r.err, c.want)
				}
				if n := len(r.pods.created); n > 0 {
					t.Errorf("%d pods were created", n)
				}
			})
		})
	}
}

// A master that comes back to other data than the previous one has indexed ends the job: a part
// of the old data is in the model. The data that is measured counts, too.
func TestMasterComesBackToOtherData(t *testing.T) {
	for _, c := range []struct {
		name, want string
		change     func(*Config)
	}{
		{"the same", "", func(*Config) {}},
		{"training", " has the same size and number of records, and other contents; restore it", func(c *Config) {
			c.Training[0].Sum = 99
		}},
		{"validation", "measured has 901 bytes, and had 900", func(c *Config) { c.Validation[0].Bytes++ }},
		{"a file less", "is not there", func(c *Config) { c.Training = c.Training[1:] }},
		{"more files than a record names", "some of the 151 data files have changed", func(c *Config) {
			c.Training[149].Sum++
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				r := reign(t, func(config *Config) {
					sums(config)
					config.Validation = []task.Shard{{Name: "measured", Count: 9, Bytes: 900, Sum: 1}}
					for strings.HasPrefix(c.name, "more") && len(config.Training) < 150 {
						config.Training = append(config.Training,
							task.Shard{Name: strings.Repeat("x", len(config.Training)), Count: 1})
					}
					if len(config.Training) == 1 {
						config.Training = append(config.Training, task.Shard{Name: "more", Count: 3, Bytes: 9, Sum: 9})
					}
				})
				r.join()
				r.task(0)
				r.ends(Leave, ErrLeft)
				r.config.Training, r.config.Validation = slices.Clone(r.config.Training),
					slices.Clone(r.config.Validation)
				c.change(&r.config)
				r.follow()
				if c.want == "" {
					r.rejoin(1)
					if s := r.look(); s.State != "Running" {
						t.Errorf("the job is at %v", s)
					}
					return
				}
				<-r.ended
				if r.err == nil || !strings.Contains(r.err.Error(),
					"the data has changed since the job began: ") || !strings.Contains(r.err.Error(), c.want) {
					t.Errorf("the job ends with %v, want %q", r.err, c.want)
				}
			})
		})
	}
}

// The processes of a program declare one data set, from the first one to the last one after a
// resume. Another is refused with both.
func TestAnotherDataSetIsRefused(t *testing.T) {
	g := &program{work: &work{dataset: &wire.Dataset{Size: 6400, Epochs: 2, Shuffle: true, Seed: 5, Task: 100}}}
	for want, other := range map[string]*wire.Dataset{
		"7680 records":         {Size: 7680, Epochs: 2, Shuffle: true, Seed: 5, Task: 100},
		"epochs=3":             {Size: 6400, Epochs: 3, Shuffle: true, Seed: 5, Task: 100},
		"shuffle=false":        {Size: 6400, Epochs: 2, Seed: 5, Task: 100},
		"seed=6":               {Size: 6400, Epochs: 2, Shuffle: true, Seed: 6, Task: 100},
		"120 records per task": {Size: 6400, Epochs: 2, Shuffle: true, Seed: 5, Task: 120},
	} {
		err := g.declare(other)
		if status.Code(err) != codes.FailedPrecondition || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(),
				"the job trains on 6400 records, epochs=2, shuffle=true, seed=5, 100 records per task") {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if err := g.declare(&wire.Dataset{Size: 6400, Epochs: 2, Shuffle: true, Seed: 5, Task: 100}); err != nil {
		t.Errorf("the same data set: %v", err)
	}
}
