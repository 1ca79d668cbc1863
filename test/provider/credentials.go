package provider

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// credentials has for each cloud the file that its login command writes into the home directory,
// and the words in which its real provider refuses to work without.
var credentials = map[string]struct{ file, refusal string }{
	"gcp": {".config/gcloud/application_default_credentials.json",
		"attempted to load application default credentials since neither `credentials` nor `access_token` was set " +
			"in the provider block. No credentials loaded. To use your gcloud credentials, run 'gcloud auth " +
			"application-default login'"},
	"aws": {".aws/credentials", "No valid credential sources found."},
}

// loggedOut returns why the provider refuses to work; nil = it has credentials, or needs none.
func (p *Provider) loggedOut() error {
	needs, ok := credentials[p.pkg]
	if p.cloud.Home == "" || !ok {
		return nil
	}
	_, err := os.Stat(filepath.Join(p.cloud.Home, needs.file))
	if errors.Is(err, os.ErrNotExist) {
		return errors.New(needs.refusal)
	}
	return err
}

// CheckConfig reports missing credentials as a problem of the provider's inputs. The engine asks
// when a program makes a provider.
func (p *Provider) CheckConfig(ctx context.Context, q *pulumirpc.CheckRequest) (*pulumirpc.CheckResponse, error) {
	if err := p.loggedOut(); err != nil {
		return &pulumirpc.CheckResponse{Failures: []*pulumirpc.CheckFailure{{Reason: err.Error()}}}, nil
	}
	return p.base.CheckConfig(ctx, q)
}

// Configure refuses to work without credentials. The engine asks also for a provider of the state.
func (p *Provider) Configure(ctx context.Context, r *pulumirpc.ConfigureRequest) (*pulumirpc.ConfigureResponse, error) {
	if err := p.loggedOut(); err != nil {
		return nil, err
	}
	return p.base.Configure(ctx, r)
}
