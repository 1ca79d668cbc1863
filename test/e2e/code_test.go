//go:build e2e

package e2e

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

// A script and a package next to it come to a pod in each way of docs/your-code-on-the-cluster.md,
// and by their image: uploaded to a claim through a pod, in an image by zoo build on one with
// Python, in an archive of a bucket, and, the script alone, from a web server. No script imports
// torch. The jobs run side by side.
func TestProgramCode(t *testing.T) {
	t.Parallel()
	const dir = "testdata/code"
	ns := newNamespace(t)
	claim := ns.claim()
	reference := ns.torchImage()
	web := ns.serve(dir)
	agent := []string{"--image_name=" + reference, "--agent_image_name=" + image}
	submit := func(job string, flags []string, command ...string) string {
		t.Helper()
		return ns.elasticdl(slices.Concat([]string{"run", "--job_name=" + job, "--num_workers=1",
			"--start_method=exec"}, smallProgram, flags, []string{"--"}, command)...)
	}

	submit("bucket", slices.Concat(agent, web.flags), web.bucket, "main.py", "bucket")
	submit("web", slices.Concat(agent, web.flags, []string{"--program_sha256=" + web.sum}), web.script, "web")
	submit("image", []string{"--image_name=" + ns.build(dir, reference)}, "python3", "main.py", "image")
	upload := slices.Concat(agent,
		[]string{"--workdir=" + dir, "--volume=claim_name=fileserver-claim,mount_path=/data"})
	began := time.Now()
	out := submit("upload", upload, "python3", "main.py", "upload")
	took(t, "elasticdl run --workdir, with the upload", began)
	if uploads := grep(out,
		`^code testdata/code \(2 files, .*\) uploaded to claim:fileserver-claim/elasticdl-code/[0-9a-f]{64}\b`,
	); len(uploads) != 1 {
		t.Errorf("elasticdl run does not say what was uploaded:\n%s", out)
	}
	out = submit("again", slices.Concat(upload, []string{"--suspend"}), "python3", "main.py", "again")
	if len(grep(out, `^code .* already exists: claim:fileserver-claim/elasticdl-code/[0-9a-f]{64}\b`)) != 1 {
		t.Errorf("elasticdl run does not say that the code was uploaded before:\n%s", out)
	}

	for _, way := range []struct{ job, says string }{
		{"upload", "its neighbour in /.*/workdir"},
		{"image", "its neighbour in /app"},
		{"bucket", "its neighbour in /"},
		{"web", "alone in /"},
	} {
		r := &running{&submitted{namespace: ns, job: way.job}, ""}
		if out, err := ns.try(*elasticdl, "wait", way.job, "--timeout="+wholeJob.String()); err != nil {
			t.Errorf("%v\n%s", err, out)
			continue
		}
		if lines := r.last("way " + way.job + ": " + way.says + `.*, rank 0 of 1\b`); len(lines) != 1 {
			t.Errorf("the log of %s does not have one line of %q:\n%s", way.job, way.says,
				ns.elasticdl("logs", way.job))
		}
	}
	// The claim has the archive, whole, under its checksum, and nothing that a worker has written.
	files, _ := filepath.Glob(filepath.Join(claim, "elasticdl-code", "*", "*"))
	if len(files) != 1 {
		t.Fatalf("the claim has the files %q, want one archive", files)
	}
	if text, err := os.ReadFile(files[0]); err != nil || filepath.Base(filepath.Dir(files[0])) != sumOf(text) {
		t.Errorf("%s: its sha256 is %s, %v", files[0], sumOf(text), err)
	}
	if left := ns.kubectl("get", "pods", "-o", "name"); strings.Contains(left, "copy") {
		t.Errorf("pods of the upload are left:\n%s", left)
	}
}

// build makes an image of a directory on a base, without Docker, pushes it, and returns its name,
// with its digest.
func (ns *namespace) build(dir, base string) (reference string) {
	ns.t.Helper()
	// in the repository of the base, which has most of its layers
	name, home := registry+"/torch:code", ns.t.TempDir()
	began := time.Now()
	for _, args := range [][]string{
		{"build", "--base_image=" + base, "--image=" + name, "."},
		{"push", name},
	} {
		cmd := exec.CommandContext(ns.t.Context(), *elasticdl, append([]string{"zoo"}, args...)...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "ELASTICDL_HOME="+home) // the base is not kept
		var problems bytes.Buffer
		cmd.Stderr = &problems
		out, err := cmd.Output()
		if err != nil {
			ns.t.Fatalf("%v: %v\n%s", cmd, err, problems.Bytes())
		}
		reference = strings.TrimSpace(string(out))
	}
	took(ns.t, "elasticdl zoo build --base_image, and push", began)
	if !regexp.MustCompile(`^` + name + `@sha256:[0-9a-f]{64}$`).MatchString(reference) {
		ns.t.Fatalf("elasticdl zoo push has printed %q", reference)
	}
	return reference
}

// served has what a server of this machine serves to pods.
type served struct {
	bucket string   // URL of an archive of a directory
	script string   // URL of a script
	sum    string   // SHA-256 of the script
	flags  []string // of jobs that fetch from it
}

// serve serves an archive of a directory as an object of S3, and a script on the web.
func (ns *namespace) serve(dir string) *served {
	ns.t.Helper()
	script := []byte("import os, sys\nprint(f\"way {sys.argv[1]}: alone in {os.getcwd()}, rank " +
		"{os.environ['RANK']} of {os.environ['WORLD_SIZE']}\")\n")
	b := ns.bucket(map[string][]byte{"code.tar.gz": archive(ns.t, dir), "alone.py": script})
	return &served{
		bucket: "s3://code/code.tar.gz" + b.query,
		script: b.url + "/code/alone.py",
		sum:    sumOf(script),
		flags: []string{"--volume=host_path=" + b.home + ",mount_path=/home",
			"--envs=SSL_CERT_FILE=/home/authority.pem", b.access},
	}
}

// bucket is the bucket "code" of S3, which this machine serves to pods.
type bucket struct {
	url string
	// what the locations of its objects end with
	query string
	// directory with the certificate authority of its server
	home string
	// flag that gives a job access
	access string
}

// bucket serves a bucket with some objects by HTTPS, with a certificate that pods know by a file
// only. Access is by a Secret.
func (ns *namespace) bucket(objects map[string][]byte) bucket {
	ns.t.Helper()
	home := ns.directory()
	// of this machine, too
	address := ns.kubectl("get", "node", ns.nodes[0], "-o",
		`jsonpath={.status.addresses[?(@.type=="InternalIP")].address}`)
	store := s3mem.New()
	if err := store.CreateBucket("code"); err != nil {
		ns.t.Fatal(err)
	}
	for key, content := range objects {
		if _, err := store.PutObject("code", key, nil, bytes.NewReader(content), int64(len(content)), nil); err != nil {
			ns.t.Fatal(err)
		}
	}
	own, authority := selfSigned(ns.t, net.ParseIP(address))
	listener, err := net.Listen("tcp", address+":0")
	if err == nil {
		err = os.WriteFile(filepath.Join(home, "authority.pem"), authority, 0o644)
	}
	if err != nil {
		ns.t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(gofakes3.New(store).Server())
	server.Listener.Close()
	server.Listener, server.TLS = listener, &tls.Config{Certificates: []tls.Certificate{own}}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	ns.t.Cleanup(server.Close)
	ns.kubectl("create", "secret", "generic", "store", "--from-literal=id=key", "--from-literal=key=secret")
	return bucket{
		url:    server.URL,
		query:  "?region=us-east-1&use_path_style=true&endpoint=" + url.QueryEscape(server.URL),
		home:   home,
		access: "--env_secret=AWS_ACCESS_KEY_ID=store/id;AWS_SECRET_ACCESS_KEY=store/key",
	}
}

// archive returns a directory as .tar.gz.
func archive(t *testing.T, dir string) []byte {
	t.Helper()
	var b bytes.Buffer
	zipped := gzip.NewWriter(&b)
	files := tar.NewWriter(zipped)
	err := files.AddFS(os.DirFS(dir))
	if err == nil {
		err = files.Close()
	}
	if err == nil {
		err = zipped.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// selfSigned returns a certificate of an address that is its own authority, and that authority as
// PEM.
func selfSigned(t *testing.T, address net.IP) (c tls.Certificate, authority []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{address}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	text, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{text}, PrivateKey: key},
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: text})
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
