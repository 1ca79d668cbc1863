package job

import (
	"strings"
	"testing"
	"time"
)

// Where and when a job has checkpoints, by its flags, and the report of that.
func TestCheckpoints(t *testing.T) {
	const here, claim = "--runtime=local",
		"--image_name=i --volume=host_path=/h,mount_path=/h;claim_name=c,mount_path=/data"
	const none, ring = "no checkpoints: if a parameter server is lost the training starts over",
		"no checkpoints: if all workers are lost at once the training starts over"
	for _, test := range []struct {
		args, dir string
		steps     int
		interval  time.Duration
		says      string
	}{
		{claim, "/data/elasticdl-j/checkpoints", 0, 30 * time.Second,
			"checkpoints: every 30s in /data/elasticdl-j/checkpoints, the newest 3"},
		{claim + " --checkpoint_steps=100", "/data/elasticdl-j/checkpoints", 100, 0,
			"checkpoints: every 100 versions in"},
		{claim + " --checkpoint_dir=/h/c --checkpoint_interval=1h --keep_checkpoint_max=0", "/h/c", 0,
			time.Hour, "checkpoints: every 1h in /h/c, all are kept"},
		{claim + " --checkpoint_dir=s3://b/p --checkpoint_interval=90 --checkpoint_steps=1 " +
			"--keep_checkpoint_max=1", "s3://b/p", 1, 90 * time.Second,
			"every version or 1m30s in s3://b/p, the newest one"},
		{claim + " --checkpoint_interval=0", "", 0, 0, none},
		{claim + " --checkpoint_steps=0 --keep_checkpoint_max=0", "", 0, 0, none},
		{claim + " --checkpoint_dir=", "", 0, 0, none},
		{claim +
			` --cluster_spec_json={"worker_pod_spec":{"volumes":[{"name":"volume-1","persistentVolumeClaim":{"claimName":"c","readOnly":true}}]}}`,
			"", 0, 0, none},
		{claim +
			` --cluster_spec_json={"worker_pod_spec":{"containers":[{"volumeMounts":[{"mountPath":"/h","readOnly":true}]}]}}`,
			"/data/elasticdl-j/checkpoints", 0, 30 * time.Second, "every 30s"},
		{claim + " --validation_data=/data", "", 0, 0, none},
		{claim + " --validation_data=/data --checkpoint_dir=/h/c --checkpoint_steps=9", "/h/c", 9, 0,
			"every 9 versions"},
		{claim + " --validation_data=/dat", "/data/elasticdl-j/checkpoints", 0, 30 * time.Second, "every 30s"},
		{"--image_name=i --volume=host_path=/h,mount_path=/h", "", 0, 0, none},
		{"--image_name=i --num_ps_pods=0", "", 0, 0, ring},
		{here, "", 0, 0, none}, // the runtime knows where
		{here + " --checkpoint_steps=7", "", 7, 0, none},
		{here + " --checkpoint_dir=c", "c", 0, 30 * time.Second, "every 30s in c, the newest 3"},
	} {
		c, err := Parse(Train, append(strings.Fields(test.args), "--job_name=j", "--model_def=m", "--training_data=d"))
		if err != nil {
			t.Errorf("%s: %v", test.args, err)
			continue
		}
		if j := c.Job; j.CheckpointDir != test.dir || j.CheckpointSteps != test.steps ||
			j.CheckpointInterval.Duration != test.interval || !strings.Contains(j.Checkpoints(), test.says) {
			t.Errorf("%s\n got %q, %d, %v: %s\nwant %q, %d, %v: %s", test.args, j.CheckpointDir,
				j.CheckpointSteps, j.CheckpointInterval, j.Checkpoints(), test.dir, test.steps,
				test.interval, test.says)
		}
		survives(t, c.Job)
	}
}

// A default that is known later, as a runtime's own directory, gives way to what was given; and it
// may change.
func TestSettleCheckpointsAgain(t *testing.T) {
	c, err := Parse(Train, []string{"--runtime=local", "--job_name=j", "--model_def=m", "--training_data=d"})
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/state/j", "", "/other"} {
		c.Job.SettleCheckpoints(dir, c.Given)
		if got := c.Job; got.CheckpointDir != dir ||
			(got.CheckpointInterval.Duration == CheckpointEvery) != (dir != "") {
			t.Errorf("%q: got %q every %v", dir, got.CheckpointDir, got.CheckpointInterval)
		}
	}
	if c, _ = Parse(Train, []string{"--runtime=local", "--checkpoint_dir=mine", "--checkpoint_steps=5"}); c != nil {
		c.Job.SettleCheckpoints("/state/j", c.Given)
		if c.Job.CheckpointDir != "mine" || c.Job.CheckpointInterval.Duration != 0 {
			t.Errorf("got %q every %v", c.Job.CheckpointDir, c.Job.CheckpointInterval)
		}
	}
}

// Pods of a cluster share a volume or a bucket, and nothing else.
func TestCheckpointsAreShared(t *testing.T) {
	const readOnly = `--cluster_spec_json=` +
		`{"ps_pod_spec":{"containers":[{"volumeMounts":[{"mountPath":"/data","readOnly":true}]}]}}`
	for args, want := range map[string]string{
		"--checkpoint_dir=/tmp/c": "--checkpoint_dir=/tmp/c: expected a path that is mounted " +
			"(--volume), s3://BUCKET/PREFIX or gs://",
		"--checkpoint_dir=c --volume=claim_name=c,mount_path=/c": "--checkpoint_dir=c: " +
			"expected a path that is mounted (--volume)",
		"--checkpoint_dir=/database --volume=claim_name=c,mount_path=/data": "--checkpoint_dir=/database: " +
			"expected a path that is mounted (--volume)",
		"--checkpoint_dir=/data/../c --volume=claim_name=c,mount_path=/data": "--checkpoint_dir=/data/../c: " +
			"expected a path that is mounted (--volume)",
		"--tensorboard_log_dir=/tmp/tb": "--tensorboard_log_dir=/tmp/tb: expected a path that is mounted " +
			"(--volume), s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, which remains",
		"--checkpoint_steps=100": "--checkpoint_steps=100: needs --checkpoint_dir, or a --volume with a claim_name",
		"--checkpoint_interval=10s": "--checkpoint_interval=10s: needs --checkpoint_dir, or a " +
			"--volume with a claim_name",
		"--keep_checkpoint_max=10": "--keep_checkpoint_max=10: there are no checkpoints; give --checkpoint_dir",
		"--checkpoint_dir=/data/c --volume=claim_name=c,mount_path=/data " +
			readOnly: "--checkpoint_dir=/data/c: --cluster_spec mounts /data read-only",
		"--checkpoint_steps=3 --volume=claim_name=c,mount_path=/data " +
			readOnly: "--checkpoint_steps=3: needs --checkpoint_dir, or a --volume with a " +
			"claim_name that can be written to",
	} {
		_, err := Parse(Train, append(strings.Fields(args), "--job_name=j", "--model_def=m",
			"--training_data=d", "--image_name=i"))
		if err == nil || lines(err) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want one problem with %q", args, err, want)
		}
	}
}
