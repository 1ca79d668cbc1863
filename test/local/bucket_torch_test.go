//go:build torch

package local_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/test/torch"
	"github.com/elasticdl/elasticdl/trainer/store/bucket"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
)

// TestTorchRunInABucket runs a script whose checkpoint is in a bucket of S3. While its job runs,
// another job is refused. When it has ended, another job resumes from there, and every record is in
// the model once in each epoch.
func TestTorchRunInABucket(t *testing.T) {
	python := torch.Python{Name: "2.x", Path: torch.Storage(t)}
	endpoint := s3(t, python.Path)
	for name, value := range map[string]string{"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test",
		"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": endpoint, "CHECKPOINT": "s3://models/kept"} {
		t.Setenv(name, value)
	}
	const records = 1000
	args := func(pause string) []string { return []string{strconv.Itoa(records), pause} }
	files, err := bucket.Open(t.Context(), "s3://models/kept")
	if err != nil {
		t.Fatal(err)
	}
	j := script(t, python, "counts.py", args("2"), "--num_workers=2")
	eventually(t, "checkpoint", runLimit, func() bool {
		names, err := files.List("")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			inside, _ := files.List(name)
			if strings.HasPrefix(name, "commit-") && strings.Contains(strings.Join(inside, " "), "commit.json") {
				return true
			}
		}
		return false
	})
	owned, err := checkpoint.Dir{Files: files}.Owned()
	if err != nil || owned == nil || owned.Owner.Name != j.name {
		t.Fatalf("the checkpoint is owned by %v (%v), want %s", owned, err, j.name)
	}
	other := script(t, python, "counts.py", args("0"), "--num_workers=1", "--max_restarts=0")
	if s := other.end(1); !strings.Contains(s.Reason, "belongs to job "+j.name) {
		t.Errorf("another job with that checkpoint ends with %q", s.Reason)
	}
	j.cmd.Process.Signal(os.Interrupt)
	j.end(130)
	if owned, err := (checkpoint.Dir{Files: files}).Owned(); err != nil || owned != nil {
		t.Errorf("after the end of its job the checkpoint is owned by %v (%v)", owned, err)
	}
	again := script(t, python, "counts.py", args("0"), "--num_workers=3")
	allCounted(t, again, again.end(0), records)
}

// s3 starts a server of S3 with the bucket models, and returns its address.
func s3(t *testing.T, python string) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := listener.Addr().(*net.TCPAddr).Port
	listener.Close()
	server := exec.Command(python, "-m", "moto.server", "-p", strconv.Itoa(port))
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if server.Process.Kill() == nil {
			server.Wait()
		}
	})
	endpoint := fmt.Sprintf("http://127.0.0.1:%d", port)
	eventually(t, "server of S3", time.Minute, func() bool {
		put, err := http.NewRequestWithContext(t.Context(), http.MethodPut, endpoint+"/models", nil)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := http.DefaultClient.Do(put)
		if err == nil {
			reply.Body.Close()
		}
		return err == nil && reply.StatusCode == http.StatusOK
	})
	return endpoint
}
