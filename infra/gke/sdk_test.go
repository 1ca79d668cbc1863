package gke

import (
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/sdk"
)

// Google's SDK knows every input, at any depth, also those of resources that are registered without
// its types.
func TestSDK(t *testing.T) {
	source := sdk.Of(t, "github.com/pulumi/pulumi-gcp/sdk/v7", "go/gcp")
	if sdkVersion != source.Version {
		t.Errorf("resources without types ask for version %s, go.mod has %s", sdkVersion, source.Version)
	}
	types := map[string]bool{}
	for _, s := range []*settings.Settings{configured(), regional(), little(), withParts(), keyed()} {
		for _, r := range first(record(t, s, false)) {
			if strings.HasPrefix(r.Type, "gcp:") {
				types[r.Type] = true
				source.Check(t, r)
			}
		}
	}
	if len(types) < 12 {
		t.Errorf("only %d types were looked at", len(types))
	}
}
