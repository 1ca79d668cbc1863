package provider

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	pulumirpc "github.com/pulumi/pulumi/sdk/v3/proto/go"
)

// A cloud refuses to work until its own login has written credentials, in the words of its real
// provider: for a new provider, and for one of the state.
func TestCredentials(t *testing.T) {
	c := Start(t)
	c.Home = t.TempDir()
	refused := func(p *Provider) string {
		r, err := p.CheckConfig(t.Context(), &pulumirpc.CheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = p.Configure(t.Context(), &pulumirpc.ConfigureRequest{})
		switch {
		case len(r.Failures) == 0 && err == nil:
			return ""
		case len(r.Failures) == 1 && err != nil && r.Failures[0].Reason == err.Error():
			return err.Error()
		}
		t.Fatalf("%s: CheckConfig says %v, and Configure %v", p.pkg, r.Failures, err)
		return ""
	}
	if why := refused(c.Commands); why != "" {
		t.Errorf("commands need no login: %s", why)
	}
	for _, cloud := range []struct {
		*Provider
		file, says string
	}{
		{c.Google, ".config/gcloud/application_default_credentials.json", "gcloud auth application-default login"},
		{c.Amazon, ".aws/credentials", "No valid credential sources found"},
	} {
		if why := refused(cloud.Provider); !strings.Contains(why, cloud.says) {
			t.Errorf("%s before a login: %q, expected %s", cloud.pkg, why, cloud.says)
		}
		file := filepath.Join(c.Home, cloud.file)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if why := refused(cloud.Provider); why != "" {
			t.Errorf("%s after its login: %s", cloud.pkg, why)
		}
	}
}
