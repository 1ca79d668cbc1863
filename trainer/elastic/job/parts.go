package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// ModelSettings are the settings of jobs with a model: to train, evaluate or predict.
type ModelSettings struct {
	// --model_zoo: a directory
	ModelZoo string `json:"modelZoo,omitzero"`
	// --model_def: "mnist.mnist_functional_api.custom_model"
	ModelDef string `json:"modelDef"`
	// --feed: records to batch
	Feed string `json:"feed,omitzero"`
	// --custom_data_reader
	CustomDataReader string `json:"customDataReader,omitzero"`
	// --data_reader_params
	DataReaderParams map[string]string `json:"dataReaderParams,omitzero"`
	// --minibatch_size: records
	MinibatchSize int `json:"minibatchSize"`
	// --num_threads: of each worker's engine; 0 = automatic
	NumThreads int `json:"numThreads,omitzero"`
	// --checkpoint_dir_for_init: checkpoint directory of another job, one of its commits, or an
	// exported model
	CheckpointDirForInit string `json:"checkpointDirForInit,omitzero"`
}

// EvaluationSettings are the settings of jobs that evaluate a model: to train or evaluate.
type EvaluationSettings struct {
	// --loss
	Loss string `json:"loss,omitzero"`
	// --eval_metrics_fn
	EvalMetricsFn string `json:"evalMetricsFn,omitzero"`
	// --validation_data: RecordIO directory or file, or .csv; "" = no evaluation
	ValidationData string `json:"validationData,omitzero"`
}

// TrainingSettings are the settings of jobs that train a model.
type TrainingSettings struct {
	// --optimizer
	Optimizer string `json:"optimizer,omitzero"`
	// --callbacks
	Callbacks string `json:"callbacks,omitzero"`
	// --training_data: RecordIO directory or file, or .csv
	TrainingData string `json:"trainingData,omitzero"`
	// --output: directory or bucket for the trained model; "" = [Job.ResultDir]
	Output string `json:"output,omitzero"`
	// --distribution_strategy; "" = the job does not train
	Strategy Strategy `json:"strategy,omitzero"`
	// --num_ps_pods: number of parameter servers
	NumPS int `json:"numPS,omitzero"`
	// --num_epochs: passes over the training data
	NumEpochs int `json:"numEpochs"`
	// --max_step: maximum number of minibatches; 0 = no limit
	MaxStep int `json:"maxStep,omitzero"`
	// --evaluation_steps: versions between evaluations; 0 = only at the end
	EvaluationSteps int `json:"evaluationSteps,omitzero"`
	// --grads_to_wait: gradients per synchronous update
	GradsToWait int `json:"gradsToWait"`
	// --use_async; see Synchronous
	UseAsync bool `json:"useAsync,omitzero"`
	// --sync_version_tolerance: versions; nil = not given; see Synchronous
	SyncVersionTolerance *int `json:"syncVersionTolerance,omitempty"`
	// --lr_staleness_modulation: the learning rate is divided by the staleness
	LRStalenessModulation bool `json:"lrStalenessModulation,omitzero"`
	// --get_model_steps: number of local updates between two pulls
	GetModelSteps int `json:"getModelSteps"`
	// --log_loss_steps: minibatches between loss lines; 0 = none
	LogLossSteps int `json:"logLossSteps,omitzero"`
	// --seed: seed of initial values, shuffling and dropout
	Seed uint64 `json:"seed,omitzero"`
	// --shuffle: new order of tasks, and of records within a task, in each epoch
	Shuffle bool `json:"shuffle,omitzero"`
	// --global_batch_size: records per update of a ring, for any number of workers; 0 = one
	// minibatch per worker
	GlobalBatchSize int `json:"globalBatchSize,omitzero"`
	// --scale_learning_rate: multiply the learning rate by the number of workers in the ring
	ScaleLearningRate bool `json:"scaleLearningRate,omitzero"`
	// DataEncryption (--data_encryption) is "tls", or "off" for a network that encrypts below: then
	// peers are authenticated, but gradients and values are sent unencrypted. "": tls.
	DataEncryption string `json:"dataEncryption,omitempty"`
	// --checkpoint_dir: a path as the pods see it, s3:// or gs://; "" = no checkpoints
	CheckpointDir string `json:"checkpointDir,omitzero"`
	// --checkpoint_steps: model versions between checkpoints; 0 = not by versions
	CheckpointSteps int `json:"checkpointSteps,omitzero"`
	// --checkpoint_interval: time between checkpoints; 0 = not by time
	CheckpointInterval Duration `json:"checkpointInterval,omitzero"`
	// --keep_checkpoint_max: number of newest checkpoints to keep; 0 = all
	KeepCheckpointMax int `json:"keepCheckpointMax,omitzero"`
	// --ps_*
	PS Pod `json:"ps,omitzero"`
}

// PredictionSettings are the settings of jobs that predict.
type PredictionSettings struct {
	// --prediction_data: RecordIO directory or file, or .csv
	PredictionData string `json:"predictionData,omitzero"`
	// --prediction_outputs: a .csv file, or a directory for its parts
	PredictionOutputs string `json:"predictionOutputs,omitzero"`
}

// StateSettings are the settings of jobs whose state must survive the loss of workers: to train a
// model, or to run a program.
type StateSettings struct {
	// --heartbeat_timeout: time without heartbeats after which a worker of a ring is replaced
	HeartbeatTimeout Duration `json:"heartbeatTimeout,omitzero"`
	// --checkpoint_dir_take_over: the user confirms that the owner of CheckpointDir, or of a
	// program's checkpoint, no longer exists
	CheckpointDirTakeOver bool `json:"checkpointDirTakeOver,omitzero"`
}

var (
	allTypes  = []Type{Train, Evaluate, Predict, Run}
	forModels = []Type{Train, Evaluate, Predict}
)

// parts lists the types of jobs that have each struct of a Job.
var parts = map[reflect.Type][]Type{
	reflect.TypeFor[ModelSettings]():      forModels,
	reflect.TypeFor[EvaluationSettings](): {Train, Evaluate},
	reflect.TypeFor[TrainingSettings]():   {Train},
	reflect.TypeFor[PredictionSettings](): {Predict},
	reflect.TypeFor[StateSettings]():      {Train, Run},
	reflect.TypeFor[Program]():            {Run},
}

// typesOf returns the types of jobs that have a field, which is named by its path in JSON.
func typesOf(path string) []Type {
	first, _, _ := strings.Cut(path, ".")
	for f := range reflect.TypeFor[Job]().Fields() {
		if !f.Anonymous {
			continue
		}
		for of := range f.Type.Fields() {
			if name, _, _ := strings.Cut(of.Tag.Get("json"), ","); name == first {
				return parts[f.Type]
			}
		}
	}
	return allTypes
}

// written is the order of the fields in JSON. A job with the same settings has the same JSON in all
// versions, because the hash of a running job's settings is compared with that of its stack. New
// fields are added at the end.
var written = strings.Fields(`
	name namespace type modelZoo modelDef feed loss optimizer callbacks evalMetricsFn
	customDataReader dataReaderParams trainingData validationData predictionData output
	predictionOutputs strategy numWorkers minWorkers maxWorkers numPS numEpochs minibatchSize
	numMinibatchesPerTask maxStep evaluationSteps gradsToWait useAsync syncVersionTolerance
	lrStalenessModulation getModelSteps logLossSteps seed shuffle numThreads globalBatchSize
	scaleLearningRate command processes module noPython maxRestarts startMethod restartOnJoin
	checkpointFile grace gatherTimeout role logDir redirects tee localRanksFilter sha256 gpus
	interface agentImage workdir code codeSHA256 dataEncryption taskTimeout heartbeatTimeout
	maxTaskRetries relaunchOnWorkerFailure gracePeriod checkpointDir checkpointSteps
	checkpointInterval keepCheckpointMax checkpointDirTakeOver checkpointDirForInit image
	imagePullPolicy restartPolicy master ps worker volumes envs envSecrets allowPlainSecrets
	imagePullSecrets populateEnvNames clusterSpecJSON maxMemory tolerations nodeSelector
	serviceAccount runAsUser ttl deadline pendingTimeout queue queueTimeout queuePriorities suspend logLevel
	tensorboardLogDir hangTimeout metricsPort metricsFrom noticeTaints
	noticeMetadata
`)

// MarshalJSON returns all fields on one level, in the order of written.
func (j Job) MarshalJSON() ([]byte, error) {
	type plain Job // without this method
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false) // the caller's encoder decides
	if err := encoder.Encode(plain(j)); err != nil {
		return nil, err
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(text.Bytes(), &values); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	slices.Sort(names)
	place := func(name string) int {
		if i := slices.Index(written, name); i >= 0 {
			return i
		}
		return len(written)
	}
	slices.SortStableFunc(names, func(a, b string) int { return place(a) - place(b) })
	text.Reset()
	text.WriteByte('{')
	for i, name := range names {
		if i > 0 {
			text.WriteByte(',')
		}
		fmt.Fprintf(&text, "%q:%s", name, values[name])
	}
	text.WriteByte('}')
	return text.Bytes(), nil
}
