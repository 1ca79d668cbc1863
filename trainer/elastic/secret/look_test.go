package secret

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

func TestLooks(t *testing.T) {
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
		if why := Looks(c.name, c.value); why != c.why {
			t.Errorf("%s=%s: %q, want %q", c.name, c.value, why, c.why)
		}
		// a value that is refused by its form is removed from texts, too
		if text := "got " + c.value + " here"; c.why != "" && c.why != "by its name" &&
			new(Redactor).Text(text) == text {
			t.Errorf("%q stays in a text", c.value)
		}
	}
}
