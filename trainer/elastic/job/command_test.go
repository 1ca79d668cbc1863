package job

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The commands of the tutorials, word for word but for --runtime.
var (
	cloud = `--image_name=gcr.io/p/elasticdl:mnist --model_zoo=model_zoo
		--model_def=mnist_functional_api.mnist_functional_api.custom_model
		--training_data=/data/mnist/train --validation_data=/data/mnist/test --num_epochs=5
		--master_resource_request=cpu=2,memory=2048Mi --master_resource_limit=cpu=2,memory=2048Mi --master_pod_priority=high
		--worker_resource_request=cpu=2,memory=2048Mi --worker_resource_limit=cpu=2,memory=2048Mi --worker_pod_priority=low
		--ps_resource_request=cpu=2,memory=2048Mi --ps_resource_limit=cpu=2,memory=2048Mi --ps_pod_priority=high
		--minibatch_size=64 --num_minibatches_per_task=64 --num_ps_pods=2 --num_workers=4 --evaluation_steps=200
		--grads_to_wait=1 --job_name=test-mnist --log_level=INFO --image_pull_policy=Always
		--volume=mount_path=/data,claim_name=fileserver-claim --distribution_strategy=ParameterServerStrategy`
	cloudOld = strings.Replace(cloud, "--image_name=gcr.io/p/elasticdl:mnist",
		"--image_base=elasticdl:mnist --docker_image_repository=gcr.io/p", 1)
	minikube = `--image_name=elasticdl:mnist_ps --model_zoo=model_zoo
		--model_def=mnist.mnist_functional_api.custom_model
		--training_data=/data/mnist/train --validation_data=/data/mnist/test --num_epochs=2
		--master_resource_request=cpu=0.2,memory=1024Mi --master_resource_limit=cpu=1,memory=2048Mi
		--worker_resource_request=cpu=0.4,memory=1024Mi --worker_resource_limit=cpu=1,memory=2048Mi
		--ps_resource_request=cpu=0.2,memory=1024Mi --ps_resource_limit=cpu=1,memory=2048Mi
		--minibatch_size=64 --num_minibatches_per_task=2 --num_ps_pods=1 --num_workers=1 --evaluation_steps=50
		--job_name=test-mnist --image_pull_policy=Never --volume=host_path=/data,mount_path=/data
		--distribution_strategy=ParameterServerStrategy`
	allReduce = `--image_name=elasticdl:mnist_allreduce --model_zoo=model_zoo
		--model_def=mnist.mnist_functional_api.custom_model
		--training_data=/data/mnist/train --num_epochs=1 --minibatch_size=64 --num_minibatches_per_task=2 --num_workers=2
		--job_name=test-mnist-allreduce --image_pull_policy=Never --volume=host_path=/data,mount_path=/data
		--distribution_strategy=AllreduceStrategy`
	elastic = `--job_name=low-prio-job --model_file=elasticdl/python/examples/mnist_functional_api.py
		--train_data_dir=/data/mnist/train --master_pod_priority=high-priority --worker_pod_priority=low-priority
		--num_epoch=1 --minibatch_size=10 --record_per_task=100 --num_worker=2
		--master_cpu_request=1000m --master_cpu_limit=1000m --master_memory_request=1024Mi --master_memory_limit=1024Mi
		--worker_cpu_request=3000m --worker_cpu_limit=3000m --worker_memory_request=4096Mi --worker_memory_limit=4096Mi
		--grads_to_wait=2 --codec_type=bytes --repository=gcr.io --image_base=gcr.io/elasticdl/elasticdl:dev`
)

func local(command string) []string {
	return append(strings.Fields(command), "--runtime=local")
}

func TestTutorials(t *testing.T) {
	for name, command := range map[string]string{"cloud": cloud, "older cloud": cloudOld} {
		c, err := Parse(Train, local(command))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want := Default()
		want.Name, want.Image = "test-mnist", "gcr.io/p/elasticdl:mnist"
		want.ModelZoo, want.ModelDef = "model_zoo", "mnist_functional_api.mnist_functional_api.custom_model"
		want.TrainingData, want.ValidationData, want.NumEpochs = "/data/mnist/train", "/data/mnist/test", 5
		want.NumMinibatchesPerTask, want.NumPS, want.NumWorkers, want.EvaluationSteps = 64, 2, 4, 200
		each := Resources{"cpu": "2", "memory": "2048Mi"}
		want.Master = Pod{Request: each, Limit: each, Priority: Priority{Class: "high"}}
		want.PS = want.Master
		want.Worker = Pod{Request: each, Limit: each, Priority: Priority{Class: "low"}}
		want.Volumes = []Volume{{ClaimName: "fileserver-claim", MountPath: "/data"}}
		if !reflect.DeepEqual(c.Job, want) {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, c.Job, want)
		}
		if c.Job.Synchronous() {
			t.Errorf("%s: synchronous, want each gradient applied on arrival", name)
		}
	}
}

func TestTutorialMinikube(t *testing.T) {
	c, err := Parse(Train, local(minikube))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Job.Worker.Request.String(); got != "cpu=0.4,memory=1024Mi" {
		t.Errorf("worker requests %s", got)
	}
	if len(c.Notes) != 2 || !strings.Contains(c.Notes[0], "--volume") || !strings.Contains(c.Notes[1], "--model_zoo") {
		t.Errorf("notes %q, want one that names --volume, and one --model_zoo", c.Notes)
	}
	if c, err = Parse(Train, local(allReduce)); err != nil {
		t.Fatal(err)
	}
	if c.Job.Strategy != AllReduce || c.Job.NumPS != 0 || c.Job.NumWorkers != 2 ||
		c.Job.HeartbeatTimeout.Seconds() != 5 {
		t.Errorf("AllReduce: %+v", c.Job)
	}
	if c, err := Parse(Train, strings.Fields(minikube)); err != nil || c.Runtime != "kubernetes" ||
		len(c.Notes) != 1 || !strings.Contains(c.Notes[0], "--model_zoo") {
		t.Errorf("without --runtime: %+v, %v; want Kubernetes, and a note that names --model_zoo", c, err)
	}
}

func TestTutorialElastic(t *testing.T) {
	c, err := Parse(Train, local(elastic))
	if err != nil {
		t.Fatal(err)
	}
	j := c.Job
	if j.ModelDef != "mnist_functional_api" || j.NumMinibatchesPerTask != 10 || j.NumWorkers != 2 || j.NumPS != 1 ||
		j.Image != "gcr.io/elasticdl/elasticdl:dev" || j.Worker.Priority.Class != "low-priority" || !j.Synchronous() {
		t.Errorf("got %+v", j)
	}
	if got := j.Worker.Limit.String(); got != "cpu=3000m,memory=4096Mi" {
		t.Errorf("worker limit %s", got)
	}
	if len(c.Notes) != 2 || !strings.Contains(c.Notes[1], "--codec_type") {
		t.Errorf("notes %q, want a second one that names --codec_type", c.Notes)
	}
}

func lines(err error) int { return strings.Count(err.Error(), "\n") + 1 }

func TestAllProblemsAtOnce(t *testing.T) {
	_, err := Parse(Train, []string{"--job_name=Not OK", "--num_wrkers=3", "--minibatch-size=0",
		"--num_epochs=many", "--use_async=perhaps",
		"--volume=host_path=/d", "--worker_resource_request=cpu=lots", "--checkpoint_steps=-1",
		"--keep_checkpoint_max=-2", "--checkpoint_interval=1ms", "--checkpoint_dir_for_init=x", "--evaluation_steps=10",
		"--yaml=x.yaml", "stray", "--runtime=moon", "--grads_to_wait"})
	want := []string{
		`--num_wrkers: unknown flag; did you mean --num_workers?`,
		`--num_epochs=many: expected a whole number`,
		`--use_async=perhaps: expected true or false`,
		`--volume=host_path=/d: volume "host_path=/d": expected a mount_path that starts with /`,
		`--worker_resource_request=cpu=lots: cpu=lots: expected a number of cores like 2, 0.5 or 250m`,
		`unexpected argument "stray": expected --name=value`,
		`--grads_to_wait: needs a value`,
		`--runtime=moon: expected kubernetes or local`,
		`--job_name=Not OK: expected at most 40 lower-case letters, digits and '-', beginning and ending with a letter or digit`,
		`--model_def is missing: name a model, as --model_def=mnist.mnist_functional_api.custom_model`,
		`--training_data is missing: name a directory of RecordIO files, a .csv file or a bucket`,
		`--evaluation_steps=10: needs --validation_data`,
		`--minibatch_size=0: expected 1 or more`,
		`--checkpoint_steps=-1: expected 0 or more`,
		`--keep_checkpoint_max=-2: expected 0 or more`,
		`--checkpoint_interval=1ms: expected 1s or more, or 0`,
	}
	if err == nil || err.Error() != strings.Join(want, "\n") {
		t.Errorf("got:\n%v\nwant:\n%s", err, strings.Join(want, "\n"))
	}
}

func TestParseForms(t *testing.T) {
	base := []string{"--runtime=local", "--job_name=j", "--model_def=m", "--training_data=d"}
	for _, test := range []struct {
		args string
		ok   func(c *Command) bool
	}{
		{"--num-workers=7", func(c *Command) bool { return c.Job.NumWorkers == 7 }},
		{"", func(c *Command) bool { return c.Job.ServesMetrics() == 0 }},
		{"--metrics_port=9000", func(c *Command) bool { return c.Job.ServesMetrics() == 9000 }},
		{"--metrics_from=a,b", func(c *Command) bool {
			return c.Job.ServesMetrics() == DefaultMetricsPort && slices.Equal(c.Job.MetricsFrom, []string{"a", "b"})
		}},
		{"--metrics_from=a --metrics_port=9000", func(c *Command) bool { return c.Job.ServesMetrics() == 9000 }},
		{"--num_workers=7 --num_workers=8", func(c *Command) bool { return c.Job.NumWorkers == 8 }},
		{"--use_async", func(c *Command) bool { return c.Job.UseAsync }},
		{"--use_async=False", func(c *Command) bool { return !c.Job.UseAsync }},
		{"--use_async=yes --seed=3", func(c *Command) bool { return c.Job.UseAsync && c.Job.Seed == 3 }},
		{"--shuffle=n", func(c *Command) bool { return !c.Job.Shuffle }},
		{"--detach --dry-run", func(c *Command) bool { return c.Detach && c.DryRun }},
		{"--task_timeout=90", func(c *Command) bool { return c.Job.TaskTimeout.Seconds() == 90 }},
		{"--need_elasticdl_job_service=true", func(c *Command) bool { return len(c.Notes) == 1 }},
		{"--checkpoint_steps=0 --keep_checkpoint_max=0 --need_tf_config=false", func(c *Command) bool {
			return len(c.Notes) == 0
		}},
		{"--sync_version_tolerance=0", func(c *Command) bool {
			return c.Job.Synchronous() && *c.Job.SyncVersionTolerance == 0
		}},
		{"--grads_to_wait=3", func(c *Command) bool { return c.Job.Synchronous() }},
		{"--grads_to_wait=1 --use_async=false", func(c *Command) bool { return !c.Job.Synchronous() }},
		{"--distribution_strategy=AllreduceStrategy", func(c *Command) bool {
			return c.Job.NumPS == 0 && len(c.Notes) == 0
		}},
		{"--distribution-strategy=AllreduceStrategy --num_ps_pods=0", func(c *Command) bool {
			return c.Job.NumPS == 0 && len(c.Notes) == 0
		}},
		{"--num_ps_pods=0", func(c *Command) bool {
			return c.Job.Strategy == AllReduce && c.Job.NumPS == 0 && len(c.Notes) == 1
		}},
		{"--num_ps_pods=0 --global_batch_size=64 --max_workers=2", func(c *Command) bool {
			return c.Job.GlobalBatchSize == 64 && c.Job.MaxWorkers == 2
		}},
		{"--num_ps=0 --scale_learning_rate --heartbeat-timeout=1", func(c *Command) bool {
			return c.Job.ScaleLearningRate && c.Job.HeartbeatTimeout.Seconds() == 1
		}},
		{"--num_workers=4 --min_workers=4 --max_workers=4", func(c *Command) bool {
			return c.Job.MinWorkers == 4 && c.Job.Strategy == ParameterServer
		}},
		{"--distribution_strategy=AllreduceStrategy --grads_to_wait=1 --use_async=false " +
			"--get_model_steps=1", func(c *Command) bool {
			return c.Job.Strategy == AllReduce
		}},
		{"--global_batch_size=0 --scale_learning_rate=false", func(c *Command) bool {
			return c.Job.Strategy == ParameterServer && c.Job.NumPS == 1
		}},
		{"--worker_image=w", func(c *Command) bool {
			return c.Job.Worker.Image == "w" && c.Job.PS.Image == "w" && c.Job.Image == "w"
		}},
		{"--worker_image=w --image_name=i", func(c *Command) bool {
			return c.Job.Worker.Image == "w" && c.Job.Image == "i"
		}},
		{"--worker_cpu_request=2", func(c *Command) bool {
			return c.Job.Worker.Request.String() == "cpu=2,memory=4096Mi"
		}},
	} {
		c, err := Parse(Train, append(base[:len(base):len(base)], strings.Fields(test.args)...))
		if err != nil || !test.ok(c) {
			t.Errorf("%s: %+v, %v", test.args, c, err)
		}
	}
}

func TestRefused(t *testing.T) {
	for args, want := range map[string]string{
		"--use_async --grads_to_wait=2":                        "--grads_to_wait=2: with --use_async",
		"--use_async --sync_version_tolerance=2":               "--sync_version_tolerance=2: with --use_async",
		"--grads_to_wait=2 --get_model_steps=5":                "remove --grads_to_wait=2 or this",
		"--sync_version_tolerance=1 --lr_staleness_modulation": "remove --sync_version_tolerance=1 or this",
		"--loss=my_loss":          "models are built in",
		"--metrics_port=80":       "--metrics_port=80: expected a port from 1024 to 32767",
		"--metrics_port=50001":    "--metrics_port=50001: expected a port from 1024 to 32767",
		"--metrics_from=a,team/b": "--metrics_from=team/b: expected the names of namespaces",
		"--num_ps_pods=0 --distribution_strategy=ParameterServerStrategy": "--num_ps_pods=0: expected 1 or more",
		"--num_ps_pods=-1": "--num_ps_pods=-1: expected 1 or more",
		"--num_ps_pods=2 --distribution_strategy=AllreduceStrategy": "--num_ps_pods=2: " +
			"--distribution_strategy=AllreduceStrategy has no parameter servers",
		"--num_ps_pods=0 --grads_to_wait=2": "--grads_to_wait=2: with " +
			"--distribution_strategy=AllreduceStrategy an update has the gradients of all workers",
		"--num_ps_pods=0 --use_async": "--use_async: with " +
			"--distribution_strategy=AllreduceStrategy all workers update together",
		"--num_ps_pods=0 --sync_version_tolerance=0": "--sync_version_tolerance=0: with " +
			"--distribution_strategy=AllreduceStrategy no gradient is stale",
		"--num_ps_pods=0 --lr_staleness_modulation": "--lr_staleness_modulation: " +
			"with --distribution_strategy=AllreduceStrategy no gradient is stale",
		"--num_ps_pods=0 --get_model_steps=2": "--get_model_steps=2: with " +
			"--distribution_strategy=AllreduceStrategy every worker holds the model",
		"--num_ps_pods=0 --global_batch_size=63": "--global_batch_size=63: " +
			"expected --minibatch_size=64 or more",
		"--num_ps_pods=0 --global_batch_size=-1": "--global_batch_size=-1: expected 0 or more",
		"--num_ps_pods=0 --global_batch_size=64 --scale_learning_rate": "--scale_learning_rate: " +
			"with --global_batch_size=64",
		"--num_ps_pods=0 --heartbeat_timeout=900ms": "--heartbeat_timeout=900ms: " +
			"expected 1s or more",
		"--heartbeat_timeout=5s": "--heartbeat_timeout=5s: " +
			"needs --distribution_strategy=AllreduceStrategy",
		"--global_batch_size=256": "--global_batch_size=256: " +
			"needs --distribution_strategy=AllreduceStrategy; see --grads_to_wait",
		"--scale_learning_rate": "--scale_learning_rate: " +
			"needs --distribution_strategy=AllreduceStrategy",
		"--min_workers=3":  "--min_workers=3: more than --num_workers=2",
		"--max_workers=1":  "--max_workers=1: fewer than --num_workers=2",
		"--min_workers=-1": "--min_workers=-1: expected 0 or more",
		"--max_workers=-1": "--max_workers=-1: expected 0 or more",
		"--num_workers=3 --min_workers=4 --max_workers=2": "--min_workers=4: more than --max_workers=2",
		"--training_data=d\xff":                           "expected UTF-8",
		"--record_per_task=100":                           "expected a multiple of --minibatch_size=64",
		"--distribution_strategy=Local":                   "not available",
		"--distribution_strategy=Local --num_ps_pods=0":   "give ParameterServerStrategy or AllreduceStrategy",
		"--distribution_strategy=Horovod": "expected " +
			"ParameterServerStrategy, AllreduceStrategy",
		"--ps_pod_priority=0.5":              "fractions are for workers only",
		"--cluster_spec_json=[1]":            "expected a JSON object",
		"--populate_env_names=(":             "expected a regular expression",
		"--aux_params=disable_relaunch=True": "--relaunch_on_worker_failure=0",
		"--checkpoint_dir= --checkpoint_steps=5": "--checkpoint_steps=5: " +
			"there are no checkpoints with --checkpoint_dir=",
		"--checkpoint_dir= --checkpoint_interval=5s": "--checkpoint_interval=5s: " +
			"there are no checkpoints with --checkpoint_dir=",
		"--checkpoint_dir= --keep_checkpoint_max=5": "--keep_checkpoint_max=5: " +
			"there are no checkpoints; give --checkpoint_dir",
		"--checkpoint_dir=c --checkpoint_steps=0": "--checkpoint_dir=c: no " +
			"checkpoint would be made",
		"--checkpoint_dir=d/c": "--checkpoint_dir=d/c: it " +
			"is in --training_data=d, of which every file is read",
		"--validation_data=. --checkpoint_dir=c": "--checkpoint_dir=c: it is " +
			"in --validation_data=., of which every file is read",
		"--validation_data=s3://b/d?region=x --checkpoint_dir=s3://b/d/ckpt?region=x": "it is in " +
			"--validation_data=s3://b/d?region=x, of which every file is read",
		"--validation_data=gs://b/d --tensorboard_log_dir=gs://b/d": "it is in --validation_data=gs://b/d, of which " +
			"every file is read",
		"--validation_data=/v/ --checkpoint_dir=/v/c": "--checkpoint_dir=/v/c: it " +
			"is in --validation_data=/v/, of which every file is read",
		"--checkpoint_dir=ftp://b/p": "--checkpoint_dir=ftp://b/p: expected a directory, " +
			"s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
		"--tensorboard_log_dir=d/tb": "--tensorboard_log_dir=d/tb: it is in " +
			"--training_data=d, of which every file is read",
		"--tensorboard_log_dir=ftp://b/p": "--tensorboard_log_dir=ftp://b/p: expected a directory, " +
			"s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
		"--checkpoint_interval=-1s": "--checkpoint_interval=-1s: " +
			"expected 1s or more, or 0",
		"--prediction_data=x": "--prediction_data=x: only for jobs of type predict, not train; remove it",
		"--prediction_outputs=x.csv": "--prediction_outputs=x.csv: only for jobs of type " +
			"predict, not train; remove it; --output is for the trained model",
		"--image_pull_policy=Sometimes": "expected Always, IfNotPresent, Never",
		"--log_level=LOUD":              "expected DEBUG, INFO",
		"--task_timeout=0":              "expected 1s or more",
		"--seed=-1":                     "expected a whole number of 0 or more",
		"--num_workers=99999999999":     "expected a whole number",
		"--frobnicate=1": "--frobnicate: unknown " +
			"flag; see elasticdl train --help",
		"--num_ps_pod=3": "did you mean --num_ps_pods?",
		"--validation_data=ftp://b/p": "--validation_data=ftp://b/p: expected a directory " +
			"or a file, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
		"--follow --detach": "--follow: contradicts --detach",
		"--watch --detach":  "--watch: contradicts --detach",
		"--watch --follow": "--follow: prints logs, but " +
			"--watch prints progress; remove one of the two",
		"--format=yaml":    "--format=yaml: expected text, json",
		"--training-dta=x": "did you mean --training_data?",
	} {
		_, err := Parse(Train, append(strings.Fields(args), "--runtime=local", "--job_name=j",
			"--model_def=m", "--training_data=d"))
		if err == nil || lines(err) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one problem with %q", args, err, want)
		}
	}
}

// Law 3, on the jobs of the tutorials.
func TestJSON(t *testing.T) {
	for _, command := range []string{cloud, minikube, allReduce, elastic,
		allReduce + " --min_workers=1 --max_workers=8 --global_batch_size=256 --heartbeat_timeout=90s",
		"--job_name=j --model_def=m --training_data=d --num_ps_pods=0 --scale_learning_rate",
		cloud + ` --envs=A=b=c,D=e --cluster_spec_json={"a":1} --sync_version_tolerance=0 --data_reader_params=k=v`} {
		c, err := Parse(Train, local(command))
		if err != nil {
			t.Fatal(err)
		}
		survives(t, c.Job)
	}
}

// survives checks that a job comes back from JSON as it was, and valid.
func survives(t *testing.T, j *Job) {
	t.Helper()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	var got Job
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(&got, j) {
		t.Errorf("from %s\ngot  %+v\nwant %+v", text, got, *j)
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

// A job that no flags have made, with what none of them can leave, is refused like theirs.
func TestValidateRing(t *testing.T) {
	j := Default()
	// and one server still
	j.Name, j.ModelDef, j.TrainingData, j.Strategy = "j", "m", "d", AllReduce
	j.GradsToWait, j.GetModelSteps, j.UseAsync, j.LRStalenessModulation, j.SyncVersionTolerance = 2, 3,
		true, true, new(1)
	j.MinWorkers, j.MaxWorkers, j.GlobalBatchSize, j.ScaleLearningRate, j.HeartbeatTimeout = 3, -1, 1, true, Duration{}
	err := j.Validate()
	if err == nil || lines(err) != 11 {
		t.Fatalf("got:\n%v\nwant 11 problems", err)
	}
	for _, flag := range []string{"num_ps_pods=1", "grads_to_wait=2", "get_model_steps=3", "use_async",
		"lr_staleness_modulation", "sync_version_tolerance=1",
		"min_workers=3", "max_workers=-1", "global_batch_size=1", "scale_learning_rate", "heartbeat_timeout=0s"} {
		if !strings.Contains("\n"+err.Error(), "\n--"+flag+":") {
			t.Errorf("no word of --%s in:\n%v", flag, err)
		}
	}
}

// The table holds each name once, in the one spelling, and each flag's own default is accepted.
func TestFlagTable(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Flags() {
		for _, name := range append([]string{f.Name}, f.Aliases...) {
			if seen[name] || strings.ContainsAny(name, "- =") {
				t.Errorf("--%s occurs twice, or is misspelled", name)
			}
			seen[name] = true
			if Find(strings.ReplaceAll(name, "_", "-")).Name != f.Name {
				t.Errorf("--%s is not found", name)
			}
		}
		if f.Usage == "" || f.Topic == "" || f.Effect == 0 {
			t.Errorf("--%s has no usage, topic or effect", f.Name)
		}
		if def := f.Default(Train); def != "" {
			if err := f.bind(NewCommand(Train)).set(def); err != nil {
				t.Errorf("--%s=%s, its default: %v", f.Name, def, err)
			}
		}
	}
}

func TestHelp(t *testing.T) {
	for kind, want := range map[Type]string{Train: "  --num_workers=N                   number of workers [2]",
		Run: "  --num_workers=N                   number of workers [1]"} {
		if !strings.Contains(Help(kind), want) {
			t.Errorf("the help text of %s lacks %q", kind, want)
		}
	}
	for _, kind := range []Type{Train, Evaluate, Predict, Run} {
		help := Help(kind)
		for _, f := range Flags() {
			if want := f.Effect != Later &&
				f.With(kind); regexp.MustCompile("--"+f.Name+"\\b").MatchString(help) != want {
				t.Errorf("--%s in the help text of %s: %t, want %t", f.Name, kind, !want, want)
			}
		}
		for line := range strings.Lines(help) {
			if len(line) > 141 {
				t.Errorf("%s: a line of %d characters: %s", kind, len(line), line)
			}
		}
	}
	for name := range typesOfFlag {
		if Find(name) == nil {
			t.Errorf("--%s is limited, and is no flag", name)
		}
	}
}

// A job that trains nothing: what it needs, what has no effect in it, and what is refused.
func TestFixedJobs(t *testing.T) {
	const evaluate = "--job_name=j --model_def=m --checkpoint_dir_for_init=/ckpt --validation_data=/data/test"
	const predict = "--job_name=j --model_def=m --checkpoint_dir_for_init=/ckpt " +
		"--prediction_data=/data/new --prediction_outputs=/out/out.csv"
	for _, c := range []struct {
		kind Type
		args string
		want string // of the only problem; "": none
	}{
		{Evaluate, "--runtime=local " + evaluate, ""},
		{Predict, "--runtime=local " + predict, ""},
		{Predict, "--runtime=local " + predict +
			" --distribution_strategy=AllreduceStrategy --num_epochs=5 --heartbeat_timeout=9s " +
			"--checkpoint_steps=4", ""},
		{Predict, "--runtime=local " + predict +
			" --num_ps_pods=0 --evaluation_steps=5 --grads_to_wait=3 --get_model_steps=3", ""},
		{Predict, "--image_name=i " +
			"--volume=claim_name=c,mount_path=/data;claim_name=d,mount_path=/out;claim_name=e,mount_path=/ckpt " +
			predict, ""},
		{Predict, "--image_name=i --checkpoint_dir_for_init=s3://b/c " +
			"--prediction_outputs=s3://b/o.csv --job_name=j --model_def=m --prediction_data=/d", ""},
		{Predict, "--image_name=i --volume=claim_name=e,mount_path=/ckpt " + predict,
			"--prediction_outputs=/out/out.csv: expected a path that is mounted (--volume)"},
		{Evaluate, "--runtime=local --job_name=j --model_def=m --checkpoint_dir_for_init=c",
			"--validation_data is missing"},
		{Evaluate, "--runtime=local --job_name=j --model_def=m --validation_data=c",
			"--checkpoint_dir_for_init is missing: name the checkpoints"},
		{Predict, "--runtime=local --job_name=j --model_def=m --checkpoint_dir_for_init=c " +
			"--prediction_outputs=o", "--prediction_data is missing"},
		{Predict, "--runtime=local --job_name=j --model_def=m --checkpoint_dir_for_init=c " +
			"--prediction_data=o", "--prediction_outputs is missing: name a .csv file"},
		{Predict, "--runtime=local " + predict + " --training_data=x",
			"--training_data=x: only for jobs of type train, not predict; remove it"},
		{Predict, "--runtime=local " + predict + " --validation_data=x",
			"--validation_data=x: only for jobs of type train or evaluate, not predict; remove it"},
		{Predict, "--runtime=local " + predict + " --output=x",
			"--output=x: only for jobs of type train, not predict; remove it; --prediction_outputs is"},
		{Evaluate, "--runtime=local " + evaluate + " --checkpoint_dir=x",
			"--checkpoint_dir=x: only for jobs of type train, not evaluate; remove it; " +
				"--checkpoint_dir_for_init names the model"},
		{Predict, "--runtime=local " + predict + " --prediction_outputs=/data/new/o.csv",
			"--prediction_outputs=/data/new/o.csv: it is in --prediction_data=/data/new, of which every file is read"},
		{Predict, "--runtime=local " + predict + " --prediction_outputs=ftp://o.csv",
			"--prediction_outputs=ftp://o.csv: expected a .csv file or a directory, s3://"},
		{Predict, "--runtime=local " + predict + " --prediction_outputs_processor=mine",
			"--prediction_outputs_processor=mine: not available"},
		{Evaluate, "--runtime=local " + evaluate + " --num_wrkers=3", "did you mean --num_workers?"},
		{Evaluate, "--runtime=local " + evaluate + " --frobnicate=3", "see elasticdl evaluate --help"},
	} {
		got, err := Parse(c.kind, strings.Fields(c.args))
		if c.want != "" {
			if err == nil || lines(err) != 1 || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s %s: %v, want one problem with %q", c.kind, c.args, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s %s: %v", c.kind, c.args, err)
			continue
		}
		if j := got.Job; j.Type != c.kind || j.Strategy != "" || j.NumPS != 0 ||
			j.CheckpointDir != "" || j.CheckpointInterval.Duration != 0 {
			t.Errorf("%s %s: %+v", c.kind, c.args, j)
		}
	}
	got, _ := Parse(Predict, strings.Fields("--runtime=local --num_epochs=5 --num_ps_pods=2 "+
		"--num_workers=3 --seed=4 "+predict))
	if want := []string{"no effect with predict: --num_epochs, --num_ps_pods, --seed"}; !slices.Equal(got.Notes, want) {
		t.Errorf("notes %q, expected %q", got.Notes, want)
	}
}

func FuzzParse(f *testing.F) {
	for _, command := range []string{cloud, minikube, allReduce, elastic, "--use_async=perhaps --x",
		allReduce + " --min_workers=1 --max_workers=8 --global_batch_size=256 --heartbeat_timeout=90s",
		strings.Replace(allReduce, "--distribution_strategy=AllreduceStrategy",
			"--num_ps_pods=0 --scale_learning_rate", 1)} {
		f.Add(strings.Join(local(command), "\n"))
		f.Add(strings.Join(strings.Fields(command), "\n"))
	}
	f.Add(strings.Join(onCluster("--max_memory=8Gi --ttl=0 --deadline=1h --suspend "+
		"--tolerations=key=k,effect=NoExecute,seconds=60 --node_selector=a=b --worker_resource_limit=gpu=1"), "\n"))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse(Train, strings.Split(text, "\n"))
		if err != nil {
			return
		}
		if err := c.Job.Validate(); err != nil {
			t.Fatalf("parsed, and not valid: %v", err)
		}
		if err := c.Job.ValidateCluster(); err != nil && c.Runtime == "kubernetes" {
			t.Fatalf("parsed, and not valid on Kubernetes: %v", err)
		}
		if j := c.Job; (j.Strategy == AllReduce) != (j.NumPS == 0) || j.MinWorkers > j.NumWorkers ||
			j.MaxWorkers > 0 && j.NumWorkers > j.MaxWorkers {
			t.Fatalf("parsed, and contradicts itself: %+v", j)
		}
		survives(t, c.Job)
	})
}
