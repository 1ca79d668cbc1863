//go:build e2e

package scale

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
)

// A job of 100 workers asks its API server seldom while nothing happens, and a few times for each
// worker that is killed. Requests of its launcher and its master are counted; a watch counts once.
func TestAPIRequests(t *testing.T) {
	const workers, length = 100, time.Minute
	s := open(t)
	calls := count(t)
	job := &play{name: "requests", minibatches: 170 * workers, batch: 2, perTask: 8, each: time.Second,
		server: calls}
	s.submit(job, fmt.Sprintf("--num_workers=%d", workers))
	s.until("certificates of all pods", 2*time.Minute, func() bool { return job.certified.Load() >= workers })
	s.pass(10 * time.Second) // the events of the start

	calls.take()
	s.pass(length)
	idle := calls.take()
	began := time.Now()
	for i := range int(length / time.Second) {
		p := s.oldest(job.name, 1)[0]
		if err := s.set.CoreV1().Pods(s.namespace).Delete(s.Context(), p.Name, meta.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		s.until("end of "+p.Name, 10*time.Second, func() bool { return s.oldest(job.name, 1)[0].Name != p.Name })
		s.pass(time.Until(began.Add(time.Duration(i+1) * time.Second)))
	}
	s.until("replacements", 30*time.Second, func() bool { return s.count(job.name, pod.Worker, running) >= workers })
	kills := calls.take()
	if status := s.await(job, 5*time.Minute); status.Relaunched < int64(length/time.Second) {
		t.Errorf("%d pods were replaced", status.Relaunched)
	}

	t.Logf("requests of a job of %d workers\n\nidle, in %v:\n%s\na kill each second, for %v:\n%s", workers, length,
		table(idle), length, table(kills))
	perSecond, perKill := float64(sum(idle))/length.Seconds(), float64(sum(kills))/length.Seconds()
	t.Logf("idle %.2f/s; with a kill each second %.2f/s", perSecond, perKill)
	if perSecond > mostIdle || perKill > mostPerKill {
		t.Errorf("idle %.2f/s, want %v at most; with a kill each second %.2f/s, want %v at most", perSecond, mostIdle,
			perKill, mostPerKill)
	}
}

// Limits of requests per second: idle, and with a kill each second.
const mostIdle, mostPerKill = 1.0, 8.0

// pass waits.
func (s *theatre) pass(d time.Duration) {
	s.Helper()
	if err := sleep(s.Context(), d); err != nil {
		s.Fatal(err)
	}
}

// counter is an API server that passes all requests on, and counts them.
type counter struct {
	url         string
	certificate []byte // PEM

	mu sync.Mutex
	// by verb and resource, as in "PATCH pods/status"
	requests map[string]int
}

// count starts a counter in front of the cluster's API server.
func count(t *testing.T) *counter {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	target, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	if err := rest.LoadTLSFiles(config); err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CAData)
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		// events of a watch are passed on at once
		FlushInterval: -1,
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true},
	}
	c := &counter{requests: make(map[string]int)}
	// client-go sends tokens by TLS only
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		c.requests[kindOf(r)]++
		c.mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections() // of watches
		server.Close()
	})
	c.url = server.URL
	c.certificate = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return c
}

// kindOf returns the verb and the resource of a request to an API server.
func kindOf(r *http.Request) string {
	verb, parts := r.Method, strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if r.URL.Query().Get("watch") != "" {
		verb = "WATCH"
	}
	if parts[0] == "api" {
		parts = parts[min(2, len(parts)):]
	} else {
		parts = parts[min(3, len(parts)):]
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		parts = parts[2:]
	}
	switch len(parts) {
	case 0:
		return verb + " " + r.URL.Path
	case 3: // of one object
		return verb + " " + parts[0] + "/" + parts[2]
	}
	return verb + " " + parts[0]
}

// take returns the requests since the last call.
func (c *counter) take() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	taken := c.requests
	c.requests = make(map[string]int)
	return taken
}

func sum(requests map[string]int) (n int) {
	for _, of := range requests {
		n += of
	}
	return n
}

// table returns numbers of requests as lines, most first.
func table(requests map[string]int) string {
	var b strings.Builder
	for _, kind := range slices.SortedFunc(maps.Keys(requests), func(a, b string) int {
		return cmp.Or(cmp.Compare(requests[b], requests[a]), cmp.Compare(a, b))
	}) {
		fmt.Fprintf(&b, "%6d  %s\n", requests[kind], kind)
	}
	fmt.Fprintf(&b, "%6d\n", sum(requests))
	return b.String()
}
