package page

import (
	"context"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/elasticdl/elasticdl/trainer/logline"
)

// Limits of requests.
const (
	answerLimit = 20 * time.Second // for the answer of a source
	// for answers in progress when the server ends
	closeLimit  = time.Second
	headerLimit = 10 * time.Second
	mostHeader  = 64 << 10
)

//go:embed assets
var assets embed.FS

// Config is the configuration of a [Server].
type Config struct {
	Source Source
	// Place says where the jobs are, as in "this machine".
	Place string
	// Job is the only job that is shown; "": all are.
	Job string
	// Missing reports whether an error of the source says that there is no such job or log.
	Missing func(error) bool
	// Now returns the time; nil: time.Now.
	Now func() time.Time
}

// Server serves the page.
type Server struct {
	Config
	source Source
	guard  *guard
}

// New makes a server, with a new token.
func New(c Config) *Server {
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Server{Config: c, source: &shared{Source: c.Source, now: c.Now}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", s.jobs)
	mux.HandleFunc("GET /job/{job}", s.job)
	mux.HandleFunc("GET /job/{job}/log/{pod}", s.log)
	mux.HandleFunc("POST /job/{job}/stacks", s.stacks)
	for _, a := range []struct{ name, kind string }{
		{"style.css", "text/css"}, {"script.js", "text/javascript"}, {"icon.svg", "image/svg+xml"}} {
		text, err := assets.ReadFile("assets/" + a.name)
		if err != nil {
			panic(err) // it is embedded
		}
		mux.HandleFunc("GET /"+a.name, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", a.kind+"; charset=utf-8")
			w.Header().Set("Cache-Control", "private, max-age=3600")
			w.Write(text)
		})
	}
	s.guard = newGuard(mux)
	return s
}

// Handler returns the handler of all requests.
func (s *Server) Handler() http.Handler { return s.guard }

// Address returns the address of the page at a listener, with the token.
func (s *Server) Address(at net.Addr) string { return s.guard.address(at, s.home()) }

// home returns the path of the first page.
func (s *Server) home() string {
	if s.Job != "" {
		return jobHref(s.Job)
	}
	return "/"
}

// Serve serves the page until ctx ends. It closes the listener.
func (s *Server) Serve(ctx context.Context, lis net.Listener) error {
	srv := &http.Server{Handler: s.guard, ReadHeaderTimeout: headerLimit, MaxHeaderBytes: mostHeader,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	select {
	case err := <-served:
		return fmt.Errorf("serve %v: %w", lis.Addr(), err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
	defer cancel()
	if srv.Shutdown(closing) != nil {
		srv.Close()
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// frame is a whole page: parts that are replaced one by one.
type frame struct {
	Title string
	Place string
	Job   string // "": the list of jobs
	Href  string // of the job's page
	Pod   string // of a log
	Live  bool   // the script fetches it again
	One   bool   // there is no list of jobs
	Parts []part
}

// part is a part of a page.
type part struct {
	ID   string
	Hash string // of its content
	HTML string
}

// add adds a part to a page.
func (f *frame) add(id string, p piece) error {
	content, err := render(p)
	if err != nil {
		return err
	}
	h := fnv.New64a()
	io.WriteString(h, content)
	f.Parts = append(f.Parts, part{id, hex.EncodeToString(h.Sum(nil)), content})
	return nil
}

// write writes a page.
func (f *frame) write(w http.ResponseWriter, code int) {
	content, err := render(f.document())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(content)))
	w.WriteHeader(code)
	io.WriteString(w, content)
}

// frame returns a page without parts.
func (s *Server) frame(job string) *frame {
	return &frame{Title: plainWord(job), Place: plainWord(s.Place), Job: plainWord(job), Href: jobHref(job),
		Live: true,
		One:  s.Job != ""}
}

// fail answers with a page that says why there is no other.
func (s *Server) fail(w http.ResponseWriter, job string, err error) {
	f, code := s.frame(job), http.StatusBadGateway
	if s.Missing != nil && s.Missing(err) {
		code, f.Live = http.StatusNotFound, false
	}
	if f.add("problem", problem(logline.Escape(err.Error()))) == nil {
		f.write(w, code)
	}
}

// errOther is the answer to a request for another job than the only one.
var errOther = errors.New("this dashboard shows another job")

// asked returns the job that a request names.
func (s *Server) asked(w http.ResponseWriter, r *http.Request) (job string, ok bool) {
	job = r.PathValue("job")
	if s.Job != "" && job != s.Job {
		f := s.frame(s.Job)
		f.Live = false
		if f.add("problem", problem(errOther.Error())) == nil {
			f.write(w, http.StatusNotFound)
		}
		return "", false
	}
	return job, true
}

// jobs serves the list of jobs.
func (s *Server) jobs(w http.ResponseWriter, r *http.Request) {
	if s.Job != "" {
		http.Redirect(w, r, s.home(), http.StatusSeeOther)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
	defer cancel()
	all, err := s.source.Jobs(ctx)
	if err != nil {
		s.fail(w, "", err)
		return
	}
	f := s.frame("")
	f.Title = "Jobs"
	s.answer(w, f, f.add("jobs", listOf(all, s.Now()).show()))
}

// answer writes a page whose parts are rendered.
func (s *Server) answer(w http.ResponseWriter, f *frame, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	f.write(w, http.StatusOK)
}

// job serves the page of a job.
func (s *Server) job(w http.ResponseWriter, r *http.Request) {
	name, ok := s.asked(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
	defer cancel()
	v, note, err := s.source.View(ctx, name)
	if err != nil {
		s.fail(w, name, err)
		return
	}
	f := s.frame(name)
	s.answer(w, f, f.renderJob(viewOf(v, note, optionsOf(r.URL.Query()), s.Now())))
}

// renderJob adds the parts of a job's page.
func (f *frame) renderJob(v *jobView) error {
	return errors.Join(f.add("summary", v.head()), f.add("curves", v.curves()), f.add("timeline", v.Timeline.show()),
		f.add("events", v.events()), f.add("pods", v.pods()), f.add("model", v.Model.show()))
}

// mostLog is the largest size of a log on a page, in bytes.
const mostLog = 512 << 10

// logView is the tail of a log.
type logView struct {
	Pod   string
	Lines int64
	Text  string
	Cut   bool // the beginning of these lines is left out
}

// log serves the tail of a log.
func (s *Server) log(w http.ResponseWriter, r *http.Request) {
	name, ok := s.asked(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
	defer cancel()
	v := logView{Pod: r.PathValue("pod"), Lines: 200}
	if r.URL.Query().Get("lines") == "2000" {
		v.Lines = 2000
	}
	var out tail
	if err := s.source.Log(ctx, name, v.Pod, v.Lines, &out); err != nil {
		s.fail(w, name, err)
		return
	}
	v.Text, v.Cut = plain(string(out.text)), out.cut
	f := s.frame(name)
	v.Pod = plainWord(v.Pod)
	f.Title, f.Pod = v.Pod+" of "+f.Title, v.Pod
	s.answer(w, f, f.add("log", v.show()))
}

// tail is a writer that keeps the end of the text.
type tail struct {
	text []byte
	cut  bool
}

// Write implements io.Writer.
func (t *tail) Write(text []byte) (int, error) {
	t.text = append(t.text, text...)
	if extra := len(t.text) - mostLog; extra > 0 {
		t.text, t.cut = append(t.text[:0], t.text[extra:]...), true
	}
	return len(text), nil
}

// stacksView has the stacks of a job.
type stacksView struct{ Job, Href, Text, At string }

// stacks takes the stacks of a job.
func (s *Server) stacks(w http.ResponseWriter, r *http.Request) {
	name, ok := s.asked(w, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), answerLimit)
	defer cancel()
	text, err := s.source.Stacks(ctx, name)
	if err != nil {
		s.fail(w, name, err)
		return
	}
	f := s.frame(name)
	f.Title, f.Live = "Stacks of "+f.Title, false
	s.answer(w, f, f.add("stacks", stacksView{f.Job, f.Href, plain(text), s.Now().Format(time.TimeOnly)}.show()))
}

// plain returns text of a job without colours, whose other control sequences are visible.
func plain(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(logline.Escape(colours.ReplaceAllString(strings.TrimRight(line, "\r\n"), "")))
		b.WriteByte('\n')
	}
	return b.String()
}
