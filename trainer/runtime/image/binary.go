package image

import (
	"debug/buildinfo"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// modulePath is the module that the binary of an image must contain.
const modulePath = "github.com/elasticdl/elasticdl"

// Binary is a static executable of ElasticDL: the released one, or a user's own with their models.
type Binary struct {
	Path     string
	Platform string // "linux/amd64"
	build    *debug.BuildInfo
}

// Inspect reads what an executable is made of. It returns an error if no image can be made of it.
func Inspect(path string) (Binary, error) {
	f, err := elf.Open(path)
	if err != nil {
		if _, ok := errors.AsType[*elf.FormatError](err); ok || errors.Is(err, io.EOF) {
			return Binary{}, fmt.Errorf("%s is no executable of Linux", path)
		}
		return Binary{}, err
	}
	defer f.Close()
	if slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return Binary{}, fmt.Errorf("%s is linked with a C library, which the image does not have: "+
			"build it with CGO_ENABLED=0", path)
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return Binary{}, fmt.Errorf("%s is not built by Go: %w", path, err)
	}
	isOurs := func(m *debug.Module) bool { return m.Path == modulePath }
	if !isOurs(&info.Main) && !slices.ContainsFunc(info.Deps, isOurs) {
		return Binary{}, fmt.Errorf("%s holds no ElasticDL: its main is to call cli.Main of "+
			"%s/cmd/elasticdl/cli", path, modulePath)
	}
	b := Binary{Path: path, build: info}
	b.Platform = b.setting("GOOS") + "/" + b.setting("GOARCH")
	if arm := b.setting("GOARM"); b.setting("GOARCH") == "arm" && arm != "" {
		b.Platform += "/v" + arm[:1] // "7,hardfloat"
	}
	if b.setting("GOOS") != "linux" {
		return Binary{}, fmt.Errorf("%s is for %s: an image's is for linux", path, b.Platform)
	}
	return b, nil
}

func (b Binary) setting(key string) string {
	for _, s := range b.build.Settings {
		if s.Key == key {
			return s.Value
		}
	}
	return ""
}

// labels returns the OCI's labels for the binary.
func (b Binary) labels() map[string]string {
	labels := make(map[string]string)
	for key, value := range map[string]string{
		"org.opencontainers.image.title":    b.build.Main.Path,
		"org.opencontainers.image.version":  b.build.Main.Version,
		"org.opencontainers.image.revision": b.setting("vcs.revision"),
		"org.elasticdl.package":             b.build.Path,
	} {
		if value != "" && value != "(devel)" {
			labels[key] = value
		}
	}
	return labels
}

// created returns the time of the commit from which the binary was built; 1970 if that is not
// known.
func (b Binary) created() time.Time {
	if t, err := time.Parse(time.RFC3339, b.setting("vcs.time")); err == nil {
		return t.UTC()
	}
	return time.Unix(0, 0).UTC()
}

// splitPlatform splits a name like "linux/arm/v7"; missing parts are "".
func splitPlatform(platform string) (os, arch, variant string) {
	parts := append(strings.Split(platform, "/"), "", "", "")
	return parts[0], parts[1], parts[2]
}

// CheckPlatform returns why the name of a platform is wrong, or nil.
func CheckPlatform(platform string) error {
	os, arch, variant := splitPlatform(platform)
	if os != "linux" || arch == "" || strings.Count(platform, "/") > 2 || (variant != "" && arch != "arm") {
		return fmt.Errorf("expected linux/ARCHITECTURE, as linux/amd64 or linux/arm64")
	}
	return nil
}

// certificateFiles lists where systems keep certificate authorities.
var certificateFiles = []string{
	"/etc/ssl/certs/ca-certificates.crt",                // Debian, Alpine
	"/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Red Hat
	"/etc/ssl/ca-bundle.pem",                            // SUSE
	"/etc/pki/tls/certs/ca-bundle.crt",                  // old Red Hat
	"/etc/ssl/cert.pem",                                 // macOS
}

// Certificates returns the file of certificate authorities: SSL_CERT_FILE, or this machine's. It
// returns "" if there is none.
func Certificates() string {
	files := certificateFiles
	if file := os.Getenv("SSL_CERT_FILE"); file != "" {
		files = []string{file}
	}
	for _, file := range files {
		if info, err := os.Stat(file); err == nil && info.Mode().IsRegular() {
			return file
		}
	}
	return ""
}
