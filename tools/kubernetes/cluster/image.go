package cluster

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

const (
	pauseImage   = registryAddress + "/pause:1"
	busyboxImage = registryAddress + "/busybox:1"
	busyboxPath  = "/bin/busybox"
)

// applets lists the commands of busybox to which the image has links.
var applets = []string{"cat", "date", "dd", "echo", "env", "false", "grep", "head", "hostname", "httpd",
	"kill", "ls", "mkdir", "nc", "nslookup", "ps", "rm", "sh", "sleep", "tail", "tar", "test", "touch", "true", "wget"}

// ServeRegistry serves an image registry until the context ends. It keeps blobs in dir, and the
// rest in memory.
func ServeRegistry(ctx context.Context, address, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve images: %w", err)
	}
	server := &http.Server{Handler: images(dir)}
	context.AfterFunc(ctx, func() { server.Close() })
	if err := server.Serve(listener); ctx.Err() == nil {
		return fmt.Errorf("serve images: %w", err)
	}
	return nil
}

// imagesHeader is the header with the directory of the images, in each response of a registry.
const imagesHeader = "Elasticdl-Images"

func images(dir string) http.Handler {
	handler := registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(dir)),
		registry.Logger(log.New(os.Stderr, "", log.LstdFlags)))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(imagesHeader, dir)
		handler.ServeHTTP(w, r)
	})
}

// servesImages returns an error unless the registry at that address serves the images of that
// directory. Another registry there answers before ours notices that the address is taken.
func servesImages(ctx context.Context, address, dir string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/v2/", nil)
	if err != nil {
		return err
	}
	response, err := (&http.Client{Timeout: 5 * time.Second}).Do(request)
	if err != nil {
		return err
	}
	response.Body.Close()
	if response.Header.Get(imagesHeader) != dir {
		return fmt.Errorf("who serves at %s is not the registry of this cluster; end it", address)
	}
	return nil
}

// pushImages pushes the images that every pod needs, and a busybox for tests, to the registry.
func (s *state) pushImages() error {
	pause, err := image([]string{"/pause"}, filepath.Join(s.Bin, "pause"), "/pause", nil)
	if err != nil {
		return err
	}
	busybox, err := image(nil, busyboxPath, "/bin/busybox", applets)
	if err != nil {
		return err
	}
	for reference, image := range map[string]v1.Image{pauseImage: pause, busyboxImage: busybox} {
		ref, err := name.ParseReference(reference, name.Insecure)
		if err != nil {
			return err
		}
		if err := remote.Write(ref, image); err != nil {
			return fmt.Errorf("push %s: %w", reference, err)
		}
	}
	return nil
}

// image returns an image with one static program of this machine at a path, and links to it in the
// same directory.
func image(entrypoint []string, program, at string, links []string) (v1.Image, error) {
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	tw := tar.NewWriter(&buffer)
	for _, dir := range []string{"tmp/", "bin/"} {
		tw.WriteHeader(&tar.Header{Name: dir, Typeflag: tar.TypeDir, Mode: 0o1777})
	}
	tw.WriteHeader(&tar.Header{Name: at[1:], Mode: 0o755, Size: int64(len(content))})
	tw.Write(content)
	for _, link := range links {
		tw.WriteHeader(&tar.Header{Name: path.Join(path.Dir(at), link)[1:], Typeflag: tar.TypeSymlink,
			Linkname: path.Base(at)})
	}
	if err := tw.Close(); err != nil { // Close also reports earlier errors
		return nil, fmt.Errorf("pack %s: %w", program, err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(buffer.Bytes())), nil
	})
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", runtime.GOARCH, v1.Time{Time: time.Unix(0, 0)}
	config.Config.Env, config.Config.Entrypoint = []string{"PATH=/bin"}, entrypoint
	return mutate.ConfigFile(img, config)
}
