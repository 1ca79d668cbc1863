package page

import (
	"context"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/elasticdl/elasticdl/trainer/elastic/curve"
	"github.com/elasticdl/elasticdl/trainer/elastic/journal"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// serveFake is the environment variable that makes the test binary serve a fake job, for browsers.
const serveFake = "ELASTICDL_PAGE_FAKE"

func TestMain(m *testing.M) {
	name := os.Getenv(serveFake)
	if name == "" {
		os.Exit(m.Run())
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	v := map[string]func() role.View{"trouble": trouble, "large": func() role.View { return large(1000) }}[name]()
	source := &fakeSource{views: map[string]role.View{v.Status.Name: v}, text: strings.Repeat("[worker] step\n", 100)}
	s := New(Config{Source: source, Place: "namespace research", Now: func() time.Time { return at }})
	fmt.Println(s.Address(lis.Addr()))
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // until the test closes standard input
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	if err := s.Serve(ctx, lis); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// shown is a server with a source, and a client that has its cookie.
type shown struct {
	*testing.T
	*Server
	*fakeSource
}

func show(t *testing.T, job string, views ...role.View) *shown {
	source := &fakeSource{views: make(map[string]role.View)}
	for _, v := range views {
		source.views[v.Status.Name] = v
	}
	return &shown{t, New(Config{Source: source, Place: "this machine", Job: job, Now: func() time.Time { return at },
		Missing: func(err error) bool { return err == errMissing }}), source}
}

// request makes a request, with changes.
func (s *shown) request(method, target string, change ...func(*http.Request)) *http.Response {
	s.Helper()
	r := httptest.NewRequestWithContext(s.Context(), method, "http://127.0.0.1:1234"+target, nil)
	r.AddCookie(&http.Cookie{Name: s.guard.cookie, Value: s.guard.token})
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	s.Handler().ServeHTTP(w, r)
	return w.Result()
}

// get returns a page that is there.
func (s *shown) get(target string) string {
	s.Helper()
	answer := s.request("GET", target)
	if answer.StatusCode != http.StatusOK {
		s.Fatalf("GET %s: %s", target, answer.Status)
	}
	return body(s.T, answer)
}

func body(t *testing.T, answer *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// wants checks that a page has texts, or has not those that begin with "!".
func wants(t *testing.T, page string, texts ...string) {
	t.Helper()
	for _, want := range texts {
		not := strings.HasPrefix(want, "!")
		if strings.Contains(page, strings.TrimPrefix(want, "!")) == not {
			t.Errorf("the page has %t: %q", not, want)
		}
	}
}

// Nobody sees anything without the token, under another name of the machine, or from another page.
func TestGuard(t *testing.T) {
	s := show(t, "", trouble())
	without := func(r *http.Request) { r.Header.Del("Cookie") }
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	const path, post = "/job/llm-finetune", "/job/llm-finetune/stacks"
	for name, c := range map[string]struct {
		method, target string
		change         []func(*http.Request)
		want           int
	}{
		"with the cookie":  {"GET", path, nil, 200},
		"of localhost":     {"GET", path, []func(*http.Request){host("localhost:8080")}, 200},
		"of IPv6":          {"GET", path, []func(*http.Request){host("[::1]:8080")}, 200},
		"without a cookie": {"GET", path, []func(*http.Request){without}, 401},
		"another cookie": {"GET", path, []func(*http.Request){without,
			header("Cookie", s.guard.cookie+"="+strings.Repeat("A", 26))}, 401},
		"a file without a cookie": {"GET", "/script.js", []func(*http.Request){without}, 401},
		"another token": {"GET", path + "?token=" + strings.Repeat("A", 26),
			[]func(*http.Request){without}, 401},
		"an empty token":   {"GET", path + "?token=", nil, 401},
		"the token":        {"GET", path + "?token=" + s.guard.token, []func(*http.Request){without}, 303},
		"another name":     {"GET", path, []func(*http.Request){host("evil.example:1234")}, 403},
		"a name like ours": {"GET", path, []func(*http.Request){host("localhost.evil.example")}, 403},
		"another address":  {"GET", path, []func(*http.Request){host("10.0.0.1:1234")}, 403},
		"no name":          {"GET", path, []func(*http.Request){host("")}, 403},
		"the token, another name": {"GET", path + "?token=" + s.guard.token,
			[]func(*http.Request){host("evil.example")}, 403},
		"a post of our page": {"POST", post, []func(*http.Request){header("Origin",
			"http://127.0.0.1:1234")}, 200},
		"a post of nobody": {"POST", post, nil, 403},
		"a post of another page": {"POST", post, []func(*http.Request){header("Origin", "http://evil.example")},
			403},
		"a post of another port": {"POST", post, []func(*http.Request){header("Origin", "http://127.0.0.1:1")}, 403},
		"a post of another site": {"POST", post, []func(*http.Request){header("Origin", "http://127.0.0.1:1234"),
			header("Sec-Fetch-Site", "cross-site")}, 403},
		"a post without a cookie": {"POST", post, []func(*http.Request){header("Origin", "http://127.0.0.1:1234"),
			without}, 401},
		"stacks by a link": {"GET", post, nil, 405},
	} {
		before := s.taken
		answer := s.request(c.method, c.target, c.change...)
		if answer.StatusCode != c.want {
			t.Errorf("%s: %s, want %d", name, answer.Status, c.want)
		}
		if taken := s.taken > before; taken != (c.method == "POST" && c.want == 200) {
			t.Errorf("%s: stacks taken: %t", name, taken)
		}
		if got := answer.Header.Get("Content-Security-Policy"); !strings.HasPrefix(got, "default-src 'none'") {
			t.Errorf("%s: policy %q", name, got)
		}
		if strings.Contains(body(t, answer), s.guard.token) {
			t.Errorf("%s: the answer has the token", name)
		}
	}
}

// The address that is printed leads to the page, and gives a cookie that no script and no other
// site gets.
func TestAddress(t *testing.T) {
	s := show(t, "llm-finetune", trouble())
	u, err := url.Parse(s.Address(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1234}))
	if err != nil {
		t.Fatal(err)
	}
	answer := s.request("GET", u.RequestURI()+"&range=1h", func(r *http.Request) { r.Header.Del("Cookie") })
	cookies := answer.Cookies()
	if to := answer.Header.Get("Location"); to != "/job/llm-finetune?range=1h" || len(cookies) != 1 ||
		!cookies[0].HttpOnly || cookies[0].SameSite != http.SameSiteStrictMode || cookies[0].Domain != "" {
		t.Errorf("to %q with %v", to, cookies)
	}
	// no address of another machine
	answer = s.request("GET", "//evil.example/?token="+s.guard.token)
	if to := answer.Header.Get("Location"); !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") {
		t.Errorf("to %q", to)
	}
	if answer := s.request("GET", "/"); answer.Header.Get("Location") != "/job/llm-finetune" {
		t.Errorf("the list: %v", answer.Header)
	}
	if answer := s.request("GET", "/job/another"); answer.StatusCode != 404 {
		t.Errorf("no such job: %s", answer.Status)
	}
	only := show(t, "another", trouble())
	for _, path := range []string{"/job/llm-finetune", "/job/llm-finetune/log/worker-5"} {
		if answer := only.request("GET", path); answer.StatusCode != 404 {
			t.Errorf("%s of a server of another job: %s", path, answer.Status)
		}
	}
}

// The page of a job shows what happens to it: a kill, what it waits for, a full disk, and kinds of
// events that this program does not know.
func TestJob(t *testing.T) {
	s := show(t, "", trouble())
	page := s.get("/job/llm-finetune")
	wants(t, page, "Running", "53.8 %", "epoch 3 of 5, 268,800 of 500,000 records", "about 3 min 42 s left",
		"rank 3 differs: sleep at data.py:12", "no space left on /mnt/checkpoints", "WorkersMissing",
		`id="chart-loss"`, `id="chart-speed"`, `id="chart-workers"`, "accuracy", "Stuck", "killed (signal 9)",
		"preempted: node gpu-7 is taken back", "Unschedulable", "returned to checkpoint 11", "step 8400 loss",
		`href="/job/llm-finetune/log/worker-5"`, `action="/job/llm-finetune/stacks"`)
	mark := regexp.MustCompile(`<line class="lost" [^>]*><title>worker-0, [^<]*: killed \(signal 9\)`)
	if mark.FindString(page) == "" {
		t.Error("the timeline does not show the kill of worker-0")
	}
	if n := s.asks; s.get("/job/llm-finetune") != page || s.asks != n {
		t.Errorf("asked %d times, or another page", s.asks)
	}
	list := s.get("/")
	wants(t, list, `href="/job/llm-finetune"`, "54 %", "no progress for 1 min 04 s: rank 3")
	answer := s.request("GET", "/job/nothing")
	if answer.StatusCode != 404 {
		t.Errorf("a job that is not there: %s", answer.Status)
	}
	wants(t, body(t, answer), "job not found", "!data-live")
}

// The address selects the events: by words, by weight; and the range of the timeline.
func TestOptions(t *testing.T) {
	s := show(t, "", trouble())
	const path = "/job/llm-finetune"
	wants(t, s.get(path+"?q=worker-2+memory"), `worker-2</a> out of memory (128 GiB)</span>`,
		`!<span class="text">checkpoint 3 written`, `value="worker-2 memory"`)
	wants(t, s.get(path+"?warnings=1"), `<span class="text">checkpoint 13 was given up`,
		`!<span class="text">checkpoint 3 written`, " checked")
	wants(t, s.get(path+"?q=nothing+has+this"), "No event matches.")
	wants(t, s.get(path+"?range=5m"), `aria-current="true">5m`, "14:25:00")
	wants(t, s.get(path), "!1h</a>", `aria-current="true">all`, "13:48:00")
	wants(t, s.get(path+"?band=99999999&range=x&pods=all&events=all"), "Stuck")
}

// A log is the tail of one pod, without colours and control sequences.
func TestLog(t *testing.T) {
	s := show(t, "", trouble())
	s.text = "\x1b[31mred\x1b[0m \x1b[2J<b>\n"
	wants(t, s.get("/job/llm-finetune/log/worker-5"), "llm-finetune worker-5 200\nred \\x1b[2J&lt;b&gt;", "!\x1b")
	wants(t, s.get("/job/llm-finetune/log/worker-5?lines=2000"), "worker-5 2000", "!is left out")
	if answer := s.request("GET", "/job/llm-finetune/log/nobody"); answer.StatusCode != 404 {
		t.Errorf("log of nobody: %s", answer.Status)
	}
	s.text = strings.Repeat("x", mostLog) + "end"
	page := s.get("/job/llm-finetune/log/worker-5")
	wants(t, page, "is left out", "xend", "!worker-5 200")
	if len(page) > mostLog+20_000 {
		t.Errorf("%d bytes", len(page))
	}
}

// fill sets every text of a message.
func fill(m protoreflect.Message, text string, depth int) {
	for i := range m.Descriptor().Fields().Len() {
		f := m.Descriptor().Fields().Get(i)
		switch {
		case f.IsMap():
		case f.IsList() && f.Kind() == protoreflect.MessageKind && depth > 0:
			one := m.Mutable(f).List().AppendMutable()
			fill(one.Message(), text, depth-1)
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			m.Mutable(f).List().Append(protoreflect.ValueOfString(text))
		case f.IsList():
		case f.Kind() == protoreflect.StringKind:
			m.Set(f, protoreflect.ValueOfString(text))
		case f.Kind() == protoreflect.MessageKind && depth > 0:
			fill(m.Mutable(f).Message(), text, depth-1)
		case f.Kind() == protoreflect.Int64Kind:
			m.Set(f, protoreflect.ValueOfInt64(1))
		}
	}
}

// No text of a job is more than text, wherever it stands.
func TestHostile(t *testing.T) {
	s := &wire.JobStatus{}
	fill(s.ProtoReflect(), hostile, 3)
	s.Evaluations[0].Metrics = map[string]float64{hostile: 1}
	var j past
	for _, kind := range []journal.Kind{hostile, journal.PodLost, journal.PodJoined, journal.TrainingRolledBack,
		journal.Recovered} {
		j.add(time.Second, journal.Entry{Kind: kind, Pod: hostile, Cause: hostile, Text: hostile, Seconds: 1,
			Metrics: map[string]float64{hostile: 1}})
	}
	v := role.View{Status: s, Journal: j.Snapshot(), Curve: drawn(time.Minute, 2)}
	v.Curve.Metrics = []curve.Series{{Name: `"><img src=x onerror=1>`, Slots: []int64{0}, Values: []float32{1}}}
	all := show(t, "", v)
	all.text = hostile
	path := "/job/" + url.PathEscape(hostile)
	for _, target := range []string{"/", path,
		path + "?q=" + url.QueryEscape(hostile) + "&range=" + url.QueryEscape(hostile),
		path + "/log/" + url.PathEscape(hostile)} {
		if bad := harmless(all.get(target)); bad != "" {
			t.Errorf("%.40s has …%s…", target, bad)
		}
	}
	for _, answer := range []*http.Response{all.request("GET", "/job/x"+url.PathEscape(hostile)),
		all.request("POST", path+"/stacks", func(r *http.Request) {
			r.Header.Set("Origin",
				"http://127.0.0.1:1234")
		})} {
		if bad := harmless(body(t, answer)); bad != "" {
			t.Errorf("%s has …%s…", answer.Status, bad)
		}
	}
}

// The page of a large job is not much larger than that of a small one, and every worker can be
// reached.
func TestLarge(t *testing.T) {
	s := show(t, "", large(1000))
	page := s.get("/job/large")
	if len(page) > 300_000 || strings.Count(page, `role="listitem"`) > mostLanes+1 {
		t.Errorf("%d bytes, %d rows", len(page), strings.Count(page, `role="listitem"`))
	}
	wants(t, page, "A name opens the row.", "Show 1050 more pods", "997", "4,266,666 of 12,800,000 records")
	wants(t, s.get("/job/large?band=50"), `class="lane open"`, "/job/large/log/worker-99")
	wants(t, s.get("/job/large?pods=all"), "worker-1099", "!more pods")
}

// A view that fails is not kept, and one at a time is asked for.
func TestShared(t *testing.T) {
	now := at
	source := &fakeSource{views: map[string]role.View{"a": {Status: &wire.JobStatus{Name: "a"}}}}
	s := &shared{Source: source, now: func() time.Time { return now }}
	for _, c := range []struct {
		pass time.Duration
		want int
	}{{0, 1}, {fresh / 2, 1}, {fresh, 2}, {-time.Hour, 3}} {
		now = now.Add(c.pass)
		if v, _, err := s.View(t.Context(), "a"); err != nil || v.Status.Name != "a" || source.asks != c.want {
			t.Errorf("after %v: %v, asked %d times, want %d", c.pass, err, source.asks, c.want)
		}
	}
	if _, _, err := s.View(t.Context(), "b"); err != errMissing || len(s.views) != 1 {
		t.Errorf("%v, %d are kept", err, len(s.views))
	}
}

// The server ends with its context, and closes its port.
func TestServe(t *testing.T) {
	s := show(t, "", trouble())
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, lis) }()
	answer, err := http.Get("http://" + lis.Addr().String())
	if err != nil || answer.StatusCode != 401 {
		t.Errorf("%v, %v", answer, err)
	}
	answer.Body.Close()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if conn, err := net.Dial("tcp", lis.Addr().String()); err == nil {
		conn.Close()
		t.Error("the port is open")
	}
}

// Texts can be read in both schemes: each has a contrast of 4.5 (WCAG AA).
func TestContrast(t *testing.T) {
	css, err := assets.ReadFile("assets/style.css")
	if err != nil {
		t.Fatal(err)
	}
	schemes := regexp.MustCompile(`(?s):root \{(.*?)\}`).FindAllStringSubmatch(string(css), 2)
	if len(schemes) != 2 {
		t.Fatalf("%d schemes", len(schemes))
	}
	for i, scheme := range schemes {
		colours := make(map[string]string)
		for _, c := range regexp.MustCompile(`--([a-z-]+): #([0-9a-f]+);`).FindAllStringSubmatch(scheme[1], -1) {
			colours[c[1]] = c[2]
		}
		for _, text := range []string{"text", "muted", "link", "good", "warn", "bad"} {
			for _, ground := range []string{"card", "ground"} {
				a, b := luminance(t, colours[text]), luminance(t, colours[ground])
				if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < 4.5 {
					t.Errorf("scheme %d: %s on %s: %.2f", i, text, ground, ratio)
				}
			}
		}
	}
}

// luminance returns the relative luminance of a colour, as WCAG has it.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	var sum float64
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.03928 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

// No address makes a page that fails, or that has more than text.
func FuzzAddress(f *testing.F) {
	f.Add("q=x&warnings=1&range=1h&band=0&pods=all&events=all")
	f.Add("q=" + url.QueryEscape(hostile))
	f.Add("band=-1&range=%zz;")
	v, many := trouble(), large(100)
	f.Fuzz(func(t *testing.T, query string) {
		s := show(t, "", v, many)
		for _, name := range []string{"llm-finetune", "large"} {
			r := httptest.NewRequest("GET", "http://127.0.0.1/job/"+name, nil)
			r.URL.RawQuery = query
			r.AddCookie(&http.Cookie{Name: s.guard.cookie, Value: s.guard.token})
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, r)
			if code := w.Code; code != 200 && !r.URL.Query().Has(tokenParameter) {
				t.Errorf("%q: %d", query, code)
			}
			if bad := harmless(w.Body.String()); bad != "" {
				t.Errorf("%q: …%s…", query, bad)
			}
		}
	})
}

// The time in which the server makes the page of a job of 1,000 workers.
func BenchmarkLarge(b *testing.B) {
	v := large(1000)
	for b.Loop() {
		f := frame{Job: "large"}
		if err := f.renderJob(viewOf(v, "", optionsOf(nil), at)); err != nil {
			b.Fatal(err)
		}
		f.write(httptest.NewRecorder(), 200)
	}
}
