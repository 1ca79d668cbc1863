//go:build torch

package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/elasticdl/elasticdl/test/torch"
)

// TestTorchPages runs the commands of the pages on PyTorch, with a Python that also has Pillow.
func TestTorchPages(t *testing.T) {
	tours := []tour{
		{
			page: "README.md",
			says: []string{`(?m)^worker-4 +(Running|Pending|Succeeded)`, `(?m)^job elastic Succeeded`},
		},
		{
			page: "examples/pytorch/README.md",
			says: []string{`(?m)^job ddp Succeeded`, `(?m)^job mnist Succeeded`,
				`(?m)^job imagenet Succeeded`, `(?m)^job elastic Succeeded`},
			smaller: smaller{"--data data/png": "--data data/png --epochs=1",
				"--arch resnet6":     "--arch resnet6 --size=16",
				"pytorch/elastic.py": "pytorch/elastic.py --records=4000"},
		},
	}
	pythons := torch.Pythons(t)
	bin := filepath.Dir(pythons[len(pythons)-1].Path)
	for _, tour := range tours {
		t.Run(tour.page, func(t *testing.T) {
			tour.run(t, byTorch, "PATH="+bin+string(os.PathListSeparator)+os.Getenv("PATH"), "OMP_NUM_THREADS=1")
		})
	}
}
