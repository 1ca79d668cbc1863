package job

import (
	"strings"
	"testing"
)

// Values that look like secrets are put together here, so that who looks for secrets in this
// repository finds none.
var (
	jwt     = "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxIn0" + ".c2ln"
	awsKey  = "AKIA" + "IOSFODNN7EXAMPLE"
	pem     = "-----BEGIN RSA " + "PRIVATE KEY-----\nMIIE"
	githubs = "ghp_" + strings.Repeat("a", 36)
	hubs    = "hf_" + strings.Repeat("a", 34)
	openais = "sk-" + strings.Repeat("a", 40)
)

func TestPlainSecret(t *testing.T) {
	for _, c := range []struct{ name, value, why string }{
		// By the name.
		{"PASSWORD", "hunter2", "by its name"},
		{"DB_PASSWORD", "hunter2", "by its name"},
		{"PGPASSWORD", "hunter2", "by its name"},
		{"dbPassword", "hunter2", "by its name"},
		{"db-password", "hunter2", "by its name"},
		{"MYSQL_PWD", "hunter2", "by its name"},
		{"SSH_PASSPHRASE", "hunter2", "by its name"},
		{"HF_TOKEN", "hunter2", "by its name"},
		{"WANDB_API_KEY", "hunter2", "by its name"},
		{"apikey", "hunter2", "by its name"},
		{"OPENAI_APIKEY", "hunter2", "by its name"},
		{"AWS_SECRET_ACCESS_KEY", "hunter2", "by its name"},
		{"CLIENT_SECRET", "hunter2", "by its name"},
		{"AZURE_STORAGE_KEY", "hunter2", "by its name"},
		{"GIT_CREDENTIALS", "hunter2", "by its name"},
		// Names that only resemble them.
		{"TOKENIZERS_PARALLELISM", "maybe", ""},
		{"MAX_TOKENS", "many", ""},
		{"SECRET_NAME", "hub", ""},
		{"AWS_ACCESS_KEY_ID", "hunter2", ""},
		{"PARTITION_KEY", "user", ""},
		{"KEY", "user", ""},
		{"COMPASS", "north", ""},
		{"BYPASS", "it", ""},
		{"", "hunter2", ""},
		// Values that tell nothing.
		{"PASSWORD", "", ""},
		{"TOKEN", "4096", ""},
		{"USE_TOKEN", "true", ""},
		{"GOOGLE_APPLICATION_CREDENTIALS", "/var/run/key.json", ""},
		{"HF_TOKEN", "$(HUB_TOKEN)", ""},
		{"HF_TOKEN", "${HUB_TOKEN}", ""},
		{"HF_TOKEN", "$2b$12$abc", "by its name"},
		{"PWD", "/home/me", ""},
		{"ISSUER_TOKEN", "https://issuer.example/token", ""},
		// By the value.
		{"A", jwt, "a JSON Web Token"},
		{"", "Bearer " + jwt, "a JSON Web Token"},
		{"A", awsKey, "an access key of AWS"},
		{"A", "X" + awsKey + "Y", ""},
		{"A", pem, "a private key"},
		{"A", "-----BEGIN " + "CERTIFICATE-----", ""},
		{"A", githubs, "a token of GitHub"},
		{"A", "https://" + githubs + "@github.com/o/r", "a token of GitHub"},
		{"A", hubs, "a token of Hugging Face"},
		{"A", openais, "an API key"},
		{"A", "task-of-twenty-letters-or-more", ""},
		{"A", "postgres://me:hunter2@db/x", "a URL with a password"},
		{"A", "use redis://:hunter2@cache:6379/0 please", "a URL with a password"},
		{"A", "postgres://me:$(PASSWORD)@db/x", ""},
		{"A", "postgres://me@db/x", ""},
		{"A", "https://host:8080/a@b", ""},
		{"A", "git@github.com:o/r", ""},
		{"A", "https://b.s3.amazonaws.com/k?X-Amz-Expires=9&X-Amz-Signature=0123456789abcdef", "a signed URL"},
		{"A", "https://storage.googleapis.com/b/k?X-Goog-Signature=0123456789", "a signed URL"},
		{"A", "https://a.blob.core.windows.net/c?sv=2024&sig=abcdefghij%3D", "a signed URL"},
		{"A", "https://host/?design=0123456789", ""},
	} {
		if why := PlainSecret(c.name, c.value); why != c.why {
			t.Errorf("%s=%s: %q, want %q", c.name, c.value, why, c.why)
		}
	}
}

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
