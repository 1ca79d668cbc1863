package job

import "slices"

// Flag is one flag of `elasticdl train`, evaluate or predict.
type Flag struct {
	// name, in ElasticDL's spelling
	Name string
	// one letter, such as "n" for -n; "": none
	Short string
	// heading in the help text
	Topic Topic
	// other names of the same flag
	Aliases []string
	// line of the help text
	Usage string
	// runtime on which it has an effect
	Effect Effect
	// for Later: "; " and the alternative, or ""
	Instead string
	bind    func(*Command) value
}

// Topic is a heading of the help text.
type Topic string

const (
	General   Topic = "General"
	Model     Topic = "Model"
	Data      Topic = "Data"
	Training  Topic = "Training"
	Tolerance Topic = "Fault tolerance"
	Chkpoints Topic = "Checkpoints"
	Processes Topic = "Processes"
	Pods      Topic = "Pods"
	Remnants  Topic = "Older flags"
)

// Effect is the runtime on which a flag has an effect.
type Effect int

const (
	Everywhere Effect = iota + 1
	// with --runtime=local only: on Kubernetes it is always on, which a note reports
	LocalOnly
	// on Kubernetes only: a note reports that it has no effect with --runtime=local
	Cluster
	// no effect, because it is always on or has lost its meaning: a note reports that
	Ignored
	// not available in this version: a value other than the default is refused
	Later
)

// With reports whether the flag has its effect in jobs of a type.
func (f *Flag) With(t Type) bool { return slices.Contains(f.types(), t) }

// types returns the types of jobs in which the flag has its effect.
func (f *Flag) types() []Type {
	types, limited := typesOfFlag[f.Name]
	switch path := f.Field(); {
	case limited:
		return types
	case path != "":
		return typesOf(path)
	case f.ofProgram():
		return []Type{Run}
	case f.Topic == General || f.Topic == Pods || f.Topic == Remnants:
		return allTypes
	}
	return forModels
}

// ofProgram reports whether a flag is one of `elasticdl run` alone.
func (f *Flag) ofProgram() bool {
	return slices.ContainsFunc(programFlags, func(o Flag) bool { return o.Name == f.Name })
}

// typesOfFlag lists the types of job in which a flag has its effect, for flags that set no field of
// [Job]. For the others the field decides.
var typesOfFlag = map[string][]Type{
	"job_command": {Train, Run}, "record_per_task": forModels,
	"prediction_outputs_processor": {Predict},
}

// TakesValue reports whether the flag needs a value; booleans do not.
func (f *Flag) TakesValue() bool { return f.Kind() != "" }

// Kind returns the placeholder of the flag's value in the help text, "" for a boolean.
func (f *Flag) Kind() string { return f.bind(NewCommand(Train)).kind }

// Default returns the flag's default in jobs of a type, "" if it has none.
func (f *Flag) Default(t Type) string { return f.bind(NewCommand(t)).get() }

// Flags returns all flags, in the order of the help text.
func Flags() []Flag {
	return flags
}

var flags = append([]Flag{
	{Name: "job_name", Topic: General, Effect: Everywhere,
		Usage: "name of the job and prefix of its pods' names (required)", bind: func(c *Command) value {
			return text(&c.Job.Name)
		}},
	{Name: "runtime", Topic: General, Effect: Everywhere,
		Usage: "where pods run: kubernetes, or local (processes of this machine)", bind: func(c *Command) value {
			return text(&c.Runtime)
		}},
	{Name: "detach", Topic: General, Effect: LocalOnly, Usage: "start the job in the background, and return",
		bind: func(c *Command) value {
			return boolean(&c.Detach)
		}},
	{Name: "dry_run", Topic: General, Effect: Everywhere,
		Usage: "check the flags, print the job as JSON, and start nothing",
		bind: func(c *Command) value {
			return boolean(&c.DryRun)
		}},
	{Name: "log_level", Topic: General, Effect: Everywhere,
		Usage: "lowest level of log lines: DEBUG, INFO, WARNING, ERROR or CRITICAL", bind: func(c *Command) value {
			return text(&c.Job.LogLevel)
		}},
	{Name: "tensorboard_log_dir", Topic: General, Effect: Everywhere,
		Usage: "directory, or s3:// or gs:// URL, for TensorBoard: loss, metrics, throughput, workers, faults",
		bind: func(c *Command) value {
			return filePath(&c.Job.TensorBoardLogDir)
		}},
	{Name: "metrics_port", Topic: General, Effect: Everywhere,
		Usage: "port of the metrics for Prometheus; with --runtime=local on the loopback interface [none]",
		bind: func(c *Command) value {
			return number(&c.Job.MetricsPort)
		}},
	{Name: "metrics_from", Topic: General, Effect: Cluster,
		Usage: "namespaces whose pods may read the metrics, at port 9108 or --metrics_port [none]",
		bind: func(c *Command) value {
			return list(&c.Job.MetricsFrom)
		}},
	{Name: "yaml", Topic: General, Effect: Cluster,
		Usage: "write the job's manifests to this file, - for standard output, and submit nothing",
		bind: func(c *Command) value {
			return filePath(&c.YAML)
		}},
	{Name: "follow", Topic: General, Effect: Cluster,
		Usage: "print the logs of all pods until the job ends", bind: func(c *Command) value {
			return boolean(&c.Follow)
		}},
	{Name: "watch", Topic: General, Effect: Cluster,
		Usage: "print the job's progress until it ends", bind: func(c *Command) value {
			return boolean(&c.Watch)
		}},
	{Name: "format", Short: "o", Topic: General, Effect: Everywhere,
		Usage: "output format: text, or json for the job's status",
		bind: func(c *Command) value {
			return text(&c.Format)
		}},

	{Name: "model_def", Topic: Model, Effect: Everywhere,
		Usage: "model as PACKAGE.FILE.FUNCTION, such as mnist.mnist_functional_api.custom_model (required)",
		bind: func(c *Command) value {
			return text(&c.Job.ModelDef)
		}},
	{Name: "model_zoo", Topic: Model, Effect: Ignored,
		Usage: "elasticdl zoo build compiles the models into the image", bind: func(c *Command) value {
			return filePath(&c.Job.ModelZoo)
		}},
	{Name: "feed", Topic: Model, Effect: Everywhere,
		Usage: "function of the model that turns records into a batch", bind: func(c *Command) value {
			return onlyDefault(&c.Job.Feed)
		}},
	{Name: "loss", Topic: Model, Effect: Everywhere, Usage: "loss function of the model", bind: func(c *Command) value {
		return onlyDefault(&c.Job.Loss)
	}},
	{Name: "optimizer", Topic: Model, Effect: Everywhere, Usage: "optimizer function of the model",
		bind: func(c *Command) value {
			return onlyDefault(&c.Job.Optimizer)
		}},
	{Name: "callbacks", Topic: Model, Effect: Everywhere, Usage: "callbacks function of the model",
		bind: func(c *Command) value {
			return onlyDefault(&c.Job.Callbacks)
		}},
	{Name: "eval_metrics_fn", Topic: Model, Effect: Everywhere, Usage: "metrics function of the model",
		bind: func(c *Command) value {
			return onlyDefault(&c.Job.EvalMetricsFn)
		}},
	{Name: "custom_data_reader", Topic: Model, Effect: Everywhere,
		Usage: "data reader function of the model", bind: func(c *Command) value {
			return onlyDefault(&c.Job.CustomDataReader)
		}},
	{Name: "output", Topic: Model, Effect: Everywhere,
		Usage: "destination of the trained model: a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
		bind: func(c *Command) value {
			return filePath(&c.Job.Output)
		}},
	{Name: "prediction_outputs_processor", Topic: Model, Effect: Everywhere,
		Usage: "function of the model that turns outputs into rows", bind: func(c *Command) value {
			return onlyDefault(&c.processor)
		}},

	{Name: "training_data", Topic: Data, Effect: Everywhere,
		Aliases: []string{"train_data_dir", "training_data_dir"},
		Usage:   "RecordIO directory or file, .csv, or bucket (required)", bind: func(c *Command) value {
			return filePath(&c.Job.TrainingData)
		}},
	{Name: "validation_data", Topic: Data, Effect: Everywhere, Aliases: []string{"evaluation_data_dir"},
		Usage: "RecordIO directory or file, .csv, or bucket (required by evaluate)", bind: func(c *Command) value {
			return filePath(&c.Job.ValidationData)
		}},
	{Name: "prediction_data", Topic: Data, Effect: Everywhere,
		Usage: "RecordIO directory or file, .csv, or bucket (required)", bind: func(c *Command) value {
			return filePath(&c.Job.PredictionData)
		}},
	{Name: "prediction_outputs", Topic: Data, Effect: Everywhere,
		Usage: "destination of the predictions: FILE.csv, a directory, or s3:// or gs:// with either (required)",
		bind: func(c *Command) value {
			return filePath(&c.Job.PredictionOutputs)
		}},
	{Name: "data_reader_params", Topic: Data, Effect: Everywhere,
		Usage: "parameters of the data reader: reader_type; for CSV delimiter, header, columns",
		bind: func(c *Command) value {
			return params(&c.Job.DataReaderParams)
		}},
	{Name: "shuffle", Topic: Data, Effect: Everywhere,
		Usage: "new random order of tasks and records in each epoch", bind: func(c *Command) value {
			return boolean(&c.Job.Shuffle)
		}},
	{Name: "seed", Topic: Data, Effect: Everywhere, Usage: "seed of initial values, record order and dropout [0]",
		bind: func(c *Command) value {
			return seed(&c.Job.Seed)
		}},

	{Name: "distribution_strategy", Topic: Training, Effect: Everywhere,
		Usage: "ParameterServerStrategy, or AllreduceStrategy (no parameter servers)", bind: func(c *Command) value {
			return strategy(&c.Job.Strategy)
		}},
	{Name: "num_workers", Topic: Training, Effect: Everywhere, Aliases: []string{"num_worker"},
		Usage: "number of workers", bind: func(c *Command) value {
			return number(&c.Job.NumWorkers)
		}},
	{Name: "min_workers", Topic: Training, Effect: Everywhere,
		Usage: "minimum number of workers; training pauses below it [1]", bind: func(c *Command) value {
			return number(&c.Job.MinWorkers)
		}},
	{Name: "max_workers", Topic: Training, Effect: Everywhere,
		Usage: "maximum number of workers for elasticdl scale [no limit]", bind: func(c *Command) value {
			return number(&c.Job.MaxWorkers)
		}},
	{Name: "num_ps_pods", Topic: Training, Effect: Everywhere, Aliases: []string{"num_ps"},
		Usage: "number of parameter servers; 0 means AllreduceStrategy", bind: func(c *Command) value {
			return number(&c.Job.NumPS)
		}},
	{Name: "num_epochs", Topic: Training, Effect: Everywhere, Aliases: []string{"num_epoch"},
		Usage: "number of passes over the training data", bind: func(c *Command) value {
			return number(&c.Job.NumEpochs)
		}},
	{Name: "minibatch_size", Topic: Training, Effect: Everywhere, Usage: "number of records per minibatch",
		bind: func(c *Command) value {
			return number(&c.Job.MinibatchSize)
		}},
	{Name: "global_batch_size", Topic: Training, Effect: Everywhere,
		Usage: "fixed number of records per update (AllreduceStrategy) [one minibatch per worker]",
		bind: func(c *Command) value {
			return number(&c.Job.GlobalBatchSize)
		}},
	{Name: "scale_learning_rate", Topic: Training, Effect: Everywhere,
		Usage: "multiply the learning rate by the number of workers (AllreduceStrategy)", bind: func(c *Command) value {
			return boolean(&c.Job.ScaleLearningRate)
		}},
	{Name: "num_minibatches_per_task", Topic: Training, Effect: Everywhere,
		Usage: "number of minibatches per task, the unit that is leased to a worker", bind: func(c *Command) value {
			return number(&c.Job.NumMinibatchesPerTask)
		}},
	{Name: "max_step", Topic: Training, Effect: Everywhere,
		Usage: "number of minibatches after which training stops [no limit]", bind: func(c *Command) value {
			return number(&c.Job.MaxStep)
		}},
	{Name: "evaluation_steps", Topic: Training, Effect: Everywhere,
		Usage: "model versions between evaluations; the final model is always evaluated [final model only]",
		bind: func(c *Command) value {
			return number(&c.Job.EvaluationSteps)
		}},
	{Name: "grads_to_wait", Topic: Training, Effect: Everywhere,
		Usage: "gradients that servers average per update; more than 1 makes training synchronous",
		bind: func(c *Command) value {
			return number(&c.Job.GradsToWait)
		}},
	{Name: "use_async", Topic: Training, Effect: Everywhere,
		Usage: "asynchronous training: apply each gradient at once, and refuse none as stale",
		bind: func(c *Command) value {
			return boolean(&c.Job.UseAsync)
		}},
	{Name: "sync_version_tolerance", Topic: Training, Effect: Everywhere,
		Usage: "largest staleness of an accepted gradient, in versions; makes training synchronous",
		bind: func(c *Command) value {
			return optionalNumber(&c.Job.SyncVersionTolerance)
		}},
	{Name: "lr_staleness_modulation", Topic: Training, Effect: Everywhere,
		Usage: "divide the learning rate by the staleness of the gradient", bind: func(c *Command) value {
			return boolean(&c.Job.LRStalenessModulation)
		}},
	{Name: "get_model_steps", Topic: Training, Effect: Everywhere,
		Usage: "minibatches that a worker trains locally between two pulls of the model", bind: func(c *Command) value {
			return number(&c.Job.GetModelSteps)
		}},
	{Name: "log_loss_steps", Topic: Training, Effect: Everywhere,
		Usage: "minibatches between two loss lines of a worker; 0 disables them", bind: func(c *Command) value {
			return number(&c.Job.LogLossSteps)
		}},
	{Name: "num_threads", Topic: Training, Effect: Everywhere,
		Usage: "threads per worker [its share of the cores]", bind: func(c *Command) value {
			return number(&c.Job.NumThreads)
		}},
	{Name: "data_encryption", Topic: Training, Effect: Everywhere,
		Usage: "tls (default), or off: authenticate peers but send gradients unencrypted",
		bind: func(c *Command) value {
			return text(&c.Job.DataEncryption)
		}},

	{Name: "relaunch_on_worker_failure", Topic: Tolerance, Effect: Everywhere,
		Usage: "number of replacements for a worker that crashes; lost workers are always replaced",
		bind: func(c *Command) value {
			return number(&c.Job.RelaunchOnWorkerFailure)
		}},
	{Name: "max_task_retries", Topic: Tolerance, Effect: Everywhere,
		Usage: "number of failures of one task before the job fails", bind: func(c *Command) value {
			return number(&c.Job.MaxTaskRetries)
		}},
	{Name: "task_timeout", Topic: Tolerance, Effect: Everywhere,
		Usage: "minimum time before a task is leased again; raised to 3 x the longest task",
		bind: func(c *Command) value {
			return duration(&c.Job.TaskTimeout)
		}},
	{Name: "heartbeat_timeout", Topic: Tolerance, Effect: Everywhere,
		Usage: "time without heartbeats after which a worker is replaced; not with parameter servers",
		bind: func(c *Command) value {
			return duration(&c.Job.HeartbeatTimeout)
		}},

	{Name: "grace_period", Topic: Tolerance, Effect: Everywhere,
		Usage: "time from SIGTERM to SIGKILL when a worker or the job stops; also the limit for its checkpoint",
		bind:  gracePeriod},

	{Name: "checkpoint_dir", Topic: Chkpoints, Effect: Everywhere,
		Usage: "checkpoint directory, or s3:// or gs:// URL [on a --volume with a claim_name, or local]",
		bind: func(c *Command) value {
			return filePath(&c.Job.CheckpointDir)
		}},
	{Name: "checkpoint_steps", Topic: Chkpoints, Effect: Everywhere,
		Usage: "number of model versions between checkpoints", bind: func(c *Command) value {
			return number(&c.Job.CheckpointSteps)
		}},
	{Name: "checkpoint_interval", Topic: Chkpoints, Effect: Everywhere,
		Usage: "time between checkpoints; 0 disables them [30s without --checkpoint_steps]",
		bind: func(c *Command) value {
			return duration(&c.Job.CheckpointInterval)
		}},
	{Name: "keep_checkpoint_max", Topic: Chkpoints, Effect: Everywhere,
		Usage: "number of newest checkpoints to keep; 0 keeps all", bind: func(c *Command) value {
			return number(&c.Job.KeepCheckpointMax)
		}},
	{Name: "checkpoint_dir_for_init", Topic: Chkpoints, Effect: Everywhere,
		Usage: "initial model: a checkpoint directory, one checkpoint, or an exported model",
		bind: func(c *Command) value {
			return filePath(&c.Job.CheckpointDirForInit)
		}},
	{Name: "checkpoint_dir_take_over", Topic: Chkpoints, Effect: Everywhere,
		Usage: "take over checkpoints owned by a job that no longer exists", bind: func(c *Command) value {
			return boolean(&c.Job.CheckpointDirTakeOver)
		}},
}, slices.Concat(programFlags, podFlags, oldFlags)...)

// gracePeriod returns the value of --grace_period, which shows the default although the job's field
// is 0 then.
func gracePeriod(c *Command) value {
	v := duration(&c.Job.GracePeriod)
	v.get = func() string { return c.Job.TimeToEnd().String() }
	return v
}

// oldFlags are flags of earlier ElasticDL versions: those that a flag with another meaning has
// replaced, and those that are no longer needed.
var oldFlags = []Flag{
	{Name: "model_file", Topic: Remnants, Effect: Everywhere, Usage: "--model_def, as a file",
		bind: func(c *Command) value {
			return modelFile(&c.Job.ModelDef)
		}},
	{Name: "record_per_task", Topic: Remnants, Effect: Everywhere,
		Aliases: []string{"records_per_task"}, Usage: "--num_minibatches_per_task, in records",
		bind: func(c *Command) value {
			return number(&c.recordsPerTask)
		}},
	{Name: "repository", Topic: Remnants, Effect: Cluster, Aliases: []string{"docker_image_repository"},
		Usage: "prefix of --image_name", bind: func(c *Command) value {
			return text(&c.repository)
		}},
	{Name: "master_cpu_request", Topic: Remnants, Effect: Cluster,
		Usage: "--master_resource_request=cpu=...", bind: func(c *Command) value {
			return quantity(&c.Job.Master.Request, "cpu")
		}},
	{Name: "master_cpu_limit", Topic: Remnants, Effect: Cluster,
		Usage: "--master_resource_limit=cpu=...", bind: func(c *Command) value {
			return quantity(&c.Job.Master.Limit, "cpu")
		}},
	{Name: "master_memory_request", Topic: Remnants, Effect: Cluster,
		Usage: "--master_resource_request=memory=...", bind: func(c *Command) value {
			return quantity(&c.Job.Master.Request, "memory")
		}},
	{Name: "master_memory_limit", Topic: Remnants, Effect: Cluster,
		Usage: "--master_resource_limit=memory=...", bind: func(c *Command) value {
			return quantity(&c.Job.Master.Limit, "memory")
		}},
	{Name: "worker_cpu_request", Topic: Remnants, Effect: Cluster,
		Usage: "--worker_resource_request=cpu=...", bind: func(c *Command) value {
			return quantity(&c.Job.Worker.Request, "cpu")
		}},
	{Name: "worker_cpu_limit", Topic: Remnants, Effect: Cluster,
		Usage: "--worker_resource_limit=cpu=...", bind: func(c *Command) value {
			return quantity(&c.Job.Worker.Limit, "cpu")
		}},
	{Name: "worker_memory_request", Topic: Remnants, Effect: Cluster,
		Usage: "--worker_resource_request=memory=...", bind: func(c *Command) value {
			return quantity(&c.Job.Worker.Request, "memory")
		}},
	{Name: "worker_memory_limit", Topic: Remnants, Effect: Cluster,
		Usage: "--worker_resource_limit=memory=...", bind: func(c *Command) value {
			return quantity(&c.Job.Worker.Limit, "memory")
		}},
	{Name: "need_elasticdl_job_service", Topic: Remnants, Effect: Ignored, Usage: "always on", bind: toBool},
	{Name: "need_task_manager", Topic: Remnants, Effect: Ignored, Usage: "always on", bind: toBool},
	{Name: "need_pod_manager", Topic: Remnants, Effect: Ignored, Usage: "always on", bind: toBool},
	{Name: "task_fault_tolerance", Topic: Remnants, Effect: Ignored, Usage: "always on", bind: toBool},
	{Name: "relaunch_timeout_worker", Topic: Remnants, Effect: Ignored,
		Usage: "always on; see --task_timeout", bind: toBool},
	{Name: "force_use_kube_config_file", Topic: Remnants, Effect: Ignored,
		Usage: "an existing file is always used first", bind: toBool},
	{Name: "custom_training_loop", Topic: Remnants, Effect: Ignored, Usage: "a program has its own loop", bind: toBool},
	{Name: "codec_type", Topic: Remnants, Effect: Ignored, Usage: "records are not encoded", bind: toNowhere},
	{Name: "use_go_ps", Topic: Remnants, Effect: Ignored, Usage: "always on", bind: toBool},
	{Name: "push_image", Topic: Remnants, Effect: Ignored, Usage: "train builds no image", bind: toBool},
	{Name: "extra_pypi_index", Topic: Remnants, Effect: Ignored, Usage: "train installs no packages", bind: toNowhere},
	{Name: "docker_base_url", Topic: Remnants, Effect: Ignored, Usage: "Docker is not used", bind: toNowhere},
	{Name: "docker_tlscert", Topic: Remnants, Effect: Ignored, Usage: "Docker is not used", bind: toNowhere},
	{Name: "docker_tlskey", Topic: Remnants, Effect: Ignored, Usage: "Docker is not used", bind: toNowhere},
	{Name: "log_file_path", Topic: Remnants, Effect: Later, Usage: "file that logs are copied to",
		Instead: "; see elasticdl logs", bind: toNowhere},
	{Name: "aux_params", Topic: Remnants, Effect: Later, Usage: "further parameters",
		Instead: "; for disable_relaunch give --relaunch_on_worker_failure=0", bind: toNowhere},
	{Name: "model_params", Topic: Remnants, Effect: Later, Usage: "arguments of the model function", bind: toNowhere},
}

func toNowhere(*Command) value { return text(new(string)) }
func toBool(*Command) value    { return boolean(new(bool)) }
