package agent

import (
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/job"
)

// A program that a URL names is fetched into the agent's directory, and runs with its own arguments; any other command stays as it is.
func TestBringCode(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/main.py" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, "print(1)")
	}))
	defer server.Close()
	a := &agent{Config: Config{Job: new(job.Job), Log: slog.New(slog.NewTextHandler(io.Discard, nil))}, dir: t.TempDir()}
	bring := func(sum string, command ...string) ([]string, error) {
		a.Job.Program = job.Program{Command: command, SHA256: sum}
		return a.bringCode(t.Context())
	}
	got, err := bring("", server.URL+"/main.py", "--epochs=2", "s3://data")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(got[0])
	if string(text) != "print(1)" || !strings.HasPrefix(got[0], a.dir+"/") || filepath.Base(got[0]) != "main.py" || !slices.Equal(got[1:], []string{"--epochs=2", "s3://data"}) {
		t.Errorf("%q has %q", got, text)
	}
	local := []string{"python3", "main.py", "https://host/data"}
	if got, err := bring("", local...); err != nil || !slices.Equal(got, local) {
		t.Errorf("%q, %v", got, err)
	}
	for _, wrong := range [][2]string{{"", server.URL + "/other.py"}, {strings.Repeat("0", 64), server.URL + "/main.py"}, {"", "s3://bucket/main.py"}} {
		if got, err := bring(wrong[0], wrong[1]); err == nil {
			t.Errorf("%s with checksum %q: %q", wrong[1], wrong[0], got)
		}
	}
}
