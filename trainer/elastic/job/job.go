// Package job holds the specification of a job: one plain value, [Job], that the command line, the
// master, the parameter servers, the workers and the infrastructure read. Its JSON form has all its
// fields.
//
// A [Command] makes a Job from the flags of `elasticdl train`, which have ElasticDL's names and
// meanings. The command line's parser sets them: each is a pflag.Value ([Command.Value]), although
// this package does not import the parser. The help text is made from the table of flags ([Flags]).
//
// Laws:
//
//  1. Validate and [Command.Settle] report all problems at once, each as a [Problem]: with the name
//     of the setting, the given value and what is expected. A problem names settings by flags or by
//     fields, as its reader has given them.
//  2. A flag has its effect, is reported as having no effect, or is refused.
//  3. A valid Job survives JSON unchanged.
package job

import (
	"cmp"
	"time"
)

// Job is a job to train, evaluate or predict with a model, or to run a program. Its own fields
// apply to all types of jobs, and the structs that it embeds to those types that parts lists. In
// JSON all fields are on one level. Counts are numbers of records, minibatches, pods or model
// versions, as the field's comment says. The zero value of an optional field means off or
// automatic. [Default] returns ElasticDL's defaults.
type Job struct {
	// --job_name: unique where it runs; part of the pods' names
	Name string `json:"name"`
	// --namespace: namespace of the cluster
	Namespace string `json:"namespace,omitzero"`
	// the command that starts the job
	Type Type `json:"type"`

	// Each of these applies to some types of jobs; the others ignore it.
	ModelSettings
	EvaluationSettings
	TrainingSettings
	PredictionSettings
	StateSettings
	Program

	// Workers, and the tasks that they are given.
	// --num_workers: number of workers
	NumWorkers int `json:"numWorkers"`
	// --min_workers: minimum number of workers of a ring, below which it waits; 0 = 1
	MinWorkers int `json:"minWorkers,omitzero"`
	// --max_workers: maximum number of workers for scaling; 0 = no limit
	MaxWorkers int `json:"maxWorkers,omitzero"`
	// --num_minibatches_per_task; 0 = for a program, its own choice
	NumMinibatchesPerTask int `json:"numMinibatchesPerTask"`

	// Fault tolerance. --task_timeout: minimum time after which a task is leased again; the time is
	// max(this, 3 x the longest completed task)
	TaskTimeout Duration `json:"taskTimeout"`
	// --max_task_retries: failures of one task before the job fails
	MaxTaskRetries int `json:"maxTaskRetries"`
	// --relaunch_on_worker_failure: number of replacements of a worker that fails on its own
	RelaunchOnWorkerFailure int `json:"relaunchOnWorkerFailure"`
	// GracePeriod (--grace_period) is the time from SIGTERM to SIGKILL when the job or one of its
	// workers ends; 0: the default, see [Job.TimeToEnd].
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
	// --volume: volumes of every pod
	Volumes []Volume `json:"volumes,omitempty"`
	// --envs: environment variables of every pod
	Envs map[string]string `json:"envs,omitzero"`
	// --env_secret: variables with values of Secrets, of every pod except the master of a program's
	// job
	EnvSecrets map[string]SecretRef `json:"envSecrets,omitzero"`
	// --allow_plain_secrets: values that look like secrets are accepted
	AllowPlainSecrets bool `json:"allowPlainSecrets,omitzero"`
	// --image_pull_secret: names of the Secrets with which images are pulled
	ImagePullSecrets []string `json:"imagePullSecrets,omitempty"`
	// --populate_env_names: regexp of the master's variables that servers and workers get, too
	PopulateEnvNames string `json:"populateEnvNames,omitzero"`
	// --cluster_spec_json: a JSON object; also receives the content of --cluster_spec
	ClusterSpecJSON string `json:"clusterSpecJSON,omitzero"`
	// --max_memory: limit up to which memory is doubled after an OOM kill; "" = no doubling
	MaxMemory string `json:"maxMemory,omitzero"`
	// --tolerations: tolerations of every pod
	Tolerations []Toleration `json:"tolerations,omitempty"`
	// --node_selector: node selector of every pod
	NodeSelector map[string]string `json:"nodeSelector,omitzero"`
	// --service_account: an existing ServiceAccount for the pods; "" = the job creates its own
	ServiceAccount string `json:"serviceAccount,omitzero"`
	// --run_as_user: user and group ID of the pods; 0 = the image's
	RunAsUser int `json:"runAsUser,omitzero"`
	// --ttl: time from the end of the job to its deletion; nil = it is not deleted
	TTL *Duration `json:"ttl,omitempty"`
	// --deadline: time limit of the job, after which it fails; 0 = no limit
	Deadline Duration `json:"deadline,omitzero"`
	// PendingTimeout (--pending_timeout) is the time for which a role's pods may be unschedulable
	// before the job fails; nil = [DefaultPendingTimeout], 0 = no limit.
	PendingTimeout *Duration `json:"pendingTimeout,omitempty"`
	// NoticeTaints (--notice_taints) lists further keys of taints by which a node has notice that
	// it will be taken away.
	NoticeTaints []string `json:"noticeTaints,omitempty"`
	// NoticeMetadata (--notice_metadata) names the cloud whose metadata service servers and workers
	// ask whether their machine will be taken away: [NoticeAWS], [NoticeGCE]; "" = they do not ask.
	NoticeMetadata string `json:"noticeMetadata,omitzero"`
	// Queue (--queue) is the LocalQueue of Kueue that admits the job's pods, one by one; "" = none.
	Queue string `json:"queue,omitzero"`
	// QueueTimeout (--queue_timeout) is the time for which pods of the core may wait for quota
	// before the job gives back the quota that it has; 0 = [DefaultQueueTimeout].
	QueueTimeout Duration `json:"queueTimeout,omitzero"`
	// QueuePriorities (--queue_priorities) tells what puts the core of the job above its other
	// workers: [PrioritiesWorkload], [PrioritiesPod] or [PrioritiesNone]; "" = as the cluster has
	// them.
	QueuePriorities string `json:"queuePriorities,omitzero"`
	// --suspend: the job is created, and not started yet
	Suspend bool `json:"suspend,omitzero"`
	// TensorBoardLogDir (--tensorboard_log_dir) is the directory or bucket for the event files of
	// TensorBoard, in which the job has a directory of its name; "" = none.
	TensorBoardLogDir string `json:"tensorboardLogDir,omitzero"`
	// --log_level: DEBUG, INFO, WARNING, ERROR, CRITICAL
	LogLevel string `json:"logLevel,omitzero"`
	// MetricsPort (--metrics_port) is the port of the metrics for Prometheus; 0 = none, see
	// [Job.ServesMetrics].
	MetricsPort int `json:"metricsPort,omitzero"`
	// MetricsFrom (--metrics_from) lists the namespaces of a cluster whose pods may read them.
	MetricsFrom []string `json:"metricsFrom,omitempty"`
}

// Type is the type of a job: train, evaluate, predict or run.
type Type string

const (
	Train    Type = "train"
	Evaluate Type = "evaluate"
	Predict  Type = "predict"
	Run      Type = "run" // a user's program
)

// Strategy is the distribution strategy of a training job, with ElasticDL's values.
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

// DefaultQueueTimeout is the default of Job.QueueTimeout.
const DefaultQueueTimeout = time.Minute

// Values of Job.QueuePriorities.
const (
	// the WorkloadPriorityClasses [ClassCore] and [ClassElastic]
	PrioritiesWorkload = "workload"
	PrioritiesPod      = "pod"  // the PriorityClasses high and low
	PrioritiesNone     = "none" // the core is not protected
)

// Values of Job.NoticeMetadata.
const (
	NoticeAWS = "aws" // the instance metadata service of EC2
	NoticeGCE = "gce" // the metadata server of Compute Engine
)

// Names of the WorkloadPriorityClasses of a job in a queue.
const (
	ClassCore    = "elasticdl-core"
	ClassElastic = "elasticdl-elastic"
)

// AdmissionTime returns the time for which the core of the job may wait for quota: --queue_timeout,
// or its default.
func (j *Job) AdmissionTime() time.Duration {
	return cmp.Or(j.QueueTimeout.Duration, DefaultQueueTimeout)
}

// Core returns how many workers of a job in a queue are of its core, which also has the master and
// the servers: as many as the job needs at least. Without a queue there is no core.
func (j *Job) Core() int {
	if j.Queue == "" {
		return 0
	}
	return j.Least()
}

// Least returns how many workers the job needs before it trains.
func (j *Job) Least() int { return min(max(1, j.MinWorkers), j.NumWorkers) }

// Duration is a [time.Duration] that is text in JSON, such as "5m0s".
type Duration struct{ time.Duration }

// MarshalText is [time.Duration.String].
func (d Duration) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText is [ParseDuration].
func (d *Duration) UnmarshalText(text []byte) (err error) {
	d.Duration, err = ParseDuration(string(text))
	return err
}

// defaultGrace is the default grace period, as for a Kubernetes pod and torchrun.
const defaultGrace = 30 * time.Second

// TimeToEnd returns the time that the job's processes have to end after SIGTERM: --grace_period, or
// its default.
func (j *Job) TimeToEnd() time.Duration { return cmp.Or(j.GracePeriod.Duration, defaultGrace) }

// Default returns a job with ElasticDL's defaults and no name, model or data. It has one parameter
// server; ElasticDL's default is none, which means AllReduce here.
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

// DefaultOf returns [Default] for a type of job. One that runs a program has torchrun's defaults,
// such as a single worker.
func DefaultOf(t Type) *Job {
	j := Default()
	j.Type = t
	if t == Run {
		j.Program, j.NumWorkers, j.NumMinibatchesPerTask = defaultProgram(), 1, 0
	}
	return j
}

// RecordsPerTask returns the number of records of a task; the last task of a shard may have fewer.
// It has no meaning for programs, which declare the number themselves.
func (j *Job) RecordsPerTask() int64 {
	return int64(j.MinibatchSize) * int64(max(1, j.NumMinibatchesPerTask))
}

// MaxRecords returns the number of records that --max_step allows; 0 = no limit.
func (j *Job) MaxRecords() int64 { return int64(j.MaxStep) * int64(j.MinibatchSize) }

// Synchronous reports whether the servers gather gradients and refuse stale ones. Without
// --use_async a job is synchronous if --grads_to_wait is more than 1 or --sync_version_tolerance is
// given. Otherwise, as in the tutorials, each gradient is applied on arrival and none is refused.
func (j *Job) Synchronous() bool {
	return !j.UseAsync && (j.GradsToWait > 1 || j.SyncVersionTolerance != nil)
}

// Trains reports whether the job trains a model. Other jobs evaluate a model or predict with it,
// which does not change, or run a program.
func (j *Job) Trains() bool { return j.Type == Train }

// Runs reports whether the job runs a user's program.
func (j *Job) Runs() bool { return j.Type == Run }

// Evaluates reports whether the job evaluates: every EvaluationSteps versions if that is set, and
// at the end.
func (j *Job) Evaluates() bool { return j.ValidationData != "" }

// DefaultMetricsPort is the port of the metrics of a job with --metrics_from and no --metrics_port.
const DefaultMetricsPort = 9108

// ServesMetrics returns the port at which each pod of a cluster serves metrics; 0: none does.
func (j *Job) ServesMetrics() int {
	if len(j.MetricsFrom) > 0 {
		return cmp.Or(j.MetricsPort, DefaultMetricsPort)
	}
	return j.MetricsPort
}

// PlainData reports whether gradients and values are sent outside TLS.
func (j *Job) PlainData() bool { return j.DataEncryption == "off" }
