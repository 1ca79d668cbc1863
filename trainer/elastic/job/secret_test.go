package job

import (
	"strings"
	"testing"
)

func TestPlainSecretsRefused(t *testing.T) {
	const url = "postgres://me:hunter2@db/x"
	for name, c := range map[string]struct {
		of   Type
		args []string
		want string
	}{
		"envs": {Train, []string{"--envs=A=1,HF_TOKEN=hunter2"},
			"--envs: HF_TOKEN looks like a secret (by its name); it would be stored in plain text " +
				"in the job's ConfigMap and pods: put it into a Secret and give " +
				"--env_secret=HF_TOKEN=SECRET/KEY, or --allow_plain_secrets if it is none"},
		"params": {Train, []string{"--data_reader_params=password=hunter2"},
			"--data_reader_params: password looks like a secret"},
		"other flag": {Train, []string{"--training_data=" + url},
			"--training_data: it looks like a secret (a URL with a password)"},
		"spec": {Train, []string{
			`--cluster_spec_json={"worker_pod_spec": {"containers": [{"name": "worker", "env": [{"name": "API_KEY", "value": "hunter2"}]}]}}`},
			"--cluster_spec_json: worker_pod_spec.containers[0].env[0].value looks like a secret (by its name)"},
		"argument": {Run, []string{"--", "main.py", "--api_key=hunter2"},
			"program: word 2 looks like a secret (by its name)"},
		"two words": {Run, []string{"--", "main.py", "--password", "hunter2"},
			"program: word 3 looks like a secret (by its name)"},
		"assignment": {Run, []string{"--", "env", "PASSWORD=hunter2", "python3", "main.py"},
			"program: word 2 looks like a secret (by its name)"},
		"value": {Run, []string{"--", "main.py", url},
			"program: word 2 looks like a secret (a URL with a password)"},
		"value and name": {Run, []string{"--", "main.py", "--db=" + url},
			"program: word 2 looks like a secret (a URL with a password)"},
	} {
		args := strings.Fields("--job_name=j --image_name=i")
		if c.of == Train {
			args = append(args, strings.Fields("--model_def=m.custom_model --training_data=/d "+
				"--volume=host_path=/d,mount_path=/d")...)
		}
		_, err := Parse(c.of, append(args, c.args...))
		if err == nil || lines(err) != 1 || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant one problem with %q", name, err, c.want)
		} else if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: the message shows the secret: %v", name, err)
		}
		// locally the job is its user's only
		for _, more := range []string{"--allow_plain_secrets", "--runtime=local"} {
			if _, err := Parse(c.of, append(append(args, more), c.args...)); err != nil {
				t.Errorf("%s with %s: %v", name, more, err)
			}
		}
	}
}

// Other values are not refused, nor are secrets with --allow_plain_secrets; words say what they
// are.
func TestNoPlainSecrets(t *testing.T) {
	for _, args := range [][]string{
		{"--allow_plain_secrets", "--", "https://host/main.py?X-Amz-Signature=0123456789abcdef", "--epochs=2"},
		{"--", "main.py", "--max_tokens", "4096", "--token_file", "/var/run/token", "--tokenizer=gpt2", "--key=user"},
		{"--envs=TOKENIZERS_PARALLELISM=false,AWS_WEB_IDENTITY_TOKEN_FILE=/var/run/t",
			"--env_secret=HF_TOKEN=hub/token", "--", "main.py", "--password"},
		{`--cluster_spec_json={"pod_spec": {"env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}}]}}`,
			"--", "main.py"},
	} {
		if _, err := Parse(Run, append([]string{"--image_name=i"}, args...)); err != nil {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestEnvSecrets(t *testing.T) {
	c, err := Parse(Train, append(onCluster("--env_secret=A=b/c.pem;D=e.f/G_h"), "--env_secret=I=j/k",
		"--image_pull_secret=x;y", "--image_pull_secret=z"))
	if err != nil {
		t.Fatal(err)
	}
	if got := Find("env_secret").bind(c).get(); got != "A=b/c.pem;D=e.f/G_h;I=j/k" {
		t.Errorf("env_secret: %s", got)
	}
	if got := strings.Join(c.Job.ImagePullSecrets, " "); got != "x y z" {
		t.Errorf("image_pull_secret: %s", got)
	}
}
