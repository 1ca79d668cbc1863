package gke

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// The SDK knows every property of the resources that are registered by the names of their types,
// and their version is the SDK's.
func TestSDK(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}",
		"github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp/compute").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))
	if !strings.Contains(dir, "@v"+sdkVersion+string(filepath.Separator)) {
		t.Errorf("%s is not of version %s", dir, sdkVersion)
	}
	files, err := filepath.Glob(filepath.Join(dir, "pulumiTypes*.go"))
	if err != nil {
		t.Fatal(err)
	}
	source := map[string]string{typeNetwork: "network.go", typeSubnet: "subnetwork.go",
		typeRouter: "router.go", typeNAT: "routerNat.go"}
	for _, r := range first(record(t, configured(), false)) {
		if source[r.Type] == "" {
			continue
		}
		kind := r.Type[strings.LastIndex(r.Type, ":")+1:]
		args := strings.ToLower(kind[:1]) + kind[1:] + "Args"
		for k, v := range r.Inputs {
			known(t, []string{filepath.Join(dir, source[r.Type])}, args, string(k))
			for v.IsArray() && len(v.ArrayValue()) > 0 {
				v = v.ArrayValue()[0]
			}
			if v.IsObject() {
				part := kind + strings.TrimSuffix(strings.ToUpper(string(k[:1]))+string(k[1:]), "s")
				for _, k := range v.ObjectValue().StableKeys() {
					known(t, files, part, string(k))
				}
			}
		}
		if _, ok := r.Inputs["name"]; !ok || !r.Inputs["name"].IsString() {
			t.Errorf("%s has no name: %v", r.Type, resource.NewProperty(r.Inputs))
		}
	}
}

// known checks that a struct of the SDK has a property.
func known(t *testing.T, files []string, name, property string) {
	t.Helper()
	body := regexp.MustCompile(`(?s)\ntype ` + name + ` struct \{(.*?)\n\}`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if m := body.FindSubmatch(text); m != nil {
			if !strings.Contains(string(m[1]), "`pulumi:\""+property+"\"`") {
				t.Errorf("%s has no %s", name, property)
			}
			return
		}
	}
	t.Errorf("the SDK has no %s", name)
}
