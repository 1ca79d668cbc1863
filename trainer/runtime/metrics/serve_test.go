package metrics

import (
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

func pidOfTest() int { return os.Getpid() }

// get returns the status and the body of an answer.
func get(t *testing.T, url, accept string) (int, string, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", accept)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, answer.Header.Get("Content-Type"), string(body)
}

// Both formats are served, with the metrics of the process, all of them with the name of the job.
func TestServe(t *testing.T) {
	var m Master
	m.Publish(fullStatus(2))
	s := Serve(Config{Job: "test-mnist", Address: "127.0.0.1:0", Targets: m.Targets}, m.Source())
	defer s.Close()
	for accept, format := range map[string]string{"text/plain": "text/plain",
		"application/openmetrics-text; version=1.0.0": "application/openmetrics-text"} {
		code, is, body := get(t, "http://"+s.Address()+"/metrics", accept)
		if code != http.StatusOK || !strings.HasPrefix(is, format) {
			t.Fatalf("%d, %s for %s", code, is, accept)
		}
		for _, want := range []string{`elasticdl_job_records_done{job_name="test-mnist"} 150`,
			`go_goroutines{job_name="test-mnist"}`, `process_resident_memory_bytes{job_name="test-mnist"}`} {
			if !strings.Contains(body, "\n"+want) {
				t.Errorf("no %s in %s", want, format)
			}
		}
		for line := range strings.Lines(body) {
			if !strings.HasPrefix(line, "#") && !strings.Contains(line, `job_name="test-mnist"`) {
				t.Errorf("without the name of the job: %s", line)
			}
		}
	}
	code, _, body := get(t, "http://"+s.Address()+"/targets", "")
	var groups []targetGroup
	if err := json.Unmarshal([]byte(body), &groups); code != http.StatusOK || err != nil || len(groups) != 2 ||
		groups[0].Targets[0] != s.Address() || groups[0].Labels["pod"] != "master" ||
		groups[1].Targets[0] != "127.0.0.1:5" || groups[1].Labels["pod"] != "worker-1" {
		t.Errorf("%d: %s", code, body)
	}
	if s.Problem() != "" {
		t.Errorf("a problem: %s", s.Problem())
	}
}

// Without targets there is no page of them, and no other page.
func TestOtherPages(t *testing.T) {
	s := Serve(Config{Job: "j", Address: "127.0.0.1:0"})
	defer s.Close()
	for _, path := range []string{"/targets", "/", "/debug/pprof/"} {
		if code, _, _ := get(t, "http://"+s.Address()+path, ""); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// A server whose port is taken reports that, and serves when the port is free.
func TestPortIsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := l.Addr().String()
	s := Serve(Config{Job: "j", Address: address})
	defer s.Close()
	if why := s.Problem(); !strings.Contains(why, "--metrics_port") || s.Address() != "" {
		t.Errorf("%q, %q", why, s.Address())
	}
	l.Close()
	for deadline := time.Now().Add(time.Minute); s.Address() == ""; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not listen")
		}
	}
	if code, _, _ := get(t, "http://"+address+"/metrics", ""); code != http.StatusOK || s.Problem() != "" {
		t.Errorf("%d, %s", code, s.Problem())
	}
}

// A closed server, whether it has listened or not, leaves no goroutine and no listener.
func TestClose(t *testing.T) {
	s := Serve(Config{Job: "j", Address: "127.0.0.1:0"})
	waits := Serve(Config{Job: "j", Address: s.Address()})
	address := s.Address()
	waits.Close()
	s.Close()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
}

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	var use syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &use); err != nil {
		b.Fatal(err)
	}
	return time.Duration(use.Utime.Nano() + use.Stime.Nano())
}

// BenchmarkScrape measures one answer of a master with 1,000 workers and 100,000 tasks, in the
// format that Prometheus asks for. The bar is 20 ms. cpu-ms/op is the CPU time, which a busy
// machine does not change.
func BenchmarkScrape(b *testing.B) {
	var m Master
	s, more := fullStatus(1000)
	more.Pending, more.Leased = 98_000, 2_000
	m.Publish(s, more)
	server := &Server{config: Config{Log: slog.New(slog.DiscardHandler)}}
	handler := server.handler(registry("j", []Source{m.Source()}))
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	before := cpuTime(b)
	defer func() { b.ReportMetric(float64(cpuTime(b)-before)/float64(b.N)/1e6, "cpu-ms/op") }()
	for b.Loop() {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK || w.Body.Len() < 5_000 {
			b.Fatalf("%d: %d bytes", w.Code, w.Body.Len())
		}
	}
}
