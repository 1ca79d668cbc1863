package job

import (
	"cmp"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// CheckpointEvery is the default time between checkpoints, for a job that has a directory for them.
const CheckpointEvery = 30 * time.Second

// SettleCheckpoints sets the defaults of flags that were not given, as given reports: the directory
// of checkpoints is dir, "" for none, and the interval is [CheckpointEvery]. If steps and interval
// are given as 0, there are no checkpoints. It may be called again, with another dir.
func (j *Job) SettleCheckpoints(dir string, given func(flag string) bool) {
	asked := given("checkpoint_steps") || given("checkpoint_interval")
	if asked && j.CheckpointSteps == 0 && j.CheckpointInterval.Duration == 0 {
		dir = ""
	}
	if !given("checkpoint_dir") {
		j.CheckpointDir = dir
	}
	if !asked {
		j.CheckpointInterval = Duration{}
		if j.CheckpointDir != "" {
			j.CheckpointInterval.Duration = CheckpointEvery
		}
	}
}

// ClaimDir returns the default directory of checkpoints on a cluster. It is on the job's first
// volume that is a claim and can be written to, outside of the data; "" if there is no such volume.
func (j *Job) ClaimDir() string { return j.onClaim(path.Join("elasticdl-"+j.Name, "checkpoints")) }

// ResultDir returns the default directory of the trained model on a cluster (--output). It is next
// to [Job.ClaimDir]; "" if there is no such volume, or if the job does not train.
func (j *Job) ResultDir() string {
	if !j.Trains() {
		return ""
	}
	return j.onClaim(path.Join("elasticdl-"+j.Name, "model"))
}

// onClaim names a directory on the job's first claim that can be written to, outside of its data;
// "" if there is none.
func (j *Job) onClaim(name string) string {
	for _, v := range j.Volumes {
		dir := path.Join(v.MountPath, name)
		if _, within := j.dataAround(dir); v.ClaimName != "" && !j.readOnly(v) && !within {
			return dir
		}
	}
	return ""
}

// dataAround returns the setting of the data directory that contains a directory; false if none
// does. Every file in a data directory is read as data.
func (j *Job) dataAround(dir string) (data mention, within bool) {
	for _, d := range [][2]string{{"training_data", j.TrainingData},
		{"validation_data", j.ValidationData}, {"prediction_data", j.PredictionData}} {
		at := strings.TrimSuffix(cleaned(d[1]), "/") + "/"
		if d[1] != "" && InBucket(d[1]) == InBucket(dir) && path.IsAbs(d[1]) == path.IsAbs(dir) &&
			(at == "./" || strings.HasPrefix(cleaned(dir)+"/", at)) {
			return setting(d[0], d[1]), true
		}
	}
	return mention{}, false
}

// cleaned returns a path in its shortest form, and a place in a bucket without its parameters.
func cleaned(dir string) string {
	if InBucket(dir) {
		dir, _, _ = strings.Cut(dir, "?")
	}
	return path.Clean(dir)
}

// Checkpoints returns a line about the interval and the directory of checkpoints, or about the
// consequences of having none.
func (j *Job) Checkpoints() string {
	if j.Runs() {
		return "checkpoints: the program's own"
	}
	if !j.Trains() {
		return "no checkpoints: the job does not train; its model is read from " + j.CheckpointDirForInit
	}
	if j.CheckpointDir == "" {
		if j.Strategy == AllReduce {
			return "no checkpoints: if all workers are lost at once the training starts over (give " +
				"--checkpoint_dir on a --volume)"
		}
		return "no checkpoints: if a parameter server is lost the training starts over " +
			"(give --checkpoint_dir on a --volume)"
	}
	var when []string
	switch {
	case j.CheckpointSteps == 1:
		when = append(when, "version")
	case j.CheckpointSteps > 1:
		when = append(when, fmt.Sprintf("%d versions", j.CheckpointSteps))
	}
	if j.CheckpointInterval.Duration > 0 {
		when = append(when, j.CheckpointInterval.brief())
	}
	kept := fmt.Sprintf("the newest %d", j.KeepCheckpointMax)
	switch j.KeepCheckpointMax {
	case 0:
		kept = "all are kept"
	case 1:
		kept = "the newest one"
	}
	return fmt.Sprintf("checkpoints: every %s in %s, %s", strings.Join(when, " or "), j.CheckpointDir, kept)
}

// Places returns a line each about the places of the job's checkpoints and of its trained model.
func (j *Job) Places() string {
	lines := j.Checkpoints()
	switch out := cmp.Or(j.Output, j.ResultDir()); {
	case !j.Trains():
	case out != "":
		lines += "\nmodel: in " + out + " when the job has succeeded"
	case j.CheckpointDir != "":
		lines += "\nmodel: in the last checkpoint only (give --output, or a --volume with a claim_name)"
	default:
		lines += "\nmodel: not kept after the end of the job (give --output, or a --volume with a claim_name)"
	}
	return lines
}

// Unkept returns a line for each result of a job that is lost on a cluster when its pods are
// deleted, with the remedy.
func (j *Job) Unkept() []string {
	const remedy = "give --output, or a --volume with a claim_name, and not in the data"
	switch {
	case j.Runs():
		elsewhere := func(arg string) bool { return InBucket(arg) }
		if len(j.Volumes) == 0 && j.ClusterSpecJSON == "" && !slices.ContainsFunc(j.Program.Command, elsewhere) {
			return []string{"what the program writes to files is deleted with its pods, checkpoints " +
				"and model included: " +
				"give a --volume with a claim_name, or have the program write to a bucket"}
		}
	case !j.Trains() || j.Output != "" || j.ResultDir() != "":
	case j.CheckpointDir != "":
		return []string{"the trained model will be in the last checkpoint only: " + remedy}
	default:
		return []string{"the trained model is not kept after the end of the job: " + remedy}
	}
	return nil
}

// brief returns the duration without zero parts: 1m for 1m0s.
func (d Duration) brief() string {
	text := d.String()
	for _, zero := range [][2]string{{"m0s", "m"}, {"h0m", "h"}} {
		if before, ok := strings.CutSuffix(text, zero[0]); ok {
			text = before + zero[1]
		}
	}
	return text
}

// InBucket reports whether a directory is in an object store.
func InBucket(dir string) bool { return strings.Contains(dir, "://") }

func (j *Job) checkCheckpoints(p *problems) {
	p.atLeast(0, j.CheckpointSteps, "checkpoint_steps")
	p.atLeast(0, j.KeepCheckpointMax, "keep_checkpoint_max")
	p.check(j.CheckpointInterval.Duration == 0 || j.CheckpointInterval.Duration >= time.Second,
		setting("checkpoint_interval", j.CheckpointInterval), "expected 1s or more, or 0")
	if from := j.CheckpointDirForInit; from != "" {
		p.check(bucketOrPath(from), setting("checkpoint_dir_for_init", from),
			"expected a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
	}
	p.check(!j.CheckpointDirTakeOver || j.CheckpointDir != "" || j.Type == Run,
		setting("checkpoint_dir_take_over"), "there is no directory to take over; give %v, or remove it",
		setting("checkpoint_dir"))
	if j.CheckpointDir == "" {
		return
	}
	p.check(j.CheckpointSteps != 0 || j.CheckpointInterval.Duration != 0, setting("checkpoint_dir", j.CheckpointDir),
		"no checkpoint would be made with %v and %v; give one of them, or remove it",
		setting("checkpoint_steps", "0"), setting("checkpoint_interval", "0"))
	data, within := j.dataAround(j.CheckpointDir)
	p.check(!within, setting("checkpoint_dir", j.CheckpointDir),
		"it is in %v, of which every file is read; give another", data)
	p.check(bucketOrPath(j.CheckpointDir), setting("checkpoint_dir", j.CheckpointDir),
		"expected a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
}

func (j *Job) checkTensorBoard(p *problems) {
	dir := j.TensorBoardLogDir
	if dir == "" {
		return
	}
	data, within := j.dataAround(dir)
	p.check(!within, setting("tensorboard_log_dir", dir),
		"it is in %v, of which every file is read; give another", data)
	p.check(bucketOrPath(dir), setting("tensorboard_log_dir", dir),
		"expected a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX")
}

// bucketOrPath reports whether a directory is a path, or the URL of a supported object store.
func bucketOrPath(dir string) bool {
	scheme, rest, _ := strings.Cut(dir, "://")
	return !InBucket(dir) || (scheme == "s3" || scheme == "gs") && rest != ""
}

// checkShared refuses directories of checkpoints, predictions and scalars that are not on storage
// that the pods of a cluster share.
func (j *Job) checkShared(p *problems) {
	if from := j.CheckpointDirForInit; from != "" && !InBucket(from) {
		p.check(j.volumeOf(from) != nil, setting("checkpoint_dir_for_init", from),
			"expected a path that is mounted (%v), s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, which "+
				"all pods share", setting("volume"))
	}
	if out := j.PredictionOutputs; out != "" && !InBucket(out) {
		v := j.volumeOf(out)
		p.check(v != nil, setting("prediction_outputs", out),
			"expected a path that is mounted (%v), s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, which "+
				"all pods share", setting("volume"))
		p.check(v == nil || !j.readOnly(*v), setting("prediction_outputs", out),
			"%v mounts it read-only; give another", theClusterSpec)
	}
	if dir := j.TensorBoardLogDir; dir != "" && !InBucket(dir) {
		v := j.volumeOf(dir)
		p.check(v != nil, setting("tensorboard_log_dir", dir),
			"expected a path that is mounted (%v), s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, which "+
				"remains when the master's pod is deleted", setting("volume"))
		p.check(v == nil || !j.readOnly(*v), setting("tensorboard_log_dir", dir),
			"%v mounts it read-only; give another", theClusterSpec)
	}
	dir := j.CheckpointDir
	switch v := j.volumeOf(dir); {
	case dir == "":
		const needs = "needs %v, or a %v with a claim_name that can be written to"
		p.check(j.CheckpointSteps <= 0, setting("checkpoint_steps", j.CheckpointSteps), needs,
			setting("checkpoint_dir"), setting("volume"))
		p.check(j.CheckpointInterval.Duration <= 0,
			setting("checkpoint_interval", j.CheckpointInterval), needs, setting("checkpoint_dir"), setting("volume"))
	case InBucket(dir):
	case v == nil:
		p.check(false, setting("checkpoint_dir", dir),
			"expected a path that is mounted (%v), s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, which "+
				"all pods share", setting("volume"))
	default:
		p.check(!j.readOnly(*v), setting("checkpoint_dir", dir),
			"%v mounts %s read-only; give another, or remove it", theClusterSpec, v.MountPath)
	}
}

// OutputInPod reports whether --output is a directory on no volume, which is deleted with its pod.
func (j *Job) OutputInPod() bool {
	return j.Output != "" && !InBucket(j.Output) && j.volumeOf(j.Output) == nil
}

// volumeOf returns the volume of a path in the pods; nil if it is on none.
func (j *Job) volumeOf(file string) (on *Volume) {
	file = path.Clean(file) + "/"
	for i, v := range j.Volumes {
		at := strings.TrimSuffix(path.Clean(v.MountPath), "/") + "/"
		if strings.HasPrefix(file, at) && (on == nil || len(v.MountPath) > len(on.MountPath)) {
			on = &j.Volumes[i]
		}
	}
	return on
}

// OnClaim returns the claim that holds a path of the pods, and the path within the claim.
func (j *Job) OnClaim(file string) (claim, at string, ok bool) {
	v := j.volumeOf(file)
	if v == nil || v.ClaimName == "" {
		return "", "", false
	}
	rel := strings.TrimPrefix(path.Clean(file), strings.TrimSuffix(path.Clean(v.MountPath), "/"))
	return v.ClaimName, strings.Trim(path.Join(v.SubPath, rel), "/"), true
}

// readOnly reports whether the cluster spec mounts a volume read-only.
func (j *Job) readOnly(v Volume) bool {
	var spec any
	if json.Unmarshal([]byte(j.ClusterSpecJSON), &spec) != nil { // none, or none that is taken
		return false
	}
	var find func(any) bool
	find = func(node any) bool {
		switch node := node.(type) {
		case []any:
			if slices.ContainsFunc(node, find) {
				return true
			}
		case map[string]any:
			if node["readOnly"] == true && (node["mountPath"] == v.MountPath || v.ClaimName != "" &&
				node["claimName"] == v.ClaimName) {
				return true
			}
			for _, n := range node {
				if find(n) {
					return true
				}
			}
		}
		return false
	}
	return find(spec)
}
