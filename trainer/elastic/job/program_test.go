package job

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Words before the program are flags; words after its name are its arguments.
func TestRunForms(t *testing.T) {
	for _, c := range []struct {
		args string
		want []string // the program
		ok   func(*Job) bool
	}{
		{"-- main.py --epochs=2", []string{"main.py", "--epochs=2"}, func(j *Job) bool {
			return j.Name == "main" && j.NumWorkers == 1 && j.MinWorkers == 0 && j.MaxWorkers == 0
		}},
		{"main.py --num_workers=5 -- -m", []string{"main.py", "--num_workers=5", "--", "-m"}, func(j *Job) bool {
			return j.NumWorkers == 1
		}},
		{"--num_workers=3 main.py", []string{"main.py"}, func(j *Job) bool { return j.NumWorkers == 3 }},
		{"--num-workers=3 main.py 4", []string{"main.py", "4"}, func(j *Job) bool { return j.NumWorkers == 3 }},
		{"--nproc-per-node=4 --max-restarts=3 main.py", []string{"main.py"}, func(j *Job) bool {
			return j.Program.Processes == "4" && j.Program.MaxRestarts == 3
		}},
		{"--nproc_per_node=gpu main.py", []string{"main.py"}, func(j *Job) bool {
			return j.Program.Processes == "gpu"
		}},
		{"--no_python true", []string{"true"}, func(j *Job) bool { return j.Program.NoPython && j.Name == "true" }},
		{"--module pkg.train --lr=1", []string{"pkg.train", "--lr=1"}, func(j *Job) bool {
			return j.Program.Module && j.Name == "train"
		}},
		{"--log_dir=logs --redirects=3 --tee=0:1,1:2 main.py", []string{"main.py"}, func(j *Job) bool {
			return j.Program.Redirects == "3" && j.Program.Tee == "0:1,1:2" && j.Program.LogDir == "logs"
		}},
		{"--redirects=3 main.py", []string{"main.py"}, func(j *Job) bool {
			return j.Program.Redirects == "3" && j.Program.LogDir == ""
		}},
		{"--start_method=spawn main.py", []string{"main.py"}, func(j *Job) bool {
			return j.Program.StartMethod == StartExec
		}},
		{"--start-method=forkserver main.py", []string{"main.py"}, func(j *Job) bool {
			return j.Program.StartMethod == StartFork
		}},
		{"--nproc_per_node=2 --local-ranks-filter=1,7 main.py", []string{"main.py"}, func(j *Job) bool {
			return j.Program.LocalRanks == "1,7"
		}},
		{"--nproc_per_node=auto --local_ranks_filter=3 main.py", []string{"main.py"}, func(j *Job) bool {
			return j.Program.LocalRanks == "3"
		}},
		{"--nnodes=1:4 main.py", []string{"main.py"}, func(j *Job) bool {
			return j.MinWorkers == 1 && j.NumWorkers == 4 && j.MaxWorkers == 4
		}},
		{"--max_workers=4 main.py", []string{"main.py"}, func(j *Job) bool {
			return j.NumWorkers == 1 && j.MaxWorkers == 4
		}},
		{"--nnodes=3 main.py", []string{"main.py"}, func(j *Job) bool {
			return j.MinWorkers == 3 && j.NumWorkers == 3 && j.MaxWorkers == 3
		}},
		{"--min_workers=5 main.py", []string{"main.py"}, func(j *Job) bool { return j.NumWorkers == 5 }},
		{"python3 -u train/My_Main.py", []string{"python3", "-u", "train/My_Main.py"}, func(j *Job) bool {
			return j.Name == "my-main"
		}},
		{"python -m model_zoo.mnist.mnist_pytorch",
			[]string{"python", "-m", "model_zoo.mnist.mnist_pytorch"}, func(j *Job) bool {
				return j.Name == "mnist-pytorch"
			}},
		{"s3://bucket/code/main.py", []string{"s3://bucket/code/main.py"}, func(j *Job) bool {
			return j.Name == "main"
		}},
		{"-- " + strings.Repeat("a", MaxName-1) + "-b.py",
			[]string{strings.Repeat("a", MaxName-1) + "-b.py"}, func(j *Job) bool {
				return j.Name == strings.Repeat("a", MaxName-1)
			}},
		{"-- ___", []string{"___"}, func(j *Job) bool { return j.Name == "program" }},
		{"--job_name=mine main.py", []string{"main.py"}, func(j *Job) bool { return j.Name == "mine" }},
		{"--gpus=2 main.py", []string{"main.py"}, func(j *Job) bool {
			return j.Worker.Request["nvidia.com/gpu"] == "2" && j.Worker.Limit == nil
		}},
		{"--gpus=2 --worker_resource_limit=cpu=8,gpu=2 main.py", []string{"main.py"}, func(j *Job) bool {
			return j.Worker.Limit.String() == "cpu=8,nvidia.com/gpu=2"
		}},
		{"--restart_on_join=checkpoint --checkpoint_file=/c/*.pt --restart_grace=3s " +
			"--gather-timeout=0s main.py", []string{"main.py"}, func(j *Job) bool {
			return j.Program.RestartOnJoin == RestartAtCheckpoint &&
				j.Program.Checkpoint == "/c/*.pt" && j.Program.Grace.Duration == 3*time.Second &&
				j.Program.Gather.Duration == 0
		}},
		{"--job_command=true", []string{"true"}, nil},
	} {
		got, err := Parse(Run, append([]string{"--runtime=local"}, strings.Fields(c.args)...))
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		j := got.Job
		if !slices.Equal(j.Program.Command, c.want) || c.ok != nil && !c.ok(j) || j.Type != Run ||
			j.Strategy != AllReduce || j.NumPS != 0 || j.ModelDef != "" ||
			slices.ContainsFunc(got.Notes, func(n string) bool {
				return n != "no effect with --runtime=local: --worker_resource_limit"
			}) {
			t.Errorf("%s: %+v with notes %q", c.args, j, got.Notes)
		}
		survives(t, j)
	}
}

// Every problem is reported at once, with its flag.
func TestRunProblems(t *testing.T) {
	_, err := Parse(Run, strings.Fields(
		`--runtime=local --nproc_per_node=many --nnodes=4:1 --max_restarts=-1 --module --no_python --start_method=thread --restart_on_join=checkpoint
		--checkpoint_file=[ --restart_grace=-1s --gather_timeout=-1s --hang_timeout=59s --role= --redirects=4 --tee=0:9 --program_sha256=abc --gpus=-1 --heartbeat_timeout=1ms --num_wrkers=3 -x --job_name=j`))
	want := []string{
		`--nnodes=4:1: expected N or MIN:MAX, as 2 or 1:4`,
		`--num_wrkers: unknown flag; did you mean --num_workers?`,
		`unexpected argument "-x": expected --name=value`,
		`the program is missing: give a script or a program after --, as in: elasticdl run -- python3 main.py --epochs=2`,
		`--nproc_per_node=many: expected a number, auto, cpu, gpu`,
		`--no_python: with --module the first word is a Python module; remove one of the two`,
		`--max_restarts=-1: expected 0 or more`,
		`--gpus=-1: expected 0 or more`,
		`--start_method=thread: expected fork, exec`,
		`--checkpoint_file=[: expected a path, with * and ? for any characters`,
		`--restart_grace=-1s: expected 0s or more`,
		`--gather_timeout=-1s: expected 0s or more`,
		`--hang_timeout=59s: expected 1m0s or more, or 0s: a shorter pause is no sign of a hang`,
		`--role=: expected a name`,
		`--program_sha256=abc: expected 64 hexadecimal digits`,
		`--redirects=4: expected 0, 1, 2 or 3, or one of them by local rank, as 0:3,1:1`,
		`--tee=0:9: expected 0, 1, 2 or 3, or one of them by local rank, as 0:3,1:1`,
		`--heartbeat_timeout=1ms: expected 1s or more`,
	}
	got := strings.Split(err.Error(), "\n")
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for args, want := range map[string]string{
		"":                                     "the program is missing",
		"--":                                   "the program is missing",
		"--nproc_per_node=0 main.py":           "--nproc_per_node=0: expected 1 or more",
		"--nnodes=0 main.py":                   "--nnodes=0: expected N or MIN:MAX",
		"--nnodes=1: main.py":                  "--nnodes=1:: expected N or MIN:MAX",
		"--nnodes=2 --num_workers=3 main.py":   "--max_workers=2: fewer than --num_workers=3",
		"--restart_on_join=checkpoint main.py": "--restart_on_join=checkpoint: give --checkpoint_file",
		"--restart_on_join=maybe main.py": "--restart_on_join=maybe: expected " +
			"now, checkpoint, never",
		"torchrun main.py": "program torchrun: leave it out: " +
			"elasticdl starts the processes itself, and has torchrun's options, as in: elasticdl " +
			"run --nproc_per_node=2 main.py",
		"-- /bin/torchrun --standalone main.py":    "program torchrun: leave it out",
		"python3 -u -m torch.distributed.run a.py": "program torch.distributed.run: leave it out",
		"--module torch.distributed.launch a.py":   "program torch.distributed.launch: leave it out",
		"accelerate launch main.py":                "program accelerate launch: leave it out",
		"main.py caf\xe9":                          `program: word 2 is "caf\xe9": expected UTF-8`,
		"--job_command=true -- main.py": "--job_command=true: the program is " +
			"main.py already; remove one of the two",
		"--nnodes=2 --node_rank=1 --master_addr=a main.py": "--node_rank=1: expected 0: one " +
			"command starts the workers of all nodes, so run it once, without this",
		"--run_path main.py": "--run_path: not available in this " +
			"version yet; leave it out: a script is run as python3 runs it",
		"--virtual-local-rank main.py": "--virtual_local_rank: not " +
			"available in this version yet; on a cluster each worker of --nproc_per_node=1 and --gpus=1 has that",
		"--numa_binding=node main.py": "--numa_binding: not available in " +
			"this version yet; bind them in the script, or",
		"--logs_specs=mine main.py": "--logs_specs: not available in " +
			"this version yet; see --log_dir, --redirects and --tee",
		"--local_ranks_filter=0;1 main.py": "--local_ranks_filter=0;1: expected " +
			"local ranks with commas between, as 0,1",
		"--local_ranks_filter=0,-1 main.py": "--local_ranks_filter=0,-1: expected local ranks",
		"--nproc_per_node=2 --local_ranks_filter=2,3 main.py": "--local_ranks_filter=2,3: no " +
			"process of --nproc_per_node=2 is among them, and no output would be shown",
		"--relaunch_on_worker_failure=-1 x": "--relaunch_on_worker_failure=-1: expected 0 or more",
		"--gpus=2 --worker_resource_limit=gpu=1,cpu=2 main.py": "--gpus=2: " +
			"--worker_resource_request and --worker_resource_limit set nvidia.com/gpu=1",
	} {
		_, err := Parse(Run, append([]string{"--runtime=local", "--job_name=j"}, strings.Fields(args)...))
		if err == nil || lines(err) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one problem with %q", args, err, want)
		}
	}
}

// A program that is missing has no name: only the program is asked for. Scripts that are called
// like a launcher, or are given one, are run.
func TestRunWithoutProgram(t *testing.T) {
	if _, err := Parse(Run, []string{"--runtime=local"}); err == nil || lines(err) != 1 ||
		!strings.HasPrefix(err.Error(), "the program is missing: ") {
		t.Errorf("%v, want one problem: the program is missing", err)
	}
	for _, args := range []string{"torchrun.py", "python3 main.py -m torch.distributed.run",
		"accelerate config", "main.py torchrun", "python3 -m"} {
		if _, err := Parse(Run, append([]string{"--runtime=local"}, strings.Fields(args)...)); err != nil {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// ElasticDL's own form: a job to train whose workers run a command. A shell is started for what
// only a shell understands.
func TestJobCommand(t *testing.T) {
	for command, want := range map[string][]string{
		"python -m model_zoo.mnist.mnist_pytorch --epochs=2": {"python", "-m",
			"model_zoo.mnist.mnist_pytorch", "--epochs=2"},
		"cd /src && python main.py":        {"/bin/sh", "-c", "cd /src && python main.py"},
		"python main.py 'a b'":             {"/bin/sh", "-c", "python main.py 'a b'"},
		"python $SCRIPT":                   {"/bin/sh", "-c", "python $SCRIPT"},
		"OMP_NUM_THREADS=1 python main.py": {"/bin/sh", "-c", "OMP_NUM_THREADS=1 python main.py"},
	} {
		c, err := Parse(Train, []string{"--runtime=local", "--job_name=j", "--training_data=/d",
			"--minibatch_size=3", "--nproc_per_node=2", "--job_command=" + command})
		if err != nil {
			t.Errorf("%s: %v", command, err)
			continue
		}
		if !slices.Equal(c.Job.Program.Command, want) || c.Job.Type != Run ||
			c.Job.Program.Processes != "2" || c.Job.NumWorkers != 2 {
			t.Errorf("%s: %+v", command, c.Job)
		}
		if want := []string{"no effect with run: --training_data, --minibatch_size"}; !slices.Equal(
			c.Notes, want) || c.Job.TrainingData != "" {
			t.Errorf("%s: notes %q, want %q; training data %q", command, c.Notes, want, c.Job.TrainingData)
		}
		survives(t, c.Job)
	}
}

// The documented command of ElasticDL's PyTorch jobs is accepted as it stands. Its records per task
// reach the program.
func TestElasticDLsOwnForm(t *testing.T) {
	c, err := Parse(Train, []string{"--job_command=python -m model_zoo.mnist.mnist_pytorch " +
		"--batch_size 64", "--worker_image=elasticdl:mnist_pytorch", "--custom_training_loop=true",
		"--num_minibatches_per_task=4", "--num_workers=2", "--job_name=j", "--image_pull_policy=Never",
		"--envs=USE_TORCH=true", "--distribution_strategy=AllreduceStrategy",
		"--need_pod_manager=true", "--need_task_manager=true"})
	if err != nil {
		t.Fatal(err)
	}
	if j := c.Job; j.Type != Run || j.NumMinibatchesPerTask != 4 ||
		j.Image != "elasticdl:mnist_pytorch" || j.Worker.Image != j.Image {
		t.Errorf("%+v", j)
	}
	want := []string{"no effect with run: --distribution_strategy",
		"no effect: --custom_training_loop (a program has its own loop), --need_pod_manager (always " +
			"on), --need_task_manager (always on)"}
	if !slices.Equal(c.Notes, want) {
		t.Errorf("notes %q, want %q", c.Notes, want)
	}
	for args, want := range map[string]int{"": 0, "--num_minibatches_per_task=3": 3,
		"--num_minibatches_per_task=0": 0} {
		c, err := Parse(Train, append([]string{"--runtime=local", "--job_name=j", "--job_command=true"},
			strings.Fields(args)...))
		if err != nil || c.Job.NumMinibatchesPerTask != want {
			t.Errorf("%s: %d minibatches a task, want %d; %v", args, c.Job.NumMinibatchesPerTask, want, err)
		}
	}
}

// Flags of models have no effect on a program, and those of programs none on a model: it is
// reported.
func TestRunNotes(t *testing.T) {
	for _, f := range Flags() {
		if f.With(Run) || f.Effect == Later {
			continue
		}
		value := cmp.Or(f.Default(Run), "1")
		if f.Kind() != "N" && f.Name != "ps_pod_priority" && value == "1" {
			value = "cpu=1"
		}
		if f.Name == "data_encryption" {
			value = "off"
		}
		c, err := Parse(Run, []string{"--runtime=local", "--" + f.Name + "=" + value, "--", "main.py"})
		if want := []string{"no effect with run: --" + f.Name}; err != nil || !slices.Equal(c.Notes, want) {
			t.Errorf("--%s=%s: notes %q, want %q; %v", f.Name, value, c.Notes, want, err)
		}
	}
	for _, name := range []string{"model_def", "model_file", "training_data", "num_epochs",
		"record_per_task", "num_ps_pods", "checkpoint_dir", "loss", "seed", "output"} {
		if Find(name).With(Run) || regexp.MustCompile("--"+name+"\\b").MatchString(Help(Run)) {
			t.Errorf("--%s, of a model, is in the help text of run", name)
		}
	}
	c, err := Parse(Train, strings.Fields("--runtime=local --job_name=j --model_def=m "+
		"--training_data=d --nproc_per_node=2 --log_dir=l --checkpoint_file=f --standalone"))
	if want := []string{"no effect with train: --nproc_per_node, --log_dir, --checkpoint_file, " +
		"--standalone"}; err != nil || !slices.Equal(c.Notes, want) {
		t.Errorf("notes %q, want %q; %v", c.Notes, want, err)
	}
	if !reflect.DeepEqual(c.Job.Program, Program{}) {
		t.Errorf("a job to train has a program: %+v", c.Job.Program)
	}
	c, err = Parse(Run, strings.Fields("--runtime=local --standalone --rdzv_backend=c10d --monitor_interval=5 main.py"))
	if err != nil || len(c.Notes) != 1 || !strings.HasPrefix(c.Notes[0], "no effect: --standalone (") ||
		!strings.Contains(c.Notes[0], "--monitor_interval") || c.Job.Program.Command[0] != "main.py" {
		t.Errorf("%q, %v", c.Notes, err)
	}
}

// Output that goes to files needs a place that outlives the pods: a note reports output that is
// deleted with the pods, and output that would be lost is refused.
func TestLogsOfPods(t *testing.T) {
	for args, want := range map[string]string{
		"--redirects=3":           "--redirects=3: without --log_dir the output would be deleted with the pods; give a directory on a --volume, or --tee, by which the workers' logs have it, too",
		"--redirects=0:1 --tee=3": "--redirects=0:1: without --log_dir ", "--redirects=0:0": "",
		"--tee=0:2": "note: --tee=0:2: without --log_dir the files are in each worker's pod, and deleted with it; elasticdl logs prints the same output",
		"--log_dir=/data/logs --tee=3": "note: --log_dir=/data/logs is on no --volume: " +
			"it is deleted with each worker's pod",
		"--log_dir=/c/logs --redirects=3":    "",
		"--log_dir=/c/logs --tee=1":          "",
		"--cluster_spec_json={} --tee=1":     "",
		"--cluster_spec_json={} --log_dir=x": "",
	} {
		c, err := Parse(Run, append(strings.Fields("--image_name=a:1 --agent_image_name=b:1 "+
			"--volume=claim_name=c,mount_path=/c "+args), "main.py"))
		got := ""
		switch {
		case err != nil:
			got = err.Error()
		case len(c.Notes) > 0:
			got = "note: " + strings.Join(c.Notes, "\n")
		}
		if !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q, want %q", args, got, want)
		}
	}
}

// The command line goes before torchrun's variables; variables of others are nobody's business.
func TestFromEnviron(t *testing.T) {
	c := NewCommand(Run)
	c.FromEnviron([]string{"PET_NNODES=2:3", "PET_NPROC_PER_NODE=4", "PET_MAX_RESTARTS=1", "PET_STANDALONE=1",
		"PET_NODE_RANK=0", "PET_MASTER_ADDR=main-0", "PET_LOCAL_RANKS_FILTER=1", "PET_ROLE=",
		"PET_MODEL_DEF=m", "NNODES=7", "PET_", "PET"})
	var given []string
	for _, f := range c.given {
		given = append(given, f.Name)
	}
	if want := strings.Fields("nnodes nproc_per_node max_restarts standalone node_rank master_addr " +
		"local_ranks_filter"); !slices.Equal(given, want) {
		t.Fatalf("%q, want %q", given, want)
	}
	err := c.parse([]string{"--runtime=local", "--max_restarts=5", "main.py"})
	if j := c.Job; err != nil || j.NumWorkers != 3 || j.MinWorkers != 2 || j.Program.Processes != "4" ||
		j.Program.MaxRestarts != 5 || !slices.Equal(j.Program.Command, []string{"main.py"}) ||
		j.Program.LocalRanks != "1" {
		t.Errorf("%+v, %v", j, err)
	}
	if want := []string{"no effect: --standalone (no endpoint is needed), --node_rank (the master " +
		"assigns ranks), --master_addr (the master is the rendezvous)"}; !slices.Equal(c.Notes, want) {
		t.Errorf("notes %q, want %q", c.Notes, want)
	}
	for said, want := range map[string]string{"PET_NODE_RANK=1": "--node_rank=1: expected 0",
		"PET_RUN_PATH=1":        "--run_path: not available",
		"PET_NUMA_BINDING=node": "--numa_binding: not available", "PET_VIRTUAL_LOCAL_RANK=0": ""} {
		c := NewCommand(Run)
		c.FromEnviron([]string{said})
		err := c.parse([]string{"--runtime=local", "main.py"})
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", said, err, want)
		}
	}
}

func FuzzRun(f *testing.F) {
	for _, args := range []string{"--nnodes=1:4 --module pkg.train --lr=1",
		"--redirects=3 --tee=0:1 --log_dir=l -- a b", "--job_command=A=b c",
		"--gpus=2 --worker_resource_limit=gpu=1 x", "-x main.py", "--nproc_per_node", "- -- --",
		"--training_data=d main.py", "0\xff0"} {
		f.Add(strings.Join(append([]string{"--runtime=local"}, strings.Fields(args)...), "\n"))
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(Run, strings.Split(text, "\n"))
		if err != nil {
			return
		}
		if j := c.Job; !j.Runs() || len(j.Program.Command) == 0 || j.ModelDef != "" ||
			j.MinWorkers > j.NumWorkers || j.MaxWorkers > 0 && j.NumWorkers > j.MaxWorkers {
			t.Fatalf("parsed, and contradicts itself: %+v", j)
		}
		survives(t, c.Job)
	})
}
