package price

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/price"
)

// pagesOf has the pages that say what an example costs. An example without pages costs nothing.
var pagesOf = map[string][]string{
	"public-cloud":       {"examples/public-cloud/README.md"},
	"edl-cluster":        {"examples/edl-cluster/README.md"},
	"elastic-scheduling": {"examples/elastic-scheduling/README.md"},
	"torchelastic":       {"examples/torchelastic/README.md", "docs/tutorials/gpus.md"},
	"pytorch":            {"docs/tutorials/gpus.md"},
	"personal-computer":  nil,
}

// hourly returns what a page says of the price of its stack.
func hourly(e Estimate) string {
	if e.Idle() == e.Now() {
		return fmt.Sprintf("$%.2f an hour, with or without a job", e.Now())
	}
	return fmt.Sprintf("$%.2f an hour while the job runs, and $%.2f without a job", e.Now(), e.Idle())
}

// The pages of the examples say what the table says of their stacks, and have no other price. A
// suspended job counts as one that runs.
func TestExamplesSayPrice(t *testing.T) {
	want := map[string][]string{}
	for name, pages := range pagesOf {
		e := Of(settingsOf(t, "../../examples/"+name+"/Pulumi."+name+".yaml", func(config map[string]any) {
			delete(config["elasticdl:job"].(map[string]any), "suspend")
		}))
		if (len(pages) > 0) != (e.Most() > 0) {
			t.Errorf("%s: %d pages, and %s", name, len(pages), e)
		}
		for _, page := range pages {
			want[page] = append(want[page], hourly(e))
		}
	}
	files, err := filepath.Glob("../../examples/*/Pulumi.*.yaml")
	if err != nil || len(files) != len(pagesOf) {
		t.Errorf("%d examples, and %d with pages: %v", len(files), len(pagesOf), err)
	}
	tutorials, err := filepath.Glob("../../docs/tutorials/*.md")
	pages, failed := filepath.Glob("../../examples/*/*.md")
	if err != nil || failed != nil || len(tutorials) < 5 || len(pages) < 6 {
		t.Fatal(tutorials, pages, err, failed)
	}
	for _, path := range slices.Concat(tutorials, pages, files) {
		page, _ := filepath.Rel("../..", path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rest := strings.Join(strings.Fields(string(text)), " ")
		for _, sentence := range want[page] {
			if !strings.Contains(rest, sentence) {
				t.Errorf("%s does not say %s", page, sentence)
			}
			rest = strings.Replace(rest, sentence, "", 1)
		}
		for _, other := range regexp.MustCompile(`\$[0-9]+[.,]?[0-9]* .{30}`).FindAllString(rest, -1) {
			if !strings.HasPrefix(other[2:], " ==") && !strings.HasPrefix(other[2:], " ~") { // awk's
				t.Errorf("%s has another price: %s", page, other)
			}
		}
	}
}

// The comment on spot nodes in the example of a PyTorch script compares the prices of its machine.
func TestExampleComparesPrices(t *testing.T) {
	const path = "../../examples/pytorch/Pulumi.pytorch.yaml"
	var hours [2]float64
	for i := range hours {
		pool := settingsOf(t, path, nil).GKE.GPUPool
		hours[i], _ = price.Machine{Cloud: price.Google, Type: pool.MachineType, Spot: i == 0}.Hour()
	}
	want := fmt.Sprintf("# %.2f instead of %.2f an hour", hours[0], hours[1])
	if text, err := os.ReadFile(path); err != nil || !strings.Contains(string(text), want) {
		t.Errorf("%s does not say %s: %v", path, want, err)
	}
}
