package bucket

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/elasticdl/elasticdl/trainer/store/checkpoint"
	"github.com/elasticdl/elasticdl/trainer/store/checkpoint/laws"
)

// gcs is a server of what Google Cloud Storage's client asks for, with one bucket named b: the JSON
// API, and GET of the XML API.
type gcs struct {
	mu      sync.Mutex
	objects map[string][]byte
	uploads map[string]*upload // that are resumable, and not complete
	begun   int
	chunks  int // of all uploads
}

type upload struct {
	name    string
	query   url.Values
	content []byte
}

func (g *gcs) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	path, isUpload := strings.CutPrefix(r.URL.EscapedPath(), "/upload/storage/v1/b/b/o")
	name, isObject := strings.CutPrefix(r.URL.Path, "/storage/v1/b/b/o/")
	switch {
	case isUpload && path == "" && r.URL.Query().Get("uploadType") == "multipart":
		g.whole(w, r)
	case isUpload && !r.URL.Query().Has("upload_id"):
		g.begun++
		id := strconv.Itoa(g.begun)
		g.uploads[id] = &upload{name: r.URL.Query().Get("name"), query: r.URL.Query()}
		w.Header().Set("Location", "http://"+r.Host+"/upload/storage/v1/b/b/o?upload_id="+id)
	case isUpload:
		g.chunk(w, r)
	case r.URL.Path == "/storage/v1/b/b/o":
		g.list(w, r)
	case isObject && g.objects[name] == nil:
		w.WriteHeader(http.StatusNotFound)
		io.WriteString(w, `{"error": {"code": 404, "message": "no such object"}}`)
	case isObject && r.Method == http.MethodDelete:
		delete(g.objects, name)
		w.WriteHeader(http.StatusNoContent)
	case isObject:
		g.show(w, name)
	case strings.HasPrefix(r.URL.Path, "/b/") && g.objects[r.URL.Path[3:]] != nil:
		w.Header().Set("X-Goog-Generation", "1")
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(g.objects[r.URL.Path[3:]]))
	default:
		http.NotFound(w, r)
	}
}

// whole is an upload in one request: a description, and the content.
func (g *gcs) whole(w http.ResponseWriter, r *http.Request) {
	_, words, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	parts := multipart.NewReader(r.Body, words["boundary"])
	var is struct{ Name string }
	var content []byte
	for i := range 2 {
		part, err := parts.NextPart()
		if err == nil && i == 0 {
			err = json.NewDecoder(part).Decode(&is)
		} else if err == nil {
			content, err = io.ReadAll(part)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	}
	g.appear(w, is.Name, content, r.URL.Query())
}

// appear completes an upload, unless it has a condition that is not met.
func (g *gcs) appear(w http.ResponseWriter, name string, content []byte, query url.Values) {
	if g.objects[name] != nil && query.Get("ifGenerationMatch") == "0" {
		w.WriteHeader(http.StatusPreconditionFailed)
		io.WriteString(w, `{"error": {"code": 412, "message": "the object exists"}}`)
		return
	}
	g.objects[name] = append([]byte{}, content...)
	g.show(w, name)
}

// chunk is a part of a resumable upload, of which the last one says the size.
func (g *gcs) chunk(w http.ResponseWriter, r *http.Request) {
	id := r.URL.Query().Get("upload_id")
	u := g.uploads[id]
	body, err := io.ReadAll(r.Body)
	if err != nil || u == nil {
		http.Error(w, "no such upload", http.StatusNotFound)
		return
	}
	g.chunks++
	u.content = append(u.content, body...)
	if strings.HasSuffix(r.Header.Get("Content-Range"), "/*") {
		w.Header().Set("Range", fmt.Sprintf("bytes=0-%d", len(u.content)-1))
		// which the client asks for in place of the status
		w.Header().Set("X-Http-Status-Code-Override", "308")
		return
	}
	delete(g.uploads, id)
	g.appear(w, u.name, u.content, u.query)
}

func (g *gcs) show(w http.ResponseWriter, name string) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(g.describe(name))
}

func (g *gcs) describe(name string) map[string]string {
	return map[string]string{"kind": "storage#object", "bucket": "b", "name": name,
		"size": strconv.Itoa(len(g.objects[name])), "generation": "1", "metageneration": "1"}
}

// list answers with two names at a time.
func (g *gcs) list(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	var items []map[string]string
	prefixes := []string{}
	last := ""
	for _, name := range slices.Sorted(maps.Keys(g.objects)) {
		rest, ok := strings.CutPrefix(name, q.Get("prefix"))
		if !ok {
			continue
		}
		dir, _, deeper := strings.Cut(rest, "/")
		shown := name
		if deeper = deeper && q.Get("delimiter") == "/"; deeper {
			shown = q.Get("prefix") + dir + "/"
		}
		if shown <= q.Get("pageToken") || shown == last {
			continue
		}
		if len(items)+len(prefixes) == 2 {
			json.NewEncoder(w).Encode(map[string]any{"kind": "storage#objects", "items": items,
				"prefixes": prefixes, "nextPageToken": last})
			return
		}
		if last = shown; deeper {
			prefixes = append(prefixes, shown)
		} else {
			items = append(items, g.describe(name))
		}
	}
	json.NewEncoder(w).Encode(map[string]any{"kind": "storage#objects", "items": items, "prefixes": prefixes})
}

func TestGoogle(t *testing.T) {
	g := &gcs{objects: map[string][]byte{}, uploads: map[string]*upload{}}
	server := httptest.NewServer(g)
	t.Cleanup(server.Close)
	t.Setenv("STORAGE_EMULATOR_HOST", strings.TrimPrefix(server.URL, "http://"))
	n := 0
	laws.Test(t, laws.Place{Stride: sometimes, Open: func(t *testing.T) checkpoint.Files {
		n++
		f, err := Open(t.Context(), fmt.Sprintf("gs://b/some/prefix-%d", n))
		if err != nil {
			t.Fatal(err)
		}
		opened := f.(files)
		opened.part = 1 << 20
		return opened
	}})
	if g.begun == 0 || g.chunks < 10 {
		t.Errorf("%d files were uploaded in %d chunks", g.begun, g.chunks)
	}
}
