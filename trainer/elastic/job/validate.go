package job

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/secret"
)

// MaxName is the longest job name: elasticdl-<job>-worker-<n> is a label of at most 63 characters.
const MaxName = 40

// MostServers is the maximum number of parameter servers, each of which has a Service.
const MostServers = 1000

// MostWorkers is the maximum number of workers: more than that is taken for a mistake.
const MostWorkers = 10_000

var (
	jobName  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)
	modelDef = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$`)
)

// Validate reports everything that is wrong with the job, joined: each a [Problem],
// with what was given and what is expected.
func (j *Job) Validate() error { return j.validate().err() }

func (j *Job) validate() (p problems) {
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
	j.checkTensorBoard(&p)
	j.checkMetrics(&p)
	j.checkPods(&p)
	return p
}

// Ports that metrics may have: below them ports need privileges, and above them the kernel gives
// ports to connections.
const (
	leastMetricsPort = 1024
	mostMetricsPort  = 32767
)

func (j *Job) checkMetrics(p *problems) {
	p.check(j.MetricsPort == 0 || j.MetricsPort >= leastMetricsPort && j.MetricsPort <= mostMetricsPort,
		setting("metrics_port", j.MetricsPort), "expected a port from %d to %d, or 0 for none", leastMetricsPort,
		mostMetricsPort)
	for _, namespace := range j.MetricsFrom {
		p.check(dnsLabel(namespace), setting("metrics_from", namespace),
			"expected the names of namespaces, as monitoring")
	}
}

// CheckName returns an error if a job cannot have the name.
func CheckName(name string) error {
	if !isName(name) {
		return fmt.Errorf("%s: "+expectedName, name, MaxName)
	}
	return nil
}

const expectedName = "expected at most %d lower-case letters, digits and '-', beginning and ending " +
	"with a letter or digit"

func isName(name string) bool { return jobName.MatchString(name) && len(name) <= MaxName }

func (j *Job) checkNames(p *problems) {
	// the default name of a program's job is that of the program
	p.given(j.Name != "" || j.Runs() && len(j.Program.Command) == 0, setting("job_name"), "give the job a name")
	p.check(j.Name == "" || isName(j.Name), setting("job_name", j.Name), expectedName, MaxName)
	p.check(j.Namespace == "" || jobName.MatchString(j.Namespace), setting("namespace", j.Namespace),
		"expected lower-case letters, digits and '-'")
	p.check(j.GracePeriod.Duration == 0 || j.GracePeriod.Duration >= time.Second,
		setting("grace_period", j.GracePeriod), "expected 1s or more")
	p.oneOf(cmp.Or(j.DataEncryption, "tls"), "data_encryption", "tls", "off")
	p.oneOf(strings.ToUpper(j.LogLevel), "log_level", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}

func (j *Job) checkModel(p *problems) {
	p.given(j.ModelDef != "", setting("model_def"), "name a model, as %v",
		setting("model_def", "mnist.mnist_functional_api.custom_model"))
	p.check(j.ModelDef == "" || modelDef.MatchString(j.ModelDef), setting("model_def", j.ModelDef),
		"expected names joined by dots, as mnist.mnist_functional_api.custom_model")
	if j.Trains() {
		p.oneOf(string(j.Strategy), "distribution_strategy", string(ParameterServer), string(AllReduce))
	}
}

// anyData says what records can be read from.
const anyData = "name a directory of RecordIO files, a .csv file or a bucket"

func (j *Job) checkData(p *problems) {
	switch j.Type {
	case Train:
		p.given(j.TrainingData != "", setting("training_data"), anyData)
		p.check(j.EvaluationSteps <= 0 || j.ValidationData != "",
			setting("evaluation_steps", j.EvaluationSteps), "needs %v", setting("validation_data"))
	case Evaluate:
		p.given(j.ValidationData != "", setting("validation_data"), anyData)
	case Predict:
		p.given(j.PredictionData != "", setting("prediction_data"), anyData)
		p.given(j.PredictionOutputs != "", setting("prediction_outputs"),
			"name a .csv file, or a directory for parts of it")
	default:
		p.check(false, fieldOf("type", j.Type), "expected %s, %s, %s or %s", Train, Evaluate, Predict, Run)
		return
	}
	for _, f := range []struct {
		flag, value string
		instead     either
	}{
		{"training_data", j.TrainingData, either{}},
		{"validation_data", j.ValidationData, either{}},
		{"prediction_data", j.PredictionData, either{}},
		{"prediction_outputs", j.PredictionOutputs, either{"; --output is for the trained model",
			"; output is for the trained model"}},
		{"output", j.Output, either{"; --prediction_outputs is for what predict writes, " +
			"--checkpoint_dir_for_init names the model",
			"; predictionOutputs is for what predict writes, checkpointDirForInit names the model"}},
		{"checkpoint_dir", j.CheckpointDir, either{"; --checkpoint_dir_for_init names the model",
			"; checkpointDirForInit names the model"}},
	} {
		types := Find(f.flag).types()
		p.check(f.value == "" || slices.Contains(types, j.Type), setting(f.flag, f.value),
			"only for jobs of type %s, not %s; remove it%v", anyOf(types), j.Type, f.instead)
	}
	for _, f := range []struct{ flag, value string }{{"training_data", j.TrainingData},
		{"validation_data", j.ValidationData}, {"prediction_data", j.PredictionData}} {
		// a URL with a password is reported as a secret, without its text
		hidden := secret.Looks("", f.value) != ""
		p.check(f.value == "" || hidden || bucketOrPath(f.value), setting(f.flag, f.value),
			"expected a directory or a file, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
	}
	if !j.Trains() {
		j.checkFixed(p)
	}
}

// anyOf returns the types as words of a sentence: "train or evaluate".
func anyOf(types []Type) string {
	words := make([]string, len(types))
	for i, t := range types {
		words[i] = string(t)
	}
	return strings.Join(words, " or ")
}

// checkFixed refuses settings that a job to evaluate or predict cannot have.
func (j *Job) checkFixed(p *problems) {
	p.check(j.Strategy == "" && j.NumPS == 0, setting("distribution_strategy", j.Strategy),
		"a job to %s has no strategy and no parameter servers", j.Type)
	p.given(j.CheckpointDirForInit != "", setting("checkpoint_dir_for_init"),
		"name the checkpoints of the job that has trained the model, one of them, or an exported model")
	if out := j.PredictionOutputs; out != "" {
		p.check(bucketOrPath(out), setting("prediction_outputs", out),
			"expected a .csv file or a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
		data, within := j.dataAround(out)
		p.check(!within, setting("prediction_outputs", out),
			"it is in %v, of which every file is read; give another", data)
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
	p.check(j.TaskTimeout.Duration >= time.Second, setting("task_timeout", j.TaskTimeout), "expected 1s or more")
}

func (j *Job) checkWorkers(p *problems) {
	p.atLeast(1, j.NumWorkers, "num_workers")
	p.check(j.NumWorkers <= MostWorkers, setting("num_workers", j.NumWorkers), "expected at most %d", MostWorkers)
	p.atLeast(0, j.MinWorkers, "min_workers")
	p.atLeast(0, j.MaxWorkers, "max_workers")
	if j.MaxWorkers > 0 && j.MinWorkers > j.MaxWorkers {
		p.check(false, setting("min_workers", j.MinWorkers), "more than %v", setting("max_workers", j.MaxWorkers))
		return
	}
	p.check(j.MinWorkers <= j.NumWorkers, setting("min_workers", j.MinWorkers), "more than %v",
		setting("num_workers", j.NumWorkers))
	p.check(j.MaxWorkers <= 0 || j.NumWorkers <= j.MaxWorkers, setting("max_workers", j.MaxWorkers),
		"fewer than %v", setting("num_workers", j.NumWorkers))
}

// checkRing refuses settings that require parameter servers.
func (j *Job) checkRing(p *problems) {
	ring := setting("distribution_strategy", AllReduce)
	p.check(j.NumPS == 0, setting("num_ps_pods", j.NumPS), "%v has no parameter servers; remove one of the two", ring)
	p.check(j.GradsToWait == 1, setting("grads_to_wait", j.GradsToWait),
		"with %v an update has the gradients of all workers; remove it, or give %v", ring, setting("global_batch_size"))
	p.check(!j.UseAsync, setting("use_async"), "with %v all workers update together; remove one of the two", ring)
	if j.SyncVersionTolerance != nil {
		p.check(false, setting("sync_version_tolerance", *j.SyncVersionTolerance),
			"with %v no gradient is stale; remove it", ring)
	}
	p.check(!j.LRStalenessModulation, setting("lr_staleness_modulation"),
		"with %v no gradient is stale; remove it", ring)
	p.check(j.GetModelSteps == 1, setting("get_model_steps", j.GetModelSteps),
		"with %v every worker holds the model and pulls none; remove it", ring)

	p.atLeast(0, j.GlobalBatchSize, "global_batch_size")
	p.check(j.GlobalBatchSize <= 0 || j.GlobalBatchSize >= j.MinibatchSize,
		setting("global_batch_size", j.GlobalBatchSize),
		"expected %v or more", setting("minibatch_size", j.MinibatchSize))
	p.check(!j.ScaleLearningRate || j.GlobalBatchSize == 0, setting("scale_learning_rate"),
		"with %v the records per update do not depend on the number of workers; remove one of the two",
		setting("global_batch_size", j.GlobalBatchSize))
	p.check(j.HeartbeatTimeout.Duration >= time.Second,
		setting("heartbeat_timeout", j.HeartbeatTimeout), "expected 1s or more")
}

// checkServers refuses settings that require a ring, and settings that contradict each other.
// ElasticDL changed such values silently.
func (j *Job) checkServers(p *problems) {
	p.check(j.NumPS <= MostServers, setting("num_ps_pods", j.NumPS), "expected at most %d", MostServers)
	p.check(j.NumPS >= 1, setting("num_ps_pods", j.NumPS), "expected 1 or more with %v",
		setting("distribution_strategy", ParameterServer))
	p.check(j.GlobalBatchSize == 0, setting("global_batch_size", j.GlobalBatchSize), "needs %v; see %v",
		setting("distribution_strategy", AllReduce), setting("grads_to_wait"))
	p.check(!j.ScaleLearningRate, setting("scale_learning_rate"), "needs %v",
		setting("distribution_strategy", AllReduce))
	p.atLeast(1, j.GradsToWait, "grads_to_wait")
	p.atLeast(1, j.GetModelSteps, "get_model_steps")
	tolerance := -1 // not given
	if j.SyncVersionTolerance != nil {
		tolerance = *j.SyncVersionTolerance
		p.atLeast(0, tolerance, "sync_version_tolerance")
	}
	if j.UseAsync {
		p.check(j.GradsToWait <= 1, setting("grads_to_wait", j.GradsToWait),
			"with %v each gradient is applied on its own; remove one of the two", setting("use_async"))
		p.check(j.SyncVersionTolerance == nil, setting("sync_version_tolerance", tolerance),
			"with %v no gradient is refused; remove one of the two", setting("use_async"))
	}
	if j.Synchronous() {
		why := setting("grads_to_wait", j.GradsToWait)
		if j.GradsToWait <= 1 {
			why = setting("sync_version_tolerance", tolerance)
		}
		p.check(j.GetModelSteps <= 1, setting("get_model_steps", j.GetModelSteps),
			"local updates require asynchronous updates on the servers; remove %v or this", why)
		p.check(!j.LRStalenessModulation, setting("lr_staleness_modulation"),
			"requires asynchronous updates; remove %v or this", why)
	}
}

func (j *Job) checkPods(p *problems) {
	p.oneOf(j.ImagePullPolicy, "image_pull_policy", "Always", "IfNotPresent", "Never")
	p.oneOf(j.RestartPolicy, "restart_policy", "Never", "OnFailure", "Always")
	p.check(j.Master.Priority.Share == 0, setting("master_pod_priority", j.Master.Priority),
		"expected a PriorityClass: fractions are for workers only")
	p.check(j.PS.Priority.Share == 0, setting("ps_pod_priority", j.PS.Priority),
		"expected a PriorityClass: fractions are for workers only")
	if _, err := regexp.Compile(j.PopulateEnvNames); err != nil {
		p.check(false, setting("populate_env_names", j.PopulateEnvNames), "expected a regular expression")
	}
	j.checkSecrets(p)
	p.check(j.ClusterSpecJSON == "" || isObject(j.ClusterSpecJSON), setting("cluster_spec_json"),
		"expected a JSON object")
}

func isObject(text string) bool {
	var object map[string]any
	return json.Unmarshal([]byte(text), &object) == nil && object != nil
}
