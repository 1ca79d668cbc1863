package notice

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// answer is the answer of a metadata service to one path.
type answer struct {
	code int
	text string
}

// amazon serves as EC2's metadata service, version 2, does: without a token it answers 401.
func amazon(t *testing.T, says *atomic.Pointer[answer]) {
	const token = "a-token"
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch a := says.Load(); {
		case r.Method == http.MethodPut && r.URL.Path == "/latest/api/token":
			w.Header().Set("X-aws-ec2-metadata-token-ttl-seconds", "21600")
			io.WriteString(w, token)
		case r.Header.Get("X-aws-ec2-metadata-token") != token:
			w.WriteHeader(http.StatusUnauthorized)
		case r.URL.Path != "/latest/meta-data/spot/instance-action":
			t.Errorf("asked for %s", r.URL.Path)
		default:
			w.WriteHeader(a.code)
			io.WriteString(w, a.text)
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", s.URL)
}

// google serves as the metadata server of Compute Engine does: it refuses who does not name it.
func google(t *testing.T, says *atomic.Pointer[answer]) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch a := says.Load(); {
		case r.Header.Get("Metadata-Flavor") != "Google":
			w.WriteHeader(http.StatusForbidden)
		case r.URL.Path != "/computeMetadata/v1/instance/preempted":
			t.Errorf("asked for %s", r.URL.Path)
		default:
			w.WriteHeader(a.code)
			io.WriteString(w, a.text)
		}
	}))
	t.Cleanup(s.Close)
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(s.URL, "http://"))
}

func TestClouds(t *testing.T) {
	for name, tt := range map[string]struct {
		cloud     string
		serve     func(*testing.T, *atomic.Pointer[answer])
		answer    answer
		why, fail string
	}{
		"aws, none": {job.NoticeAWS, amazon, answer{404, "not found"}, "", ""},
		"aws, terminate": {job.NoticeAWS, amazon,
			answer{200, `{"action": "terminate", "time": "2026-11-28T08:22:00Z"}`},
			"AWS announces: terminate at 2026-11-28T08:22:00Z", ""},
		"aws, stop": {job.NoticeAWS, amazon,
			answer{200, `{"action":"stop","time":"2026-11-28T08:22:00Z"}`},
			"AWS announces: stop at 2026-11-28T08:22:00Z", ""},
		"aws, a word": {job.NoticeAWS, amazon,
			answer{200, `{"action":"dance","time":"2026-11-28T08:22:00Z"}`},
			"", "expected terminate, stop or hibernate"},
		"aws, no JSON":   {job.NoticeAWS, amazon, answer{200, "<html>"}, "", `spot/instance-action is "<html>"`},
		"aws, forbidden": {job.NoticeAWS, amazon, answer{403, ""}, "", "403"},
		"gce, none":      {job.NoticeGCE, google, answer{200, "FALSE\n"}, "", ""},
		"gce, preempted": {job.NoticeGCE, google, answer{200, "TRUE"}, "GCE announces: preempted", ""},
		"gce, a word":    {job.NoticeGCE, google, answer{200, "maybe"}, "", "expected TRUE or FALSE"},
		"gce, concealed": {job.NoticeGCE, google, answer{404, ""}, "", "instance/preempted"},
	} {
		t.Run(name, func(t *testing.T) {
			var says atomic.Pointer[answer]
			says.Store(&tt.answer)
			tt.serve(t, &says)
			ask, err := Of(tt.cloud)
			if err != nil {
				t.Fatal(err)
			}
			why, err := ask(t.Context())
			if why != tt.why || (err == nil) != (tt.fail == "") ||
				err != nil && !strings.Contains(err.Error(), tt.fail) {
				t.Errorf("%q, %v; expected %q, %q", why, err, tt.why, tt.fail)
			}
		})
	}
	if _, err := Of("azure"); err == nil || !strings.Contains(err.Error(), "expected aws or gce") {
		t.Error(err)
	}
}

// The service is this machine's own: a proxy would answer for another machine, or not at all.
func TestNoProxy(t *testing.T) {
	const child = "TEST_NO_PROXY"
	// net/http reads the variables of proxies once in a process.
	if os.Getenv(child) != "" {
		for _, cloud := range []string{job.NoticeAWS, job.NoticeGCE} {
			ask, err := Of(cloud)
			if err != nil {
				t.Fatal(err)
			}
			limited, cancel := context.WithTimeout(t.Context(), time.Second/2)
			ask(limited)
			cancel()
		}
		return
	}
	asked := make(chan string, 100)
	proxy := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- r.URL.String()
	}))
	defer proxy.Close()
	c := exec.Command(os.Args[0], "-test.run=^TestNoProxy$")
	c.Env = append(os.Environ(), child+"=1", "HTTP_PROXY="+proxy.URL, "NO_PROXY=",
		"AWS_EC2_METADATA_SERVICE_ENDPOINT=http://192.0.2.1", "GCE_METADATA_HOST=192.0.2.1")
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if len(asked) > 0 {
		t.Errorf("a proxy is asked for %s", <-asked)
	}
}

// A service that does not answer is logged once, asked rarely, and heeded when it answers.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		asked := 0
		began := time.Now()
		var at []time.Duration
		why, err := Await(t.Context(), func(context.Context) (string, error) {
			asked++
			at = append(at, time.Since(began))
			switch {
			case asked == 1:
				return "", nil
			case asked < 8:
				return "", errors.New("no route to host")
			}
			return "taken", nil
		}, slog.New(slog.NewTextHandler(&log, nil)))
		if why != "taken" || err != nil {
			t.Error(why, err)
		}
		if at[3] != 3*every || at[4] != at[3]+rarely || at[7] != at[3]+4*rarely {
			t.Errorf("asked at %v", at)
		}
		if n := strings.Count(log.String(), "no route to host"); n != 1 {
			t.Errorf("said %d times: %s", n, log.String())
		}
	})
}

// It ends with its context, also while the service takes its time.
func TestAwaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		end := errors.New("the job has ended")
		time.AfterFunc(time.Minute, func() { cancel(end) })
		_, err := Await(ctx, func(ctx context.Context) (string, error) {
			<-ctx.Done()
			return "", ctx.Err()
		}, slog.New(slog.DiscardHandler))
		if !errors.Is(err, end) {
			t.Error(err)
		}
	})
}

// Whatever the service answers, there is a notice or an error, and both are short.
func FuzzInterruption(f *testing.F) {
	f.Add([]byte(`{"action": "terminate", "time": "2026-11-28T08:22:00Z"}`))
	f.Add([]byte(`{"action": "hibernate"}`))
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, text []byte) {
		why, err := interruption(text)
		if (why == "") == (err == nil) {
			t.Errorf("%q: %q, %v", text, why, err)
		}
		if len(why) > 100 {
			t.Errorf("a notice of %d bytes", len(why))
		}
	})
}
