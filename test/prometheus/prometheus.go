// Package prometheus runs Prometheus itself, which `make prometheus` installs, and reads the files
// of examples/monitoring.
package prometheus

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/test/until"
)

// Program returns a program of the installation: prometheus or promtool.
func Program(t testing.TB, name string) string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatalf("find the module's root: %v", err)
	}
	path := filepath.Join(filepath.Dir(strings.TrimSpace(string(out))), "build/tools/prometheus", name)
	if _, err := os.Stat(path); err != nil {
		t.Fatal("Prometheus is not installed: make prometheus installs it")
	}
	return path
}

// Server is a Prometheus that runs.
type Server struct{ address string }

var listens = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

// Start starts Prometheus with the files of a directory, of which one is its configuration. It ends
// with the test.
func Start(t testing.TB, dir, config string) *Server {
	t.Helper()
	cmd := exec.Command(Program(t, "prometheus"), "--config.file="+config, "--storage.tsdb.path="+t.TempDir(),
		"--web.listen-address=127.0.0.1:0")
	cmd.Dir = dir
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
		cmd.Process.Signal(os.Interrupt)
		cmd.Wait()
	})
	s := new(Server)
	until.Nil(t, "Prometheus listens", func() error {
		text, err := os.ReadFile(log.Name())
		found := listens.FindSubmatch(text)
		if found == nil {
			return fmt.Errorf("%s, %w", text, err)
		}
		s.address = string(found[1])
		_, err = s.Query("1")
		return err
	})
	return s
}

// Sample is a value of an instant vector, with its labels.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// Query returns the samples of an expression now; none if it is no instant vector.
func (s *Server) Query(expr string) ([]Sample, error) {
	r, err := http.Get("http://" + s.address + "/api/v1/query?" + url.Values{"query": {expr}}.Encode())
	if err != nil {
		return nil, err
	}
	defer r.Body.Close()
	var answer struct {
		Error string `json:"error"`
		Data  struct {
			ResultType string          `json:"resultType"`
			Result     json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if err := json.NewDecoder(r.Body).Decode(&answer); err != nil {
		return nil, err
	}
	switch {
	case answer.Error != "":
		return nil, fmt.Errorf("%s: %s", expr, answer.Error)
	case answer.Data.ResultType != "vector":
		return nil, nil
	}
	var rows []struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"` // time, text
	}
	if err := json.Unmarshal(answer.Data.Result, &rows); err != nil {
		return nil, err
	}
	var all []Sample
	for _, row := range rows {
		text, _ := row.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, err
		}
		all = append(all, Sample{row.Metric, value})
	}
	return all, nil
}

// Until waits until an expression has a sample.
func (s *Server) Until(t testing.TB, expr string) []Sample {
	t.Helper()
	var all []Sample
	until.Nil(t, expr, func() (err error) {
		if all, err = s.Query(expr); err == nil && len(all) == 0 {
			err = errors.New("no sample")
		}
		return err
	})
	return all
}

// Board is a board of Grafana, as far as tests need it.
type Board struct {
	Panels []struct {
		Title   string `json:"title"`
		Targets []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
}

// ReadBoard reads a board.
func ReadBoard(t testing.TB, path string) (b Board) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(text, &b)
	}
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	return b
}

// Expressions returns all expressions of the board, with all jobs chosen.
func (b Board) Expressions() (all []string) {
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			all = append(all, strings.ReplaceAll(target.Expr, "$job", ".+"))
		}
	}
	return all
}

// Rule is an alert.
type Rule struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

// ReadRules reads the alerts of a file.
func ReadRules(t testing.TB, path string) (all []Rule) {
	t.Helper()
	var file struct {
		Groups []struct {
			Rules []Rule `json:"rules"`
		} `json:"groups"`
	}
	text, err := os.ReadFile(path)
	if err == nil {
		err = yaml.Unmarshal(text, &file)
	}
	if err != nil {
		t.Fatalf("read %s: %v", path, err)
	}
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}
