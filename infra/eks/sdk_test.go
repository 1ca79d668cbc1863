package eks

import (
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/sdk"
)

// Amazon's SDK knows every input, at any depth, also those of resources that are registered without
// its types; and every resource that can have tags has the stack's labels and
// a name.
func TestInputsOfTheSDK(t *testing.T) {
	source := sdk.Of(t, "github.com/pulumi/pulumi-aws/sdk/v6", "go/aws")
	if version != source.Version {
		t.Errorf("resources without types ask for version %s, go.mod has %s", version, source.Version)
	}
	types := map[string]bool{}
	for _, s := range []*settings.Settings{own(), existing(), withParts(), keyed(settings.NodesKarpenter)} {
		v, err := record(s, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range v.all {
			if !strings.HasPrefix(r.Type, "aws:") {
				continue
			}
			types[r.Type] = true
			source.Check(t, r)
			if source.Has(t, r.Type, "tags") && !strings.HasPrefix(text(&r, "tags.Name"), "elasticdl-test") {
				t.Errorf("%s %s is named %s", r.Type, r.Name, text(&r, "tags.Name"))
			}
			for label, want := range s.Labels {
				if got := text(&r, `tags["`+label+`"]`); source.Has(t, r.Type, "tags") && got != want {
					t.Errorf("%s %s: tag %s is %s, not %s", r.Type, r.Name, label, got, want)
				}
			}
		}
	}
	if len(types) < 25 {
		t.Errorf("only %d types were looked at", len(types))
	}
}
