package job

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// program is a command line of elasticdl run, with flags before the others.
func program(flags ...string) []string {
	return slices.Concat([]string{"--job_name=p", "--image_name=pytorch/pytorch:2.9.0"}, flags,
		[]string{"--", "main.py"})
}

// What Kubernetes, or the workers there, would refuse of a program is reported at once.
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
		{program("--gpus=2", "--worker_resource_request=gpu=1"),
			"--gpus=2: --worker_resource_request and --worker_resource_limit set nvidia.com/gpu=1; " +
				"remove one of the two"},
		{program("--agent_image_name=a", "--volume=claim_name=c,mount_path=/elasticdl-bin/"),
			"elasticdl is at that mount_path; give another"},
		{append(program()[:3], "ftp://host/main.py"), `program ftp://host/main.py: unknown kind of place "ftp"`},
		{append(program()[:3], "s3://bucket/code.tar.gz"),
			"it is an archive; expected the path of the script in it next"},
		{append(program()[:3], "https://host/main.py?ref=v1"), ""},
		{append(program()[:3], "https://host/main.py?X-Amz-Expires=9&X-Amz-Signature=0"),
			"program https://host/main.py: its parameter X-Amz-Signature is a secret that expires: " +
				"the cluster would keep it in plain text"},
		{program("--workdir=code", "--volume=claim_name=c,mount_path=/data"), ""},
		{program("--workdir=code", "--yaml=-"),
			"--workdir=code: nothing is uploaded with --yaml=-; remove one of the two, or have the code in the image"},
		{append(program("--program_sha256=12")[:4], "https://host/main.py"),
			"--program_sha256=12: expected 64 hexadecimal digits"},
	} {
		_, err := Parse(Run, test.args)
		if got := errors.Join(err); (got == nil) != (test.want == "") || got != nil &&
			(!strings.Contains(got.Error(), test.want) || strings.Contains(got.Error(), "\n")) {
			t.Errorf("%q: %v, want %s", test.args, got, test.want)
		}
	}
}

// Processes of this machine start in the directory of --workdir. For a cluster it is uploaded, to a
// claim that can be written to.
func TestWorkdir(t *testing.T) {
	here, err := Parse(Run, []string{"--runtime=local", "--working-dir=code", "main.py"})
	if err != nil || here.Job.Program.Workdir != "code" || here.Upload != "" {
		t.Errorf("%+v, %v", here.Job.Program, err)
	}
	there, err := Parse(Run,
		program("--workdir=code",
			"--volume=host_path=/d,mount_path=/d;claim_name=fixed,mount_path=/fixed;claim_name=c,mount_path=/data,sub_path=team"))
	if err != nil || there.Job.Program.Workdir != "" || there.Upload != "code" {
		t.Fatalf("%+v, %v", there, err)
	}
	j := there.Job
	if got := j.UploadDir(); got != "/fixed/elasticdl-code" {
		t.Errorf("uploads to %s", got)
	}
	j.ClusterSpecJSON = `{"pod_spec":{"volumes":[{"persistentVolumeClaim":{"claimName":"fixed","readOnly":true}}]}}`
	sum := strings.Repeat("0", 64)
	dir, file := j.SetCode(sum)
	if dir != "/data/elasticdl-code/"+sum || file != "code.tar" || j.Program.Code != dir+"/code.tar" ||
		j.Program.CodeSHA256 != sum {
		t.Errorf("%s, %s, %+v", dir, file, j.Program)
	}
	if claim, at, ok := j.OnClaim(dir); claim != "c" || at != "team/elasticdl-code/"+sum || !ok {
		t.Errorf("claim %s at %s", claim, at)
	}
	survives(t, j)
	if err := j.ValidateCluster(); err != nil {
		t.Error(err)
	}
	j.Volumes = j.Volumes[:2]
	if got := j.UploadDir(); got != "" {
		t.Errorf("uploads to %s, which is read-only", got)
	}
	for want, change := range map[string]func(*Program){
		"--workdir=code: expected a directory in the image or on a volume": func(g *Program) {
			g.Workdir, g.Code, g.CodeSHA256 = "code", "", ""
		},
		"--workdir=/code: the processes start in code=": func(g *Program) {
			g.Workdir = "/code"
		},
		`code.tar: expected the path of a .tar on a volume, ` +
			`and its checksum in codeSHA256, found "" there`: func(g *Program) {
			g.CodeSHA256 = ""
		},
		`and its checksum in codeSHA256, found "0" there`: func(g *Program) {
			g.CodeSHA256 = "0"
		},
		"code=code.tar: expected the path": func(g *Program) {
			g.Code = "code.tar"
		},
	} {
		changed := *j
		change(&changed.Program)
		if err := changed.ValidateCluster(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

func TestScript(t *testing.T) {
	for command, want := range map[string]string{
		"main.py --x": "main.py", "python3 -u train/main.py": "train/main.py",
		"python3.11 -X dev -W ignore a.py": "a.py", "./run.sh a.py": "./run.sh",
		"python3 -m train a.py": "", "python3 -c pass a.py": "", "python3": "", "torchrun main.py": "",
		"https://host/main.py": "", "/bin/sh -c true": "/bin/sh",
	} {
		if got := (&Program{Command: strings.Fields(command)}).Script(); got != want {
			t.Errorf("%s: %q, want %q", command, got, want)
		}
	}
	for _, g := range []Program{{Module: true, Command: []string{"a.py"}}, {}} {
		if got := g.Script(); got != "" {
			t.Errorf("%+v: %q", g, got)
		}
	}
	if got := (&Program{NoPython: true, Command: []string{"python3", "a.py"}}).Script(); got != "" {
		t.Errorf("without Python: %q", got)
	}
}

// The signature of a URL is in no message and in no name.
func TestTitleOfAProgram(t *testing.T) {
	c, err := Parse(Run, []string{"--runtime=local", "--", "https://host/train/main.py?signature=a/b.c", "--epochs=2"})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Job.Title(); got != "https://host/train/main.py --epochs=2" || c.Job.Name != "main" {
		t.Errorf("%s of job %s", got, c.Job.Name)
	}
}

// Requests for GPUs leave the workers' other limits unchanged.
func TestGPUsOfAProgram(t *testing.T) {
	c, err := Parse(Run, program("--gpus=2"))
	if err != nil {
		t.Fatal(err)
	}
	if w := c.Job.Worker; w.Request["nvidia.com/gpu"] != "2" || w.Request["memory"] == "" ||
		w.Limit != nil || len(c.Job.Master.Request) != 2 {
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
		j := &Job{Name: "j", Type: test.of, TrainingSettings: TrainingSettings{CheckpointDir: test.dir}}
		if err := j.Resumable(
			test.ended); !errors.Is(err, test.want) {
			t.Errorf("%+v: %v", test, err)
		}
	}
}
