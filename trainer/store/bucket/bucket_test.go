package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"gocloud.dev/blob/memblob"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint/laws"
	"github.com/elasticdl/elasticdl/trainer/store/outage"
)

// sometimes damages one byte of that many where each takes several requests.
const sometimes = 61

func TestMemory(t *testing.T) {
	laws.Test(t, laws.Place{Stride: 7, Open: func(t *testing.T) checkpoint.Files {
		b := memblob.OpenBucket(nil)
		t.Cleanup(func() { b.Close() })
		return over(t.Context(), b, &url.URL{Scheme: "mem", Path: "/ckpt"})
	}})
}

// store is a server of S3's protocol in this process.
type store struct {
	http.Handler
	address string

	mu       sync.Mutex
	requests []string                           // method, path and range of each
	faults   func(r *http.Request) http.Handler // who answers instead, nil for nobody
}

func (s *store) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, fmt.Sprintf("%s %s?%s %s", r.Method, r.URL.Path, r.URL.RawQuery,
		r.Header.Get("Range")))
	var instead http.Handler
	if s.faults != nil {
		instead = s.faults(r)
	}
	s.mu.Unlock()
	if instead != nil {
		instead.ServeHTTP(w, r)
		return
	}
	s.Handler.ServeHTTP(w, r)
}

// asked returns the requests since the last call of which a word is part.
func (s *store) asked(word string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []string
	for _, r := range s.requests {
		if strings.Contains(r, word) {
			found = append(found, r)
		}
	}
	s.requests = nil
	return found
}

// newStore starts a server with a bucket named b.
func newStore(t *testing.T) *store {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(t.TempDir(), "none")) // not the developer's
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(t.TempDir(), "none"))
	memory := s3mem.New()
	if err := memory.CreateBucket("b"); err != nil {
		t.Fatal(err)
	}
	s := &store{Handler: gofakes3.New(memory).Server()}
	server := httptest.NewUnstartedServer(s)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that have read enough
	server.Start()
	t.Cleanup(server.Close)
	s.address = server.URL
	return s
}

// open opens a prefix of the store's bucket by its name.
func (s *store) open(t *testing.T, prefix string) files {
	f, err := Open(t.Context(), "s3://b/"+prefix+"?region=us-east-1&use_path_style=true&endpoint="+
		url.QueryEscape(s.address))
	if err != nil {
		t.Fatal(err)
	}
	return f.(files)
}

func TestS3(t *testing.T) {
	s := newStore(t)
	n := 0
	laws.Test(t, laws.Place{Stride: sometimes, Open: func(t *testing.T) checkpoint.Files {
		n++
		f := s.open(t, fmt.Sprintf("some/prefix-%d/", n))
		f.part = 5 << 20 // the least that S3 has
		return f
	}})
	if left := s.uploads(t); left != 0 {
		t.Errorf("%d uploads are neither complete nor aborted", left)
	}
}

// A store that ignores conditions replaces what is there. It is noticed with the first claim, and
// what two owners write stays apart.
func TestStoreWithoutConditions(t *testing.T) {
	s := newStore(t)
	honest := s.Handler
	s.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Header.Del("If-None-Match")
		honest.ServeHTTP(w, r)
	})
	n := 0
	laws.Test(t, laws.Place{Stride: 10 * sometimes, Weak: true, Open: func(t *testing.T) checkpoint.Files {
		n++
		f := s.open(t, fmt.Sprintf("some/prefix-%d/", n))
		f.part = 5 << 20
		return f
	}})
	d := checkpoint.Dir{Files: s.open(t, "both")}
	claim := func(uid string) checkpoint.Claim {
		c, err := d.Claim(checkpoint.Owner{Job: uid, Name: "job-" + uid}, checkpoint.Permit{}, time.Now())
		if err != nil || !c.Weak {
			t.Fatalf("%+v, %v", c, err)
		}
		return c.Claim
	}
	first := claim("a")
	if err := d.Remove("owner-00000001"); err != nil { // as if the other had looked before
		t.Fatal(err)
	}
	last := claim("b")
	if err := d.Holds(first); !errors.Is(err, checkpoint.ErrOwned) || !strings.Contains(err.Error(), "job job-b") {
		t.Errorf("a claim that was overwritten: %v", err)
	}
	if err := d.Holds(last); err != nil || first.Tag() == last.Tag() {
		t.Errorf("%v, tags %s and %s", err, first.Tag(), last.Tag())
	}
}

// uploads counts the uploads that the store still has parts of.
func (s *store) uploads(t *testing.T) int {
	t.Helper()
	r, err := http.Get(s.address + "/b?uploads")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if bytes.Contains(text, []byte("<Code>NoSuchUpload<")) { // there never was one
		return 0
	}
	if err != nil || !bytes.Contains(text, []byte("ListMultipartUploadsResult")) {
		t.Fatalf("list uploads: %s, %v", text, err)
	}
	return bytes.Count(text, []byte("<UploadId>"))
}

// A large file is on its way while it is written, in parts; an abort has none of them left.
func TestUploadsWhileWritten(t *testing.T) {
	s := newStore(t)
	f := s.open(t, "p")
	f.part = 5 << 20
	for _, end := range []string{"commit", "abort"} {
		w, err := f.Create("file")
		if err != nil {
			t.Fatal(err)
		}
		// More than the writer holds: some of it must have been taken.
		for range 5*(uploads+2) + 1 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				t.Fatal(err)
			}
		}
		if n := s.uploads(t); n != 1 {
			t.Errorf("%d uploads are under way before the %s, want 1", n, end)
		}
		if parts := s.asked("partNumber="); len(parts) == 0 {
			t.Errorf("no part was uploaded before the %s", end)
		}
		if end == "abort" {
			w.Abort()
		} else if err := w.Commit(); err != nil {
			t.Fatal(err)
		}
		if n := s.uploads(t); n != 0 {
			t.Errorf("%d uploads are left after the %s", n, end)
		}
	}
}

// Reads in order are one request, however small the pieces; a stretch is a range.
func TestReadsRanges(t *testing.T) {
	s := newStore(t)
	f := s.open(t, "p")
	content := bytes.Repeat([]byte("0123456789"), 30_000)
	w, err := f.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	w.Write(content)
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	r, size, closer, err := f.Open("file")
	if err != nil {
		t.Fatal(err)
	}
	defer closer.Close()
	s.asked("")
	got, err := io.ReadAll(io.NewSectionReader(r, 0, size))
	if err != nil || !bytes.Equal(got, content) {
		t.Fatalf("read %d bytes: %v", len(got), err)
	}
	if asked := s.asked("GET"); len(asked) != 1 {
		t.Errorf("asked for %q", asked)
	}
	b := make([]byte, 10)
	if n, err := r.ReadAt(b, 250_003); n != 10 || err != nil || string(b) != "3456789012" {
		t.Errorf("%q, %v", b[:n], err)
	}
	if asked := s.asked("GET"); len(asked) != 1 || !strings.HasSuffix(asked[0], " bytes=250003-") {
		t.Errorf("asked for %q", asked)
	}
}

// cut answers with that many bytes of what the store would send, and breaks the connection.
type cut struct {
	http.ResponseWriter
	left int
}

func (c *cut) Write(b []byte) (int, error) {
	if len(b) > c.left {
		c.ResponseWriter.Write(b[:c.left])
		c.ResponseWriter.(http.Flusher).Flush() // the header at least
		panic(http.ErrAbortHandler)
	}
	c.left -= len(b)
	return c.ResponseWriter.Write(b)
}

// A response that breaks off is asked for again from there; one that never gives anything is an
// error.
func TestBrokenResponses(t *testing.T) {
	s := newStore(t)
	f := s.open(t, "p")
	content := bytes.Repeat([]byte("0123456789"), 30_000)
	w, err := f.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	w.Write(content)
	if err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	read := func(most int) ([]byte, error) {
		s.faults = func(r *http.Request) http.Handler {
			if r.Method != http.MethodGet {
				return nil
			}
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				s.Handler.ServeHTTP(&cut{w, most}, r)
			})
		}
		r, size, closer, err := f.Open("file")
		if err != nil {
			t.Fatal(err)
		}
		defer closer.Close()
		s.asked("")
		b := make([]byte, size)
		n, err := r.ReadAt(b, 0)
		return b[:n], err
	}
	if got, err := read(70_000); err != nil || !bytes.Equal(got, content) {
		t.Errorf("of responses of 70,000 bytes are read %d: %v", len(got), err)
	}
	if asked := s.asked("GET"); len(asked) != 5 {
		t.Errorf("asked for %q", asked)
	}
	if got, err := read(0); !outage.Is(err) || len(got) > 0 { // which may be over later
		t.Errorf("of empty responses are read %d bytes: %v", len(got), err)
	}
	if asked := s.asked("GET"); len(asked) != attempts {
		t.Errorf("asked for %q", asked)
	}
}

// An upload that the store refuses is an error of the commit, and leaves nothing.
func TestRefusedUpload(t *testing.T) {
	s := newStore(t)
	f := s.open(t, "p")
	f.part = 5 << 20
	s.faults = func(r *http.Request) http.Handler {
		if r.URL.Query().Get("partNumber") != "2" {
			return nil
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			// else the connection may be reset before the answer is read
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(http.StatusForbidden)
			io.WriteString(w, "<Error><Code>AccessDenied</Code><Message>no</Message></Error>")
		})
	}
	w, err := f.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	for range 11 {
		if _, err = w.Write(make([]byte, 1<<20)); err != nil {
			break
		}
	}
	if err == nil {
		err = w.Commit()
	}
	w.Abort()
	if err == nil || outage.Is(err) || !strings.Contains(err.Error(), "access denied; expected permission to") {
		t.Errorf("the upload ends with %v", err)
	}
	if names, err := f.List(""); len(names) > 0 || err != nil || s.uploads(t) != 0 {
		t.Errorf("left are %q, %d uploads: %v", names, s.uploads(t), err)
	}
}

// The opener of the place ends its work.
func TestEndOfContext(t *testing.T) {
	s := newStore(t)
	f := s.open(t, "p")
	ctx, cancel := context.WithCancel(t.Context())
	f.ctx = ctx
	w, err := f.Create("file")
	if err != nil {
		t.Fatal(err)
	}
	w.Write([]byte("x"))
	cancel()
	if err := w.Commit(); !errors.Is(err, context.Canceled) {
		t.Errorf("a commit then: %v", err)
	}
	if _, err := f.List(""); !errors.Is(err, context.Canceled) {
		t.Errorf("a list then: %v", err)
	}
	f.ctx = t.Context()
	if names, err := f.List(""); len(names) > 0 || err != nil {
		t.Errorf("there are %q: %v", names, err)
	}
}

// A bucket that is not there is none that is empty.
func TestNoBucket(t *testing.T) {
	s := newStore(t)
	f, err := Open(t.Context(), "s3://other/p?region=us-east-1&use_path_style=true&endpoint="+
		url.QueryEscape(s.address))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.List(""); err == nil || !strings.Contains(err.Error(), "there is no such bucket") {
		t.Errorf("%v", err)
	}
	if _, _, err := (checkpoint.Dir{Files: f}).Newest(); err == nil ||
		errors.Is(err, checkpoint.ErrNone) || !strings.Contains(err.Error(), "s3://other/p") {
		t.Errorf("%v", err)
	}
}

// An unknown user of a store gets an error that says what is expected.
func TestNoCredentials(t *testing.T) {
	s := newStore(t)
	list := func(location string) error {
		f, err := Open(t.Context(), location)
		if err == nil {
			_, err = f.List("")
		}
		return err
	}
	t.Setenv("AWS_REGION", "")
	t.Setenv("AWS_DEFAULT_REGION", "")
	if err := list("s3://b/p"); err == nil ||
		!strings.Contains(err.Error(), "no region; expected ?region=REGION after the bucket's name, or AWS_REGION: ") {
		t.Errorf("without a region: %v", err)
	}
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	if err := list("s3://b/p?region=r&endpoint=" + url.QueryEscape(s.address)); err == nil ||
		!strings.Contains(err.Error(), "no credentials; expected AWS_ACCESS_KEY_ID") {
		t.Errorf("without a key: %v", err)
	}
	t.Setenv("STORAGE_EMULATOR_HOST", "")
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", filepath.Join(t.TempDir(), "none"))
	if err := list("gs://b/p"); err == nil ||
		!strings.Contains(err.Error(), "open gs://b/p: no credentials; expected the identity of the pod") {
		t.Errorf("without Google's: %v", err)
	}
}

// A place is opened once, and not at all if its name is wrong.
func TestOpener(t *testing.T) {
	s := newStore(t)
	open := Opener(t.Context())
	name := "s3://b/p?region=r&endpoint=" + url.QueryEscape(s.address)
	first, err := open(name)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := open(name); err != nil || again != first {
		t.Errorf("%v the second time, %v the first: %v", again, first, err)
	}
	if other, err := open("ckpt"); err != nil || other.Files != checkpoint.Local("ckpt") {
		t.Errorf("%v: %v", other, err)
	}
	if d, err := open("s3://"); err == nil {
		t.Errorf("%v is opened", d)
	}
}

func TestOpenRefuses(t *testing.T) {
	for location, want := range map[string]string{
		"":                            "it is empty; expected a directory, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX",
		"hdfs://host/ckpt":            `unknown kind of place "hdfs"; expected a directory`,
		"https://host/ckpt":           "unknown kind of place",
		"s3://":                       "the bucket is missing",
		"gs:///ckpt":                  "the bucket is missing",
		"s3://host:9000/b":            "the address of a store goes into ?endpoint=",
		"s3://key:secret@b/p":         "is no bucket",
		"s3://b/a//p":                 "is no prefix",
		"s3://b/../p":                 "is no prefix",
		"gs://b/p#1":                  "a # in it",
		"s3://b/p?prefix=q":           "write it after the bucket: s3://b/q",
		"s3://b/p?regoin=x":           "open s3://b/p?regoin=x: ",
		"gs://b/p?region=r":           "nothing can be reported of Google Cloud Storage after a question mark",
		"s3://b/%zz":                  "expected a directory",
		"s3://b?use_path_style=maybe": "maybe",
	} {
		if _, err := Open(t.Context(), location); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v does not say %q", location, err, want)
		}
	}
	for location, want := range map[string]string{"ckpt": "ckpt", "/a/b/": "/a/b/", "./s3:x": "./s3:x",
		"s3://b?region=r": "s3://b", "s3://b/a/p/?region=r": "s3://b/a/p"} {
		f, err := Open(t.Context(), location)
		if err != nil || f.String() != want {
			t.Errorf("%s: %v, %v", location, f, err)
		}
	}
}
