//go:build e2e

package e2e

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func testSeedTorchElastic(t *testing.T, w *webhook) {
	// Two p3.2xlarge: 8 CPUs, 61 GB, a GPU.
	ns, c := w.newReplica(t, size{2, 7910, 57 << 10, 1}, nil)
	p := newPlayer(t, "torchelastic", ns, c, "BUCKET=code", "USER=reader", "JOB_ID=imagenet-job")
	t.Cleanup(func() {
		for _, node := range c.names {
			command("kubectl", "patch", "node", node, "--subresource=status", "--type=merge", "-p",
				`{"status":{"capacity":{"nvidia.com/gpu":null}}}`)
		}
		command("kubectl", "delete", "persistentvolume", "efs-pv", "--ignore-not-found", "--wait=false")
	})
	p.save("storage.yaml", strings.ReplaceAll(efsStorage, "$DIRECTORY", ns.directory()))
	p.runTo("cat <<EOF | kubectl apply -f -")
	p.imagenet(ns.torchImage())
	p.runTo("kubectl apply -f imagenet.yaml")
	p.shows(isRunning("elasticdl-imagenet-worker-0"), isRunning("elasticdl-imagenet-worker-1"))
	out := p.runTo("kubectl logs -f imagenet-worker-1")
	if missing := lacks(out, []string{
		`Loading data from: /data/tiny-imagenet-200/train$`, `Rank \[[01]\] of 2 running on cpu$`,
		`epoch: 0, iteration: 0, data_idx: 0$`, `epoch: 0, iteration: 10, data_idx: \d+$`,
	}); missing != "" {
		t.Errorf("the log of worker 1 has no line of %s:\n%s", missing, out)
	}

	// "You can launch new pods with same configuration to join the training or delete individual
	// pod to check"
	r := &running{&submitted{namespace: ns, job: "imagenet"}, ""}
	p.elastic(r, "elasticdl scale imagenet --num_workers=1", 1)
	p.elastic(r, "elasticdl scale imagenet --num_workers=2", 2)
	p.elastic(r, "kubectl delete $(kubectl get pods -o name -l elasticdl_job_name=imagenet | grep "+
		"worker | head -n 1)", 2)

	p.runTo("kubectl delete -f imagenet.yaml")
	eventually(t, "end of all pods", patience, func() bool {
		out, _ := p.types("kubectl get pods -o name")
		return !strings.Contains(out, "imagenet")
	})
	p.over()
}

// elastic runs a command, after which a world of a size must be new and train.
func (p *player) elastic(r *running, command string, size int) {
	p.t.Helper()
	before := r.tells().World
	p.prepares(command)
	r.awaits(fmt.Sprintf("new world of %d", size), patience, func() bool {
		s := r.status()
		return s.World > before && s.WorldSize == int32(size)
	})
	eventually(p.t, fmt.Sprintf("training in a world of %d", size), patience, func() bool {
		out, err := r.try(*elasticdl, "logs", "imagenet")
		return err == nil && len(grep(out, fmt.Sprintf(`Rank \[0\] of %d running`, size))) > 0
	})
}

// save writes a file in the shell's directory.
func (p *player) save(name, text string) {
	p.t.Helper()
	at := p.prepares("pwd")
	if err := os.WriteFile(filepath.Join(strings.TrimSpace(at), name), []byte(text), 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// efsStorage is the page's storage.yaml: a volume by its identifier, and the claim efs-claim.
const efsStorage = `apiVersion: v1
kind: PersistentVolume
metadata:
  name: efs-pv
spec:
  capacity: {storage: 5Gi}
  accessModes: [ReadWriteMany]
  persistentVolumeReclaimPolicy: Retain
  storageClassName: ""
  hostPath: {path: $DIRECTORY/<EFS_ID>, type: DirectoryOrCreate}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: efs-claim
spec:
  accessModes: [ReadWriteMany]
  storageClassName: ""
  volumeName: efs-pv
  resources: {requests: {storage: 5Gi}}
`

// imagenet makes what the page expects to be imagenet.yaml, with the page's placeholders, image
// and numbers of workers, and what the page's reader has uploaded to a bucket.
func (p *player) imagenet(reference string) {
	p.t.Helper()
	script, err := os.ReadFile("testdata/imagenet.py")
	if err != nil {
		p.t.Fatal(err)
	}
	bucket := p.bucket(map[string][]byte{"petctl/reader/imagenet-job/main.py": script})
	out := p.prepares(strings.Join([]string{"elasticdl run --yaml=imagenet.yaml --job_name=imagenet " +
		"--image_name=" + reference, "--agent_image_name=" + image,
		"--num_workers=2 --min_workers=1 --max_workers=3 --gpus=1 " +
			"--envs=OMP_NUM_THREADS=1,SSL_CERT_FILE=/home/authority.pem",
		"--volume='claim_name=efs-claim,mount_path=/data;host_path=" + bucket.home +
			",mount_path=/home' '" + bucket.access + "'",
		"-- 's3://<BUCKET>/petctl/<USER>/<JOB_ID>/main.py" + bucket.query +
			"' --input_path /data/tiny-imagenet-200/train --epochs 10"}, " "))
	p.t.Logf("imagenet.yaml is by elasticdl run --yaml:\n%s", out)
}

// pushData pushes an image that has the digits in /data, as the image of ElasticDL's Dockerfile of
// 2019 had them.
func pushData(t *testing.T) string {
	t.Helper()
	reference := registry + "/elasticdl:data"
	ref, err := name.ParseReference(reference, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	top := t.TempDir()
	if err := os.CopyFS(filepath.Join(top, "data"), os.DirFS(digits)); err != nil {
		t.Fatal(err)
	}
	text := archive(t, top)
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(text)), nil
	})
	if err != nil {
		t.Fatal(err)
	}
	made, err := mutate.AppendLayers(empty.Image, layer)
	if err == nil {
		made, err = forThisMachine(made)
	}
	if err == nil {
		err = remote.Write(ref, made, remote.WithContext(t.Context()))
	}
	if err != nil {
		t.Fatal(err)
	}
	return reference
}

// forThisMachine returns an image for the platform of this machine.
func forThisMachine(made v1.Image) (v1.Image, error) {
	config, err := made.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	return mutate.ConfigFile(made, config)
}
