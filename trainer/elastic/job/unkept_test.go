package job

import (
	"strings"
	"testing"
)

// A job says before it starts what of its result is lost with its pods.
func TestUnkept(t *testing.T) {
	const train = "--job_name=j --image_name=i --model_def=mnist_functional_api --training_data=/data/train "
	const run = "--job_name=j --image_name=i "
	for _, c := range []struct {
		of   Type
		args string
		want string // "": nothing is lost
	}{
		{Train, train, "not kept after"},
		{Train, train + "--volume=host_path=/mnt,mount_path=/data", "not kept after"},
		{Train, train + "--checkpoint_dir=s3://b/c", "in the last checkpoint only"},
		// it has the data alone
		{Train, train + "--volume=claim_name=c,mount_path=/data/train", "not kept after"},
		{Train, train + "--output=s3://b/m", ""},
		{Train, train + "--output=/model", ""}, // which is reported by another note
		{Train, train + "--volume=claim_name=c,mount_path=/data", ""},
		{Run, run + "-- main.py", "deleted with its pods"},
		{Run, run + "--num_workers=4 -- main.py --out /tmp/model.pt", "deleted with its pods"},
		{Run, run + "-- main.py --out gs://b/model.pt", ""},
		{Run, run + "--volume=claim_name=c,mount_path=/data -- main.py", ""},
		{Run, run + "--volume=host_path=/mnt,mount_path=/data -- main.py", ""},
		{Evaluate, "--job_name=j --image_name=i --model_def=m.f --validation_data=/d " +
			"--checkpoint_dir_for_init=s3://b/c", ""},
	} {
		parsed, _ := Parse(c.of, strings.Fields(c.args))
		j := parsed.Job
		j.SettleCheckpoints(j.ClaimDir(), parsed.Given)
		got := strings.Join(j.Unkept(), "\n")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) || got != "" &&
			!strings.Contains(got, "--volume") {
			t.Errorf("%s %s: %q, want %q", c.of, c.args, got, c.want)
		}
	}
}
