// Package tensorboard reads event files by TensorBoard itself, which `make tensorboard` installs.
package tensorboard

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/test/until"
)

// Point is a point of a curve.
type Point struct {
	Step  int64
	Value float64
}

// Curves are the points that TensorBoard shows of a run, by tag.
type Curves map[string][]Point

//go:embed curves.py
var curves string

// Read returns the curves of the run in a directory, as TensorBoard's EventAccumulator has them. It
// skips the test if TensorBoard is not installed.
func Read(t testing.TB, run string) Curves {
	t.Helper()
	cmd := exec.Command(program(t, "python"), "-c", curves, run)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("read %s by TensorBoard: %v", run, err)
	}
	var all Curves
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("read %s by TensorBoard: %v\n%s", run, err, out)
	}
	return all
}

// program returns a program of the virtual environment.
func program(t testing.TB, name string) string {
	t.Helper()
	path := filepath.Join(root(t), "build/tools/tensorboard/bin", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatal("TensorBoard is not installed: make tensorboard installs it")
	}
	return path
}

// Server is a TensorBoard that serves a directory of runs.
type Server struct{ address string }

var served = regexp.MustCompile(`http://\S+:[0-9]+/`)

// Serve starts TensorBoard as its users do. fast chooses its data server, which is its default,
// instead of the loader in Python.
func Serve(t testing.TB, dir string, fast bool) *Server {
	t.Helper()
	cmd := exec.Command(program(t, "tensorboard"), "--logdir="+dir, "--host=127.0.0.1", "--port=0",
		"--reload_interval=1", fmt.Sprintf("--load_fast=%v", fast))
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(os.Interrupt) // it ends its data server
		cmd.Wait()
	})
	s := new(Server)
	until.Nil(t, "TensorBoard serves", func() error {
		text, err := os.ReadFile(log.Name())
		if s.address = served.FindString(string(text)); s.address == "" {
			return fmt.Errorf("%s, %w", text, err)
		}
		return nil
	})
	return s
}

// Curve returns the curve of a tag that the server shows at present.
func (s *Server) Curve(run, tag string) ([]Point, error) {
	r, err := http.Get(s.address + "data/plugin/scalars/scalars?" + url.Values{"run": {run}, "tag": {tag}}.Encode())
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s of run %s: %s", tag, run, r.Status)
	}
	var rows [][3]float64 // time, step, value
	if err := json.NewDecoder(r.Body).Decode(&rows); err != nil {
		return nil, err
	}
	var points []Point
	for _, row := range rows {
		points = append(points, Point{int64(row[1]), row[2]})
	}
	return points, nil
}

// root returns the root of the module.
func root(t testing.TB) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("find the module's root: %v", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out)))
}
