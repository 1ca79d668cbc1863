package job

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// program is a command line of elasticdl run, with flags before the others.
func program(flags ...string) []string {
	return slices.Concat([]string{"--job_name=p", "--image_name=pytorch/pytorch:2.9.0"}, flags, []string{"--", "main.py"})
}

// What Kubernetes, or the workers there, would refuse of a program is said at once.
func TestProgramOnCluster(t *testing.T) {
	for _, test := range []struct {
		args []string
		want string // "": nothing
	}{
		{program("--agent_image_name=registry.example/elasticdl:v1", "--gpus=2"), ""},
		{program("--nproc_per_node=gpu", "--gpus=2"), ""},
		{program("--nproc_per_node=gpu", "--worker_resource_limit=gpu=2"), ""},
		{program("--gpus=2", "--worker_resource_limit=gpu=2"), ""},
		{program("--image_name="), "--image_name is missing: name an image that has what the program needs"},
		{program("--agent_image_name=Not An Image"), "--agent_image_name=Not An Image: expected an image"},
		{program("--nproc_per_node=gpu"), "--nproc_per_node=gpu: workers ask for no GPU; give --gpus"},
		{program("--gpus=2", "--worker_resource_request=gpu=1"), "--gpus=2: --worker_resource_request and --worker_resource_limit say nvidia.com/gpu=1; drop one of the two"},
		{program("--agent_image_name=a", "--volume=claim_name=c,mount_path=/elasticdl-bin/"), "elasticdl is at that mount_path; give another"},
		{append(program()[:3], "ftp://host/main.py"), `program ftp://host/main.py: unknown kind of place "ftp"`},
		{append(program()[:3], "s3://bucket/code.tar.gz"), "it is an archive; expected the path of the script in it next"},
		{append(program("--program_sha256=12")[:4], "https://host/main.py"), "--program_sha256=12: expected 64 hexadecimal digits"},
	} {
		_, err := Parse(Run, test.args)
		if got := errors.Join(err); (got == nil) != (test.want == "") || got != nil && (!strings.Contains(got.Error(), test.want) || strings.Contains(got.Error(), "\n")) {
			t.Errorf("%q: %v, want %s", test.args, got, test.want)
		}
	}
}

// What a URL is signed with is in no message, and in no name.
func TestTitleOfAProgram(t *testing.T) {
	c, err := Parse(Run, []string{"--runtime=local", "--", "https://host/train/main.py?signature=a/b.c", "--epochs=2"})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Job.Title(); got != "https://host/train/main.py --epochs=2" || c.Job.Name != "main" {
		t.Errorf("%s of job %s", got, c.Job.Name)
	}
}

// GPUs are asked for beside all else, and the workers' other limits stay what they were.
func TestGPUsOfAProgram(t *testing.T) {
	c, err := Parse(Run, program("--gpus=2"))
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Job.Worker; w.Request["nvidia.com/gpu"] != "2" || w.Request["memory"] == "" || w.Limit != nil || len(c.Job.Master.Request) != 2 {
		t.Errorf("%+v", w)
	}
}

// A program has its own checkpoints: it starts again unless it has succeeded.
func TestResumable(t *testing.T) {
	for _, test := range []struct {
		of    Type
		dir   string
		ended State
		want  error
	}{
		{Train, "", Failed, ErrNoCheckpoints}, {Train, "/c", Failed, nil}, {Train, "/c", Succeeded, ErrSucceeded},
		{Run, "", Failed, nil}, {Run, "", Suspended, nil}, {Run, "", Succeeded, ErrSucceeded},
	} {
		if err := (&Job{Name: "j", Type: test.of, CheckpointDir: test.dir}).Resumable(test.ended); !errors.Is(err, test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
