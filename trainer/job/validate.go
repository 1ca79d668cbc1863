package job

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// MaxName is the longest job name: elasticdl-<job>-worker-<n> is a label of at most 63 characters.
const MaxName = 40

// MostServers is how many parameter servers a job may have: each has a Service.
const MostServers = 1000

// MostWorkers is how many workers a job may want: more is a slip of the hand.
const MostWorkers = 10_000

var (
	jobName  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	modelDef = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
)

// problems gathers what is wrong; check adds one if ok is false.
type problems []error

func (p *problems) check(ok bool, format string, args ...any) {
	if !ok {
		*p = append(*p, fmt.Errorf(format, args...))
	}
}

func (p *problems) atLeast(low, n int, flag string) {
	p.check(n >= low, "--%s=%d: expected %d or more", flag, n, low)
}

func (p *problems) oneOf(value, flag string, choices ...string) {
	p.check(slices.Contains(choices, value), "--%s=%s: expected %s", flag, value, strings.Join(choices, ", "))
}

// Validate reports everything that is wrong with the job, joined: by flag,
// with what was given and what is expected.
func (j *Job) Validate() error {
	var p problems
	j.checkNames(&p)
	j.checkWorkers(&p)
	if j.Runs() {
		j.checkProgram(&p)
		p.atLeast(0, j.RelaunchOnWorkerFailure, "relaunch_on_worker_failure")
	} else {
		j.checkModel(&p)
		j.checkData(&p)
		j.checkNumbers(&p)
		switch j.Strategy {
		case AllReduce:
			j.checkRing(&p)
		case ParameterServer:
			j.checkServers(&p)
		}
		j.checkCheckpoints(&p)
	}
	j.checkPods(&p)
	return errors.Join(p...)
}

// CheckName says what is wrong with the name of a job.
func CheckName(name string) error {
	if !jobName.MatchString(name) || len(name) > MaxName {
		return fmt.Errorf("%s: expected at most %d lower-case letters, digits and '-', beginning and ending with a letter or digit", name, MaxName)
	}
	return nil
}

func (j *Job) checkNames(p *problems) {
	switch err := CheckName(j.Name); {
	case j.Name == "":
		p.check(false, "--job_name is missing: give the job a name")
	default:
		p.check(err == nil, "--job_name=%w", err)
	}
	p.check(j.Namespace == "" || jobName.MatchString(j.Namespace),
		"--namespace=%s: expected lower-case letters, digits and '-'", j.Namespace)
	p.oneOf(cmp.Or(j.DataEncryption, "tls"), "data_encryption", "tls", "off")
	p.oneOf(strings.ToUpper(j.LogLevel), "log_level", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}

func (j *Job) checkModel(p *problems) {
	switch {
	case j.ModelDef == "":
		p.check(false, "--model_def is missing: name a model, as --model_def=mnist.mnist_functional_api.custom_model")
	default:
		p.check(modelDef.MatchString(j.ModelDef), "--model_def=%s: expected names joined by dots, as mnist.mnist_functional_api.custom_model", j.ModelDef)
	}
	if j.Trains() {
		p.oneOf(string(j.Strategy), "distribution_strategy", string(ParameterServer), string(AllReduce))
	}
}

func (j *Job) checkData(p *problems) {
	switch j.Type {
	case Train:
		p.check(j.TrainingData != "", "--training_data is missing: name a RecordIO directory or a .csv file")
		p.check(j.EvaluationSteps <= 0 || j.ValidationData != "", "--evaluation_steps=%d needs --validation_data", j.EvaluationSteps)
	case Evaluate:
		p.check(j.ValidationData != "", "--validation_data is missing: name a RecordIO directory or a .csv file")
	case Predict:
		p.check(j.PredictionData != "", "--prediction_data is missing: name a RecordIO directory or a .csv file")
		p.check(j.PredictionOutputs != "", "--prediction_outputs is missing: name a .csv file, or a directory for parts of it")
	default:
		p.check(false, "job type %q: expected %s, %s, %s or %s", j.Type, Train, Evaluate, Predict, Run)
		return
	}
	for _, f := range []struct{ flag, value, instead string }{
		{"training_data", j.TrainingData, ""},
		{"validation_data", j.ValidationData, ""},
		{"prediction_data", j.PredictionData, ""},
		{"prediction_outputs", j.PredictionOutputs, "; --output is for the trained model"},
		{"output", j.Output, "; --prediction_outputs is for what predict writes, --checkpoint_dir_for_init names the model"},
		{"checkpoint_dir", j.CheckpointDir, "; --checkpoint_dir_for_init names the model"},
	} {
		types := goesWith[f.flag]
		p.check(f.value == "" || slices.Contains(types, j.Type), "--%s=%s: goes with %s, not with %s: drop it%s", f.flag, f.value, types[0], j.Type, f.instead)
	}
	for _, f := range []struct{ flag, value string }{{"training_data", j.TrainingData}, {"validation_data", j.ValidationData}, {"prediction_data", j.PredictionData}} {
		p.check(!strings.HasPrefix(f.value, "s3://") && !strings.HasPrefix(f.value, "gs://"), "--%s=%s: records are read from files, not over a network: copy them to a directory, or to a claim of --volume", f.flag, f.value)
	}
	if !j.Trains() {
		j.checkFixed(p)
	}
}

// checkFixed refuses what a job that trains nothing cannot do.
func (j *Job) checkFixed(p *problems) {
	p.check(j.Strategy == "" && j.NumPS == 0, "--distribution_strategy=%s: a job to %s has no strategy and no parameter servers", j.Strategy, j.Type)
	p.check(j.CheckpointDirForInit != "", "--checkpoint_dir_for_init is missing: name the checkpoints of the job that has trained the model, one of them, or an exported model")
	if out := j.PredictionOutputs; out != "" {
		p.check(bucketOrPath(out), "--prediction_outputs=%s: expected a .csv file or a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX", out)
		flag, data := j.dataAround(out)
		p.check(data == "" || InBucket(out), "--prediction_outputs=%s: it is in --%s=%s, of which every file is read; give another", out, flag, data)
	}
}

func (j *Job) checkNumbers(p *problems) {
	p.atLeast(1, j.NumEpochs, "num_epochs")
	p.atLeast(1, j.MinibatchSize, "minibatch_size")
	p.atLeast(1, j.NumMinibatchesPerTask, "num_minibatches_per_task")
	p.atLeast(0, j.MaxStep, "max_step")
	p.atLeast(0, j.EvaluationSteps, "evaluation_steps")
	p.atLeast(0, j.LogLossSteps, "log_loss_steps")
	p.atLeast(0, j.NumThreads, "num_threads")
	p.atLeast(1, j.MaxTaskRetries, "max_task_retries")
	p.atLeast(0, j.RelaunchOnWorkerFailure, "relaunch_on_worker_failure")
	p.check(j.TaskTimeout.Duration >= time.Second, "--task_timeout=%v: expected 1s or more", j.TaskTimeout)
}

func (j *Job) checkWorkers(p *problems) {
	p.atLeast(1, j.NumWorkers, "num_workers")
	p.check(j.NumWorkers <= MostWorkers, "--num_workers=%d: expected at most %d", j.NumWorkers, MostWorkers)
	p.atLeast(0, j.MinWorkers, "min_workers")
	p.atLeast(0, j.MaxWorkers, "max_workers")
	if j.MaxWorkers > 0 && j.MinWorkers > j.MaxWorkers {
		p.check(false, "--min_workers=%d: more than --max_workers=%d", j.MinWorkers, j.MaxWorkers)
		return
	}
	p.check(j.MinWorkers <= j.NumWorkers, "--min_workers=%d: more than --num_workers=%d", j.MinWorkers, j.NumWorkers)
	p.check(j.MaxWorkers <= 0 || j.NumWorkers <= j.MaxWorkers, "--max_workers=%d: fewer than --num_workers=%d", j.MaxWorkers, j.NumWorkers)
}

// checkRing refuses what only parameter servers can do.
func (j *Job) checkRing(p *problems) {
	const strategy = "--distribution_strategy=" + string(AllReduce)
	p.check(j.NumPS == 0, "--num_ps_pods=%d: "+strategy+" has no parameter servers; drop one of the two", j.NumPS)
	p.check(j.GradsToWait == 1, "--grads_to_wait=%d: with "+strategy+" an update is of every worker's gradient; drop it, or give --global_batch_size", j.GradsToWait)
	p.check(!j.UseAsync, "--use_async: with "+strategy+" all workers update together; drop one of the two")
	if j.SyncVersionTolerance != nil {
		p.check(false, "--sync_version_tolerance=%d: with "+strategy+" no gradient is stale; drop it", *j.SyncVersionTolerance)
	}
	p.check(!j.LRStalenessModulation, "--lr_staleness_modulation: with "+strategy+" no gradient is stale; drop it")
	p.check(j.GetModelSteps == 1, "--get_model_steps=%d: with "+strategy+" every worker holds the model and pulls none; drop it", j.GetModelSteps)

	p.atLeast(0, j.GlobalBatchSize, "global_batch_size")
	p.check(j.GlobalBatchSize <= 0 || j.GlobalBatchSize >= j.MinibatchSize,
		"--global_batch_size=%d: expected --minibatch_size=%d or more", j.GlobalBatchSize, j.MinibatchSize)
	p.check(!j.ScaleLearningRate || j.GlobalBatchSize == 0,
		"--scale_learning_rate: with --global_batch_size=%d an update is of as many records however many workers there are; drop one of the two", j.GlobalBatchSize)
	p.check(j.HeartbeatTimeout.Duration >= time.Second, "--heartbeat_timeout=%v: expected 1s or more", j.HeartbeatTimeout)
}

// checkServers refuses what only a ring can do, and what the servers cannot all do: ElasticDL changes such values silently.
func (j *Job) checkServers(p *problems) {
	p.check(j.NumPS <= MostServers, "--num_ps_pods=%d: expected at most %d", j.NumPS, MostServers)
	p.check(j.NumPS >= 1, "--num_ps_pods=%d: expected 1 or more with --distribution_strategy=%s", j.NumPS, ParameterServer)
	p.check(j.GlobalBatchSize == 0, "--global_batch_size=%d: needs --distribution_strategy=%s; see --grads_to_wait", j.GlobalBatchSize, AllReduce)
	p.check(!j.ScaleLearningRate, "--scale_learning_rate: needs --distribution_strategy=%s", AllReduce)
	p.atLeast(1, j.GradsToWait, "grads_to_wait")
	p.atLeast(1, j.GetModelSteps, "get_model_steps")
	tolerance := -1 // not given
	if j.SyncVersionTolerance != nil {
		tolerance = *j.SyncVersionTolerance
		p.atLeast(0, tolerance, "sync_version_tolerance")
	}
	if j.UseAsync {
		p.check(j.GradsToWait <= 1, "--grads_to_wait=%d: with --use_async each gradient is applied by itself; drop one of the two", j.GradsToWait)
		p.check(j.SyncVersionTolerance == nil, "--sync_version_tolerance=%d: with --use_async no gradient is refused; drop one of the two", tolerance)
	}
	if j.Synchronous() {
		why := fmt.Sprintf("--grads_to_wait=%d", j.GradsToWait)
		if j.GradsToWait <= 1 {
			why = fmt.Sprintf("--sync_version_tolerance=%d", tolerance)
		}
		p.check(j.GetModelSteps <= 1, "--get_model_steps=%d: local updates need asynchronous ones at the servers; drop %s or this", j.GetModelSteps, why)
		p.check(!j.LRStalenessModulation, "--lr_staleness_modulation: needs asynchronous updates; drop %s or this", why)
	}
}

func (j *Job) checkPods(p *problems) {
	p.oneOf(j.ImagePullPolicy, "image_pull_policy", "Always", "IfNotPresent", "Never")
	p.oneOf(j.RestartPolicy, "restart_policy", "Never", "OnFailure", "Always")
	p.check(j.Master.Priority.Share == 0, "--master_pod_priority=%v: a share goes with workers only", j.Master.Priority)
	p.check(j.PS.Priority.Share == 0, "--ps_pod_priority=%v: a share goes with workers only", j.PS.Priority)
	if _, err := regexp.Compile(j.PopulateEnvNames); err != nil {
		p.check(false, "--populate_env_names=%s: expected a regular expression", j.PopulateEnvNames)
	}
	j.checkSecrets(p)
	p.check(j.ClusterSpecJSON == "" || isObject(j.ClusterSpecJSON), "--cluster_spec_json: expected a JSON object")
}

func isObject(text string) bool {
	var object map[string]any
	return json.Unmarshal([]byte(text), &object) == nil && object != nil
}
