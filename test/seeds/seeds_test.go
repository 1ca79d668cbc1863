package seeds

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var source = flag.String("source", "",
	"directory with the tutorials as published, one file each; TestExtraction compares with them")

// Every row of the table replaces a command of a tutorial, and says why; nothing is replaced twice.
func TestTable(t *testing.T) {
	used := map[*StandIn]bool{}
	for _, name := range Names {
		s, err := Read(name)
		if err != nil {
			t.Fatal(err)
		}
		asItStands := 0
		for _, c := range s.Commands {
			if used[c.StandIn] = true; c.StandIn == nil {
				asItStands++
			}
		}
		t.Logf("%s: %d of %d commands as they stand, %d files", name, asItStands, len(s.Commands), len(s.Files))
	}
	for i := range StandIns {
		if row := &StandIns[i]; !used[row] || row.Why == "" {
			t.Errorf("no command of %q begins with %q, or there is no reason", row.Seed, row.Begins)
		}
	}
}

// Commands are whole: continued lines, here-documents with others in them, and pipes.
func TestCommands(t *testing.T) {
	s, err := Read("torchelastic")
	if err != nil {
		t.Fatal(err)
	}
	var begins []string
	for _, c := range s.Commands {
		first, _, _ := strings.Cut(c.Text, "\n")
		begins = append(begins, first)
		if strings.HasPrefix(c.Text, "cat <<EOF") && !strings.HasSuffix(c.Text, "claimName: efs-claim\nEOF") {
			t.Errorf("the here-document is cut: %q", c.Text)
		}
		if strings.HasPrefix(c.Text, "eksctl") && !strings.HasSuffix(c.Text, "--nodes=2") {
			t.Errorf("the continued line is cut: %q", c.Text)
		}
	}
	if got := strings.Join(begins, "\n"); len(begins) != 12 ||
		!strings.Contains(got, "\ncat <<EOF | kubectl apply -f -\nkubectl apply -f etcd.yaml\n") {
		t.Errorf("%d commands:\n%s", len(begins), got)
	}
}

// begun is a line of a tutorial that is a command, or has one in the middle of a sentence.
var begun = regexp.MustCompile("^ *(?:\\$ " +
	")?((?:cat|cd|docker|eksctl|elasticdl|eval|export|gcloud|git|kubectl|minikube|pip|python|scripts/\\S+|sed) .*[^ ]|scripts/\\S+\\.sh)$" +
	"|(?:command|run) `(kubectl [a-z ]+)`")

// Every command of the tutorials as published is there, word for word and in the same order, and
// nothing else.
func TestExtraction(t *testing.T) {
	if *source == "" {
		t.Skip("-source names no directory with the tutorials as published")
	}
	for i, name := range Names {
		files, err := filepath.Glob(filepath.Join(*source, "00"+string(rune('0'+i))+"_*"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%s: %v, %v", name, files, err)
		}
		published, err := os.ReadFile(files[0])
		if err != nil {
			t.Fatal(err)
		}
		s, err := Read(name)
		if err != nil {
			t.Fatal(err)
		}
		var extracted []string
		for _, c := range s.Commands {
			extracted = append(extracted, c.Text)
		}
		rest := strings.Join(extracted, "\n")
		lines := strings.Split(string(published), "\n")
		for n := 0; n < len(lines); n++ {
			found := begun.FindStringSubmatch(lines[n])
			if found == nil || found[1] != "" && strings.Contains(lines[n], "kubectl available") {
				continue
			}
			command := strings.TrimPrefix(strings.TrimSpace(lines[n]), "$ ")
			if found[2] != "" {
				command = found[2]
			}
			for found[2] == "" && strings.HasSuffix(command, "\\") {
				n++
				command += "\n" + lines[n]
			}
			at := strings.Index(rest, command)
			if at != 0 {
				t.Errorf("%s:%d: expected the command %q, found %.80q", files[0], n+1, command, rest)
				break
			}
			rest = strings.TrimPrefix(rest[len(command):], "\n")
			if body, _, ok := strings.Cut(rest, "\nEOF\n"); strings.HasPrefix(command, "cat <<EOF") && ok {
				rest = rest[len(body)+len("\nEOF\n"):]
				for lines[n] != "EOF" {
					n++
				}
			}
		}
		if rest != "" {
			t.Errorf("%s.txtar has more than %s: %q", name, files[0], rest)
		}
		for file, text := range s.Files {
			if !strings.Contains(string(published), strings.TrimSpace(text)) {
				t.Errorf("%s.txtar: %s is not in %s", name, file, files[0])
			}
		}
	}
}

// The Python files at ElasticDL's paths hand their arguments to elasticdl.
func TestPaths(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "elasticdl"),
		[]byte("#!/bin/sh\nprintf '%s|' \"$@\"\nexit 3\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"-m elasticdl.python.elasticdl.client train --job_name=x --volume=a,b":   "train|--job_name=x|--volume=a,b|",
		"-m elasticdl.python.elasticdl.client zoo push gcr.io/p/elasticdl:mnist": "zoo|push|gcr.io/p/elasticdl:mnist|",
		"elasticdl/python/elasticdl/client/client.py --job_name=x --num_epoch=1": "train|--job_name=x|--num_epoch=1|",
		"elasticdl/python/data/recordio_gen/image_label.py --dataset mnist " +
			"--records_per_shard 4096 .": "dataset|mnist|./mnist|--records_per_shard=4096|",
		"elasticdl/python/data/recordio_gen/image_label.py --dataset fashion_mnist data " +
			"--source=http://mirror/": "dataset|fashion-mnist|data/fashion_mnist|" +
			"--records_per_shard=16384|--source=http://mirror/|",
	} {
		for path, want := range map[string]string{bin + ":" + os.Getenv("PATH"): want,
			"/usr/bin:/bin": "elasticdl: not found on PATH"} {
			python, err := exec.LookPath("python3")
			if err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command(python, strings.Fields(args)...)
			cmd.Dir = "../../examples/elasticdl"
			cmd.Env = append(os.Environ(), "PATH="+path, "PYTHONDONTWRITEBYTECODE=1")
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.HasPrefix(string(out), want) {
				t.Errorf("python %s with PATH=%s: %v, %q, want %q and a failure", args, path, err, out, want)
			}
		}
	}
}
