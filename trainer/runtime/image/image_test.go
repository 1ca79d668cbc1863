package image

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func quiet(Progress) {}

// tiny are binaries for two platforms, compiled once.
var tiny = sync.OnceValues(func() ([]Binary, error) {
	dir, err := os.MkdirTemp("", "elasticdl-tiny-")
	if err != nil {
		return nil, err
	}
	remove = dir
	return Compile(context.Background(), "testdata/tiny", dir, []string{"linux/amd64", "linux/arm64"}, quiet)
})

var remove string // after the tests

func TestMain(m *testing.M) {
	code := m.Run()
	if remove != "" {
		os.RemoveAll(remove)
	}
	os.Exit(code)
}

func programs(t *testing.T, n int) []Binary {
	t.Helper()
	all, err := tiny()
	if err != nil {
		t.Fatal(err)
	}
	return all[:n]
}

// binaries are the programs with less in their files, which are compressed for each image: that
// takes long under the race detector.
func binaries(t *testing.T, n int) []Binary {
	t.Helper()
	short := slices.Clone(programs(t, n))
	for i, b := range short {
		short[i].Path = write(t, filepath.Join(t.TempDir(), "short"), "a program for "+b.Platform)
	}
	return short
}

func assemble(t *testing.T, c Config) *Image {
	t.Helper()
	made, err := Assemble(t.Context(), c, t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// serve is a registry on this machine; around may look at its requests first. It returns HOST:PORT.
func serve(t *testing.T, around func(http.Handler) http.Handler) string {
	t.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	if around != nil {
		handler = around(handler)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	t.Setenv("DOCKER_CONFIG", t.TempDir()) // nobody's credentials
	return server.Listener.Addr().String()
}

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// copied is a binary of the same bytes at another place, later.
func copied(t *testing.T, b Binary) Binary {
	t.Helper()
	text, err := os.ReadFile(b.Path)
	if err != nil {
		t.Fatal(err)
	}
	b.Path = write(t, filepath.Join(t.TempDir(), "other"), string(text))
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(b.Path, later, later); err != nil {
		t.Fatal(err)
	}
	return b
}

// Law 1: the digest is that of what is in the image, and of nothing else.
func TestDigestIsThatOfTheInputs(t *testing.T) {
	all := binaries(t, 2)
	authorities := write(t, filepath.Join(t.TempDir(), "ca.pem"), "authorities")
	others := write(t, filepath.Join(t.TempDir(), "ca.pem"), "others")
	c := Config{Name: "r/elasticdl:a", Binaries: all[:1], Certificates: authorities}
	want := assemble(t, c).Digest
	for what, change := range map[string]func(*Config) (same bool){
		"nothing":             func(*Config) bool { return true },
		"name":                func(c *Config) bool { c.Name = "other/elasticdl:b"; return true },
		"place of the binary": func(c *Config) bool { c.Binaries = []Binary{copied(t, all[0])}; return true },
		"platform":            func(c *Config) bool { c.Binaries = all[1:]; return false },
		"platforms":           func(c *Config) bool { c.Binaries = all; return false },
		"authorities":         func(c *Config) bool { c.Certificates = others; return false },
		"no authorities":      func(c *Config) bool { c.Certificates = ""; return false },
	} {
		changed := c
		if same := change(&changed); (assemble(t, changed).Digest == want) != same {
			t.Errorf("%s changed: same digest is %v, want %v", what, !same, same)
		}
	}
	again, err := Compile(t.Context(), "testdata/tiny", t.TempDir(), []string{"linux/amd64"}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	var digests []string
	for _, c.Binaries = range [][]Binary{programs(t, 1), again} {
		digests = append(digests, assemble(t, c).Digest)
	}
	if digests[0] != digests[1] || digests[0] == want {
		t.Errorf("compiled again: digest %s, want %s", digests[1], digests[0])
	}
}

// pull reads an image back from a registry: its configuration, and its files as "mode text".
func pull(t *testing.T, image, platform string) (*v1.ConfigFile, map[string]string) {
	t.Helper()
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	p, err := v1.ParsePlatform(platform)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref, remote.WithPlatform(*p))
	if err != nil {
		t.Fatal(err)
	}
	config, err := pulled.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]string)
	extracted := mutate.Extract(pulled)
	defer extracted.Close()
	for archive := tar.NewReader(extracted); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return config, files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimSuffix(header.Name, "/")] = fs.FileMode(header.Mode).String() + " " + string(text)
	}
}

// A registry returns the content of the image, through the store; also for several platforms.
func TestPushedImageRuns(t *testing.T) {
	authorities := write(t, filepath.Join(t.TempDir(), "ca.pem"), "authorities")
	for _, all := range [][]Binary{programs(t, 1), binaries(t, 2)} {
		host := serve(t, nil)
		made := assemble(t, Config{Name: host + "/a/elasticdl:mnist", Binaries: all, Certificates: authorities})
		store := Store(filepath.Join(t.TempDir(), "images"))
		if err := store.Save(t.Context(), made, quiet); err != nil {
			t.Fatal(err)
		}
		opened, err := store.Open(made.Name)
		if err != nil {
			t.Fatal(err)
		}
		var last Progress
		pushed, err := Push(t.Context(), opened, nil, false, func(p Progress) { last = p })
		if err != nil {
			t.Fatal(err)
		}
		if want := made.Name + "@" + made.Digest; pushed != want {
			t.Errorf("pushed %s, want %s", pushed, want)
		}
		if last.Done < made.Size || last.Done != last.Total || !last.Bytes {
			t.Errorf("progress ended with %+v, want %d bytes or more", last, made.Size)
		}
		for _, b := range all {
			config, files := pull(t, pushed, b.Platform)
			program, err := os.ReadFile(b.Path)
			if err != nil {
				t.Fatal(err)
			}
			bill, err := b.BOM()
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]string{"elasticdl": "-rwxr-xr-x " + string(program),
				"elasticdl.cdx.json": "-rw-r--r-- " + string(bill), "tmp": "-rwxrwxrwx ",
				"etc": "-rwxr-xr-x ", "etc/ssl": "-rwxr-xr-x ", "etc/ssl/certs": "-rwxr-xr-x ",
				"etc/ssl/certs/ca-certificates.crt": "-rw-r--r-- authorities"}
			if !maps.Equal(files, want) {
				t.Errorf("%s: files %v, want %v", b.Platform, slices.Sorted(maps.Keys(files)),
					slices.Sorted(maps.Keys(want)))
			}
			if got := config.OS + "/" + config.Architecture; got != b.Platform {
				t.Errorf("platform %s, want %s", got, b.Platform)
			}
			if !slices.Equal(config.Config.Entrypoint, []string{"/elasticdl"}) ||
				len(config.Config.Cmd) > 0 || !slices.Equal(config.Config.Env, []string{"PATH=/"}) {
				t.Errorf("%s: runs %q %q with %q", b.Platform, config.Config.Entrypoint,
					config.Config.Cmd, config.Config.Env)
			}
			if got := config.Config.Labels["org.elasticdl.package"]; got != modulePath+
				"/trainer/runtime/image/testdata/tiny" {
				t.Errorf("%s: labels %v", b.Platform, config.Config.Labels)
			}
		}
	}
}

// locked is a registry that wants a password.
func locked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "me" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="r"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func TestPushTakesDockersCredentials(t *testing.T) {
	host := serve(t, locked)
	made := assemble(t, Config{Name: host + "/elasticdl:mnist", Binaries: binaries(t, 1)})
	_, err := Push(t.Context(), made, nil, false, quiet)
	if err == nil || !strings.Contains(err.Error(), host) || !strings.Contains(err.Error(), "docker login") {
		t.Errorf("without credentials: %v, want the registry and what to do", err)
	}
	// "me:secret"
	write(t, filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), `{"auths": {"`+host+
		`": {"auth": "bWU6c2VjcmV0"}}}`)
	if _, err := Push(t.Context(), made, nil, false, quiet); err != nil {
		t.Error(err)
	}
}

// A user that is given goes before Docker's configuration, and its password is not shown.
func TestPushAsAUser(t *testing.T) {
	host := serve(t, locked)
	made := assemble(t, Config{Name: host + "/elasticdl:mnist", Binaries: binaries(t, 1)})
	write(t, filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), `{"auths": {"`+host+
		`": {"auth": "bWU6c2VjcmV0"}}}`)
	_, err := Push(t.Context(), made, &Login{User: "me", Password: "wrong-one"}, false, quiet)
	if err == nil || !strings.Contains(err.Error(), host) ||
		!strings.Contains(err.Error(), "--username=me") || strings.Contains(err.Error(), "wrong-one") {
		t.Errorf("with a wrong password: %v, want the registry and the user", err)
	}
	write(t, filepath.Join(os.Getenv("DOCKER_CONFIG"), "config.json"), `{}`)
	if _, err := Push(t.Context(), made, &Login{User: "me", Password: "secret"}, false, quiet); err != nil {
		t.Error(err)
	}
}

func TestPushEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	reached := make(chan struct{}, 64)
	host := serve(t, func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodGet {
				next.ServeHTTP(w, r)
				return
			}
			reached <- struct{}{}
			<-r.Context().Done()
		})
	})
	made := assemble(t, Config{Name: host + "/elasticdl:mnist", Binaries: binaries(t, 1)})
	go func() { <-reached; cancel() }()
	if _, err := Push(ctx, made, nil, false, quiet); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}

func TestRefusalsAreExplained(t *testing.T) {
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	_, err := http.Get(strings.Replace(plain.URL, "http:", "https:", 1))
	registry, _ := name.NewRegistry("registry.example")
	if err = explain(err, registry, nil); !strings.Contains(err.Error(), "--insecure") ||
		!strings.Contains(err.Error(), "registry.example") {
		t.Errorf("plain HTTP: %v, want the flag and the registry", err)
	}
	for insecure, want := range map[bool]string{true: "http", false: "https"} {
		if tag, err := parseTag("registry.example/elasticdl:mnist", insecure); err != nil || tag.Scheme() != want {
			t.Errorf("insecure %v: %s, %v, want %s", insecure, tag.Scheme(), err, want)
		}
	}
	for image, want := range map[string]string{
		"Registry/Elasticdl":                            "lower case",
		"r/elasticdl@sha256:" + strings.Repeat("0", 64): "not a digest",
		"":                                 "REGISTRY/NAME:TAG",
		"registry.example/elasticdl:mnist": "",
		"127.0.0.1:5000/elasticdl":         "",
		"us-docker.pkg.dev/project/repository/elasticdl:1": "",
	} {
		if err := CheckName(image); (err == nil) != (want == "") ||
			(err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("CheckName(%q): %v, want %q", image, err, want)
		}
	}
}

// corrupt is a registry that sends other layers than were asked for, once it is asked to.
type corrupt struct {
	next http.Handler
	now  bool
}

func (c *corrupt) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !c.now || !strings.Contains(r.URL.Path, "/blobs/") || r.Method != http.MethodGet {
		c.next.ServeHTTP(w, r)
		return
	}
	answer := httptest.NewRecorder()
	c.next.ServeHTTP(answer, r)
	w.Write(bytes.ToUpper(answer.Body.Bytes()))
}

// pushBase pushes an image that others can stand on.
func pushBase(t *testing.T, image string, n int) {
	t.Helper()
	made := assemble(t, Config{Name: image, Binaries: binaries(t, n),
		Certificates: write(t, filepath.Join(t.TempDir(), "ca.pem"), "the base's")})
	if _, err := Push(t.Context(), made, nil, false, quiet); err != nil {
		t.Fatal(err)
	}
}

func TestBase(t *testing.T) {
	host := serve(t, nil)
	pushBase(t, host+"/base:1", 2)
	made := assemble(t, Config{Name: host + "/elasticdl:mnist", Binaries: binaries(t, 2), Base: host +
		"/base:1", Certificates: "not read"})
	pushed, err := Push(t.Context(), made, nil, false, quiet)
	if err != nil {
		t.Fatal(err)
	}
	config, files := pull(t, pushed, "linux/arm64")
	if files["etc/ssl/certs/ca-certificates.crt"] != "-rw-r--r-- the base's" {
		t.Errorf("files %v, want the base's", slices.Sorted(maps.Keys(files)))
	}
	if got := config.Config.Labels["org.opencontainers.image.base.name"]; got != host+"/base:1" {
		t.Errorf("labels %v, want the base", config.Config.Labels)
	}
	if !slices.Equal(config.Config.Entrypoint, []string{"/elasticdl"}) ||
		!slices.Equal(config.Config.Env, []string{"PATH=/:/"}) {
		t.Errorf("runs %q with %q", config.Config.Entrypoint, config.Config.Env)
	}
}

// A base that was built here needs no registry, and comes before one of the same name in a
// registry.
func TestBaseBuiltHere(t *testing.T) {
	host := serve(t, nil)
	store := Store(t.TempDir())
	base := assemble(t, Config{Name: "elasticdl:dev_allreduce", Binaries: binaries(t, 2),
		Certificates: write(t, filepath.Join(t.TempDir(), "ca.pem"), "the base's")})
	if err := store.Save(t.Context(), base, quiet); err != nil {
		t.Fatal(err)
	}
	made := assemble(t, Config{Name: host + "/elasticdl:mnist", Binaries: binaries(t, 2),
		Base: "elasticdl:dev_allreduce", Built: store})
	pushed, err := Push(t.Context(), made, nil, false, quiet)
	if err != nil {
		t.Fatal(err)
	}
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		if _, files := pull(t, pushed,
			platform); files["etc/ssl/certs/ca-certificates.crt"] != "-rw-r--r-- the base's" {
			t.Errorf("%s: files %v, want the base's", platform, slices.Sorted(maps.Keys(files)))
		}
	}

	one := assemble(t, Config{Name: "r/one:1", Binaries: binaries(t, 1)})
	if err := store.Save(t.Context(), one, quiet); err != nil {
		t.Fatal(err)
	}
	arm := binaries(t, 2)[1:]
	_, err = Assemble(t.Context(), Config{Name: "r/elasticdl:1", Binaries: arm, Base: "r/one:1",
		Built: store}, t.TempDir(), quiet)
	if err == nil || !strings.Contains(err.Error(),
		"--base_image=r/one:1, which was built here, is for linux/amd64, not for linux/arm64") {
		t.Errorf("a base for another platform: %v", err)
	}
	pushBase(t, host+"/base:1", 1)
	other := assemble(t, Config{Name: "r/elasticdl:1", Binaries: binaries(t, 1), Base: host + "/base:1", Built: store})
	if err := store.Save(t.Context(), other, quiet); err != nil {
		t.Errorf("a base that is in a registry only: %v", err)
	}
}

// The shell's minikube is the one that docker-env or podman-env has named.
func TestActiveNode(t *testing.T) {
	for _, test := range []struct {
		environment map[string]string
		want        *Node
	}{
		{nil, nil},
		{map[string]string{"DOCKER_HOST": "tcp://192.168.49.2:2376"}, nil},
		{map[string]string{"MINIKUBE_ACTIVE_DOCKERD": "minikube"}, &Node{"minikube", "MINIKUBE_ACTIVE_DOCKERD"}},
		{map[string]string{"MINIKUBE_ACTIVE_PODMAN": "p2"}, &Node{"p2", "MINIKUBE_ACTIVE_PODMAN"}},
	} {
		got := ActiveNode(func(name string) string { return test.environment[name] })
		if (got == nil) != (test.want == nil) || got != nil && *got != *test.want {
			t.Errorf("%v: %v, want %v", test.environment, got, test.want)
		}
	}
}

func TestBrokenBases(t *testing.T) {
	broken := new(corrupt)
	host := serve(t, func(next http.Handler) http.Handler { broken.next = next; return broken })
	pushBase(t, host+"/one:1", 1)
	pushBase(t, host+"/two:1", 2)
	nowhere := httptest.NewServer(http.NotFoundHandler())
	nowhere.Close()
	arm := binaries(t, 2)[1:]
	for base, want := range map[string]string{
		host + "/none:1": "not found, or no permission to read it",
		host + "/one:2":  "not found, or no permission to read it",
		host + "/one:1":  "is for linux/amd64, not for linux/arm64",
		nowhere.Listener.Addr().String() + "/one:1": "connection refused",
		"A B": "could not parse",
	} {
		_, err := Assemble(t.Context(), Config{Name: "r/elasticdl:1", Binaries: arm, Base: base}, t.TempDir(), quiet)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "--base_image="+base) {
			t.Errorf("base %s: %v, want %q and the flag", base, err, want)
		}
	}

	// Layers are pulled when the image is saved: law 2.
	store := Store(t.TempDir())
	before := assemble(t, Config{Name: "r/elasticdl:1", Binaries: arm})
	if err := store.Save(t.Context(), before, quiet); err != nil {
		t.Fatal(err)
	}
	made := assemble(t, Config{Name: "r/elasticdl:1", Binaries: arm, Base: host + "/two:1"})
	broken.now = true
	if err := store.Save(t.Context(), made, quiet); err == nil {
		t.Fatal("an image on a base with other layers than it names is saved")
	}
	if there, err := store.Open("r/elasticdl:1"); err != nil || there.Digest != before.Digest {
		t.Errorf("after a failed build: %+v, %v, want the one before", there, err)
	}
	if entries, _ := os.ReadDir(string(store)); len(entries) != 1 {
		t.Errorf("a failed build leaves %v", entries)
	}
}

// The layers of a base are pulled once, however many images stand on it.
func TestBaseIsPulledOnce(t *testing.T) {
	broken := new(corrupt)
	host := serve(t, func(next http.Handler) http.Handler { broken.next = next; return broken })
	pushBase(t, host+"/base:1", 2)
	store := Store(t.TempDir())
	save := func(i *Image) {
		t.Helper()
		if err := store.Save(t.Context(), i, quiet); err != nil {
			t.Errorf("%s for %v: %v", i.Name, i.Platforms, err)
		}
	}
	var all []*Image
	for _, name := range []string{"r/elasticdl:1", "r/elasticdl:2"} {
		for n := range 2 {
			all = append(all, assemble(t, Config{Name: name, Binaries: binaries(t, n+1), Base: host + "/base:1"}))
		}
	}
	save(all[1])
	broken.now = true // its layers only: the rest was read above
	for _, i := range all {
		save(i)
	}
}
