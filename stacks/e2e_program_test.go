//go:build e2e

package main

import (
	"io"
	"log"
	"maps"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/test/torch"
)

// quickStart is the script in the bucket: it takes the arguments of imagenet.py, which needs
// Pillow, and steps as plain.py does.
const quickStart = `import argparse, os, runpy, sys
parser = argparse.ArgumentParser()
for name in "input_path", "epochs", "batch_size", "num_data_workers", "checkpoint_file":
    parser.add_argument("--" + name, required=True)
args = parser.parse_args()
assert os.listdir(args.input_path) == ["n01443537"], args
sys.argv[1:] = [os.path.dirname(args.checkpoint_file), "0.1"]
runpy.run_path("/scripts/plain.py", run_name="__main__")
`

// The job of torchelastic's quick start, in the steps of its page and with the settings of its
// file: the job is suspended until its code is in the bucket and its data on the claim; then it has
// two workers of at most three, in an image without elasticdl; then three. Replaced are the parts
// that this machine lacks: the image with CUDA, the bucket of Amazon and the identity that may read
// it, the claim on EFS, GPUs, and large nodes.
func (s *site) testProgram(t *testing.T) {
	registry, err := os.ReadFile(filepath.Join(s.dir, "registry"))
	if err != nil {
		t.Fatal(err)
	}
	image, agent := strings.TrimSpace(string(registry))+"/torch:stack",
		strings.TrimSpace(string(registry))+"/elasticdl:agent"
	if _, err := torch.PushImage(t.Context(), image, filepath.Join(s.repository, "test", "local",
		"testdata", "plain.py")); err != nil {
		t.Fatal(err)
	}
	example := s.example(t, "torchelastic", "elasticdl:job")
	tr := s.newTrial(t, "minikube", func(config section) {
		maps.Copy(sub(config, "elasticdl:minikube"), section{"adopt": true})
		delete(config, "elasticdl:image")
		delete(config, "elasticdl:data")
		config["elasticdl:job"] = example
		delete(example, "gpus")
		maps.Copy(example, section{
			"image": image, "agentImage": agent,
			"volumes":    []any{section{"mountPath": "/data", "claimName": "data-claim"}},
			"envSecrets": section{"AWS_ACCESS_KEY_ID": "store/id", "AWS_SECRET_ACCESS_KEY": "store/key"},
		})
		maps.Copy(sub(example, "worker"), section{"request": section{"cpu": "20m", "memory": "128Mi"},
			"limit": section{"cpu": "1", "memory": "1Gi"}})
	})
	tr.job = example["name"].(string)
	spec, master := "v1/ConfigMap elasticdl-"+tr.job, "batch/v1/Job elasticdl-"+tr.job+"-master"
	tr.cluster.Mounts = map[string]string{"/data": s.data}
	if err := tr.cloud.StartMinikube(tr.namespace); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"build", "--image=" + agent, s.elasticdl}, {"push", agent}} {
		if out, err := exec.CommandContext(t.Context(), s.elasticdl,
			append([]string{"zoo"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("elasticdl zoo %v: %v\n%s", args, err, out)
		}
	}
	tr.up()
	if status := tr.run("elasticdl", "status", tr.job); !strings.Contains(status, "Suspended") {
		t.Errorf("%s", status)
	}
	tr.unchanged()

	query := tr.bucket("code", "main.py", quickStart)
	if err := os.MkdirAll(filepath.Join(s.data, "tiny-imagenet-200", "train", "n01443537"), 0o755); err != nil {
		t.Fatal(err)
	}
	tr.configure(func(config section) {
		job := sub(config, "elasticdl:job")
		command := job["command"].([]any)
		command[0] = strings.Replace(command[0].(string), "BUCKET", "code", 1) + query
		job["suspend"] = false
	})
	began := time.Now()
	tr.does("update "+spec, "delete "+master, "create "+master) // another command is another job
	tr.stepping("2")
	t.Logf("pulumi up to two processes stepping: %v", time.Since(began).Round(100*time.Millisecond))
	worker := tr.uid("worker-0")
	tr.unchanged()

	tr.configure(func(config section) { sub(config, "elasticdl:job")["numWorkers"] = 3 })
	began = time.Now()
	tr.does("update " + spec)
	tr.stepping("3")
	t.Logf("pulumi up to three processes stepping: %v", time.Since(began).Round(100*time.Millisecond))
	if tr.uid("worker-0") != worker {
		t.Error("worker-0 was disturbed")
	}
	if err := os.WriteFile(filepath.Join(s.data, "enough"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	tr.run("elasticdl", "wait", tr.job, "--timeout=2m")
	if status := tr.run("elasticdl", "status", tr.job); !strings.Contains(status, "Succeeded") {
		t.Errorf("%s", status)
	}
	tr.unchanged()
	tr.destroy()
	if left := tr.left(); len(left) > 0 {
		t.Errorf("the cluster still has %v", left)
	}
}

// example returns a section of the settings of an example.
func (s *site) example(t *testing.T, name, of string) section {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.repository, "examples", name, "Pulumi."+name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file section
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return sub(file, "config", of)
}

// bucket serves an object in a bucket of this machine to pods, with a Secret that has access, and
// returns the rest of its location.
func (tr *trial) bucket(name, key, content string) (query string) {
	tr.t.Helper()
	store := s3mem.New()
	err := store.CreateBucket(name)
	if err == nil {
		_, err = store.PutObject(name, key, nil, strings.NewReader(content), int64(len(content)), nil)
	}
	if err != nil {
		tr.t.Fatal(err)
	}
	address := tr.run("kubectl", "get", "nodes", "-o",
		`jsonpath={.items[0].status.addresses[?(@.type=="InternalIP")].address}`)
	listener, err := net.Listen("tcp", address+":0")
	if err != nil {
		tr.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(gofakes3.New(store).Server())
	server.Listener.Close()
	server.Listener, server.Config.ErrorLog = listener, log.New(io.Discard, "", 0)
	server.Start()
	tr.t.Cleanup(server.Close)
	tr.run("kubectl", "create", "secret", "generic", "store", "--from-literal=id=key", "--from-literal=key=secret")
	return "?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL)
}

// stepping waits until rank 0 has completed a step in a world of that size.
func (tr *trial) stepping(size string) {
	tr.t.Helper()
	tr.eventually("step in a world of "+size, func() bool {
		out, err := tr.try("elasticdl", "logs", tr.job)
		return err == nil && strings.Contains(out, " rank 0 world "+size+" ")
	})
}
