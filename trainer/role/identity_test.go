package role

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/job"
)

func TestSecretsAreLongAndDiffer(t *testing.T) {
	a, b := NewSecret(), NewSecret()
	if a == b || !IsSecret(a) || !IsSecret(b) || len(a) != 64 {
		t.Errorf("two secrets: %q, %q", a, b)
	}
	for _, text := range []string{"", a[1:], a + "0", strings.Repeat("x", 64), a[:62]} {
		if IsSecret(text) {
			t.Errorf("%q passes for a secret", text)
		}
	}
}

// Two ends without a secret would take each other for the job's: so no role begins without one.
func TestNoRoleBeginsWithoutAnIdentity(t *testing.T) {
	secret := NewSecret()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it would look for its master
	defer cancel()
	for name, tt := range map[string]struct {
		job, secret string
		launch      int
		want        string
	}{
		"no job":       {"", secret, 1, job.EnvUID},
		"no secret":    {"uid", "", 1, job.EnvSecret},
		"a short one":  {"uid", "beef", 1, job.EnvSecret},
		"launched not": {"uid", secret, 0, "--launch=0"},
	} {
		env := map[string]string{job.EnvUID: tt.job, job.EnvSecret: tt.secret}
		for _, main := range []func() error{
			func() error {
				r := Role{Master: "127.0.0.1:1", Launch: tt.launch, Log: io.Discard}
				r.Identify(func(name string) string { return env[name] })
				return RunPS(ctx, r)
			},
			func() error {
				r := Role{Master: "127.0.0.1:1", Launch: tt.launch, Log: io.Discard}
				r.Identify(func(name string) string { return env[name] })
				return RunWorker(ctx, r)
			},
		} {
			err := main()
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%s: %v, expected an error that names %s", name, err, tt.want)
			}
			if err != nil && tt.secret != "" && strings.Contains(err.Error(), tt.secret) {
				t.Errorf("%s: the error tells the secret: %v", name, err)
			}
		}
	}
}
