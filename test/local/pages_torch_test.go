//go:build torch

package local_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/torch"
)

// theirs is the code that the scripts of the pages leave to their reader: a model, a loss, and
// records.
const theirs = `import torch
from torch.nn.functional import cross_entropy

Net = lambda: torch.nn.Linear(4, 2)
dataset = torch.utils.data.TensorDataset(torch.randn(300, 4), torch.zeros(300, dtype=torch.long))
`

// writeRows writes 300 records of four numbers and a class, in files of different lengths, and
// returns their directory.
func writeRows(t *testing.T, dir string) string {
	t.Helper()
	dir = filepath.Join(dir, "train")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for i, rows := range []int{70, 0, 130, 1, 99} {
		text := strings.Repeat("0.5,1,2,3,1\n", rows)
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.csv", i)), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTorchScriptsOfPages runs each Python script of docs/ unchanged, on two workers. The script
// ends without an error, and leaves the files that it names.
func TestTorchScriptsOfPages(t *testing.T) {
	pythonBlock := regexp.MustCompile("(?ms)^```python\n(.*?)^```$")
	path := regexp.MustCompile(`"(?:/data/([\w.-]+)|[\w-]+\.pt)"`)
	pythons := torch.Pythons(t)
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for i, block := range pythonBlock.FindAllStringSubmatch(string(text), -1) {
			python := pythons[(i+1)%len(pythons)]
			if strings.Contains(block[1], "fully_shard") { // which is in 2.6 and later
				python = pythons[len(pythons)-1]
			}
			scripts++
			heading, _, _ := strings.Cut(block[1], "\n")
			t.Run(filepath.Base(page)+" "+heading, func(t *testing.T) {
				dir := t.TempDir()
				var files []string
				script := path.ReplaceAllStringFunc(block[1], func(literal string) string {
					file := filepath.Join(dir, filepath.Base(strings.Trim(literal, `"`)))
					files = append(files, file)
					return `"` + file + `"`
				})
				// for a run of a few rounds
				script = strings.Replace(script, "every=500", "every=2", 1)
				script = strings.Replace(script, "range(2000)", "range(600)", 1)
				script = strings.ReplaceAll(script, "/data/train", writeRows(t, dir))
				main := filepath.Join(dir, "main.py")
				script = theirs + script
				if err := os.WriteFile(main, []byte(script), 0o644); err != nil {
					t.Fatal(err)
				}
				t.Setenv("OMP_NUM_THREADS", "1")
				j := launch(t, "run", "--num_workers=2", "--", filepath.Join(filepath.Dir(python.Path),
					"python3"), main)
				s := j.end(0)
				keeps := strings.Contains(script, "elasticdl.records(") || strings.Contains(script, "elasticdl.stream(")
				if s.State != "Succeeded" || s.Restarts != 0 || keeps && s.RecordsDone != 600 {
					t.Errorf("%s after %d failures with %d records: %s", s.State, s.Restarts, s.RecordsDone, s.Reason)
				}
				if len(files) == 0 {
					t.Error("it names no file")
				}
				for _, file := range files {
					if _, err := os.Stat(file); err != nil {
						t.Error(err)
					}
				}
				j.nobody()
			})
		}
	}
	if scripts == 0 {
		t.Error("no page has a script")
	}
}
