// Package job says what a training job is: one plain value, [Job], that the
// command line, the master, the parameter servers, the workers and the
// infrastructure all read. It is written to and read from JSON as it stands.
//
// A [Command] makes a Job from the flags of `elasticdl train`, which are ElasticDL's by name and
// meaning. The command line's parser sets them: each is a pflag.Value ([Command.Value]), although
// this package does not import the parser. The table of flags ([Flags]) also makes the help text.
//
// Laws:
//
//  1. Validate and [Command.Settle] report every problem at once, each as a [Problem]: by the
//     setting's name, with what was given and what is expected. A problem names settings by flags,
//     or by fields to who gave those.
//  2. A flag has its effect, is reported as having none here, or is refused.
//  3. A valid Job survives JSON unchanged.
package job

import (
	"cmp"
	"time"
)

// Job is a job to train, evaluate or predict with a model, or to run a program. Its own fields are
// of all types of jobs. The structs that it embeds are of some types, which parts lists. As JSON
// all fields stand side by side. Counts are of records, minibatches, pods or model versions, as
// each field says; the zero value of an optional field means off or automatic. [Default] has
// ElasticDL's defaults.
type Job struct {
	// --job_name: unique where it runs; part of the pods' names
	Name string `json:"name"`
	// --namespace: of the cluster
	Namespace string `json:"namespace,omitzero"`
	// what the command was
	Type Type `json:"type"`

	// Each of these is of some types of jobs; the others ignore it.
	ModelSettings
	EvaluationSettings
	TrainingSettings
	PredictionSettings
	StateSettings
	Program

	// Workers, and the tasks that they are given.
	// --num_workers: workers wanted
	NumWorkers int `json:"numWorkers"`
	// --min_workers: a ring of fewer does not train; 0 = 1
	MinWorkers int `json:"minWorkers,omitzero"`
	// --max_workers: the job is not scaled beyond; 0 = no limit
	MaxWorkers int `json:"maxWorkers,omitzero"`
	// --num_minibatches_per_task; 0 = a program says, or its package
	NumMinibatchesPerTask int `json:"numMinibatchesPerTask"`

	// Fault tolerance. --task_timeout: floor; a task is taken back after max(this, 3 x the longest
	// completed)
	TaskTimeout Duration `json:"taskTimeout"`
	// --max_task_retries: failures of one task before the job fails
	MaxTaskRetries int `json:"maxTaskRetries"`
	// --relaunch_on_worker_failure: replacements of a worker that failed on its own
	RelaunchOnWorkerFailure int `json:"relaunchOnWorkerFailure"`
	// GracePeriod is --grace_period: from SIGTERM to SIGKILL when the job, or one of its workers,
	// is to end; 0: the default, see [Job.TimeToEnd]. A job without it is written as before there
	// was the flag.
	GracePeriod Duration `json:"gracePeriod,omitzero"`

	// The pods.
	// --image_name
	Image string `json:"image,omitzero"`
	// --image_pull_policy: Always, IfNotPresent, Never
	ImagePullPolicy string `json:"imagePullPolicy,omitzero"`
	// --restart_policy: Never, OnFailure, Always
	RestartPolicy string `json:"restartPolicy,omitzero"`
	// --master_*
	Master Pod `json:"master,omitzero"`
	// --worker_*
	Worker Pod `json:"worker,omitzero"`
	// --volume: of every pod
	Volumes []Volume `json:"volumes,omitempty"`
	// --envs: of every pod
	Envs map[string]string `json:"envs,omitzero"`
	// --env_secret: variables of every pod, but the master of a program's job, with values of
	// Secrets
	EnvSecrets map[string]SecretRef `json:"envSecrets,omitzero"`
	// --allow_plain_secrets: what looks like a secret in the job is none
	AllowPlainSecrets bool `json:"allowPlainSecrets,omitzero"`
	// --image_pull_secret: names of the Secrets by which images are pulled
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// --populate_env_names: regexp of names that servers and workers take over from the master
	PopulateEnvNames string `json:"populateEnvNames,omitzero"`
	// --cluster_spec_json: a JSON object; also what the file of --cluster_spec says
	ClusterSpecJSON string `json:"clusterSpecJSON,omitzero"`
	// --max_memory: what a pod that ran out of memory is given at most; "" = no more than before
	MaxMemory string `json:"maxMemory,omitzero"`
	// --tolerations: of every pod
	Tolerations []Toleration `json:"tolerations,omitempty"`
	// --node_selector: of every pod
	NodeSelector map[string]string `json:"nodeSelector,omitzero"`
	// --service_account: the pods', there already; "" = the job's own
	ServiceAccount string `json:"serviceAccount,omitzero"`
	// --run_as_user: number of the user and group that pods run as; 0 = the image's
	RunAsUser int `json:"runAsUser,omitzero"`
	// --ttl: from the end of the job until all of it is deleted; nil = it stays
	TTL *Duration `json:"ttl,omitempty"`
	// --deadline: the job fails if it runs for longer; 0 = never
	Deadline Duration `json:"deadline,omitzero"`
	// PendingTimeout limits the time for which pods of a role fit no node before the job fails
	// (--pending_timeout); nil = [DefaultPendingTimeout], 0 = without limit.
	PendingTimeout *Duration `json:"pendingTimeout,omitempty"`
	// --suspend: the job is made, and does not start yet
	Suspend bool `json:"suspend,omitzero"`
	// --log_level: DEBUG, INFO, WARNING, ERROR, CRITICAL
	LogLevel string `json:"logLevel,omitzero"`
}

// Type is the type of a job: train, evaluate, predict or run.
type Type string

const (
	Train    Type = "train"
	Evaluate Type = "evaluate"
	Predict  Type = "predict"
	Run      Type = "run" // a program of the user's
)

// Strategy is the distribution strategy of a training job; values are ElasticDL's.
type Strategy string

const (
	ParameterServer Strategy = "ParameterServerStrategy"
	AllReduce       Strategy = "AllreduceStrategy"
)

// Pod holds the settings of the pods of one role.
type Pod struct {
	Image    string    `json:"image,omitzero"`    // "" = the job's
	Request  Resources `json:"request,omitzero"`  // guaranteed
	Limit    Resources `json:"limit,omitzero"`    // nil = as requested
	Priority Priority  `json:"priority,omitzero"` // zero = the cluster's default
}

// DefaultPendingTimeout is the default of Job.PendingTimeout; an autoscaler may add a node within
// it.
const DefaultPendingTimeout = time.Hour

// Duration is a [time.Duration] that JSON holds as text, "5m0s".
type Duration struct{ time.Duration }

// MarshalText is [time.Duration.String].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is [ParseDuration].
func (d *Duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = ParseDuration(string(text))
	return err
}

// defaultGrace is that of a Kubernetes pod, and of torchrun.
const defaultGrace = 30 * time.Second

// TimeToEnd returns how long the processes of the job have to end after they are asked to:
// --grace_period, or its default.
func (j *Job) TimeToEnd() time.Duration { return cmp.Or(j.GracePeriod.Duration, defaultGrace) }

// Default is a job with ElasticDL's defaults and no name, model or data.
// One parameter server where ElasticDL has none: there none means AllReduce.
func Default() *Job {
	return &Job{
		Namespace: "default", Type: Train,
		ModelSettings:      ModelSettings{Feed: "feed", CustomDataReader: "custom_data_reader", MinibatchSize: 64},
		EvaluationSettings: EvaluationSettings{Loss: "loss", EvalMetricsFn: "eval_metrics_fn"},
		TrainingSettings: TrainingSettings{Optimizer: "optimizer", Callbacks: "callbacks",
			Strategy: ParameterServer, NumPS: 1, NumEpochs: 1, GradsToWait: 1, GetModelSteps: 1, LogLossSteps: 100,
			Shuffle: true, KeepCheckpointMax: 3, PS: Pod{Request: Resources{"cpu": "1", "memory": "4096Mi"}}},
		StateSettings: StateSettings{HeartbeatTimeout: Duration{5 * time.Second}},
		NumWorkers:    2, NumMinibatchesPerTask: 8,
		TaskTimeout: Duration{5 * time.Minute}, MaxTaskRetries: 3, RelaunchOnWorkerFailure: 1,
		ImagePullPolicy: "Always", RestartPolicy: "Never", LogLevel: "INFO",
		Master: Pod{Request: Resources{"cpu": "100m", "memory": "1024Mi"}},
		Worker: Pod{Request: Resources{"cpu": "1", "memory": "4096Mi"}},
	}
}

// DefaultOf is [Default] for a type of job. One that runs a program has torchrun's defaults where
// torchrun has them: a single worker.
func DefaultOf(t Type) *Job {
	j := Default()
	j.Type = t
	if t == Run {
		j.Program, j.NumWorkers, j.NumMinibatchesPerTask = defaultProgram(), 1, 0
	}
	return j
}

// RecordsPerTask returns the number of records of a task; the last of a shard may have fewer. Of a
// program it has no meaning: what the program declares counts.
func (j *Job) RecordsPerTask() int64 {
	return int64(j.MinibatchSize) * int64(max(1, j.NumMinibatchesPerTask))
}

// MaxRecords returns the number of records that --max_step allows; 0 = no limit.
func (j *Job) MaxRecords() int64 { return int64(j.MaxStep) * int64(j.MinibatchSize) }

// Synchronous tells whether the servers gather gradients and refuse stale ones. Without --use_async
// a job is synchronous if it waits for more than one gradient or says how stale one may be. One
// gradient and no word of staleness, the tutorials' case, is not: each gradient is applied on
// arrival and none is dropped.
func (j *Job) Synchronous() bool {
	return !j.UseAsync && (j.GradsToWait > 1 || j.SyncVersionTolerance != nil)
}

// Trains reports whether the job trains a model. One that does not evaluates a model, or predicts
// with it, which does not change; or runs a program.
func (j *Job) Trains() bool { return j.Type == Train }

// Runs reports whether the job runs a program of the user's.
func (j *Job) Runs() bool { return j.Type == Run }

// Evaluates tells whether the job evaluates: every EvaluationSteps versions if that is set, and at
// the end.
func (j *Job) Evaluates() bool { return j.ValidationData != "" }

// PlainData reports whether gradients and values are sent outside TLS.
func (j *Job) PlainData() bool { return j.DataEncryption == "off" }
