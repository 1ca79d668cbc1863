package image

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// ErrNotFound is returned if the store has no image of that name.
var ErrNotFound = errors.New("not built here")

// Store is a directory of built images, with an OCI layout for each in a directory of its own.
type Store string

func (s Store) dir(image string) string { return filepath.Join(string(s), url.PathEscape(image)) }

// Save stores an image in place of the previous one of its name. It may pull the base's layers.
func (s Store) Save(ctx context.Context, i *Image, progress func(Progress)) error {
	if err := os.MkdirAll(string(s), 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(string(s), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	progress(Progress{Step: "save " + i.Name})
	if err := s.reuse(i, filepath.Join(temporary, "new")); err != nil {
		return fmt.Errorf("save %s: %w", i.Name, err)
	}
	if err := i.write(filepath.Join(temporary, "new")); err != nil {
		return fmt.Errorf("save %s: %w", i.Name, err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.Rename(s.dir(i.Name), filepath.Join(temporary, "old")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.Rename(filepath.Join(temporary, "new"), s.dir(i.Name))
}

// reuse links layers that other images of the store have into a layout, so that those of a base,
// gigabytes of PyTorch, are pulled once.
func (s Store) reuse(i *Image, into string) error {
	layers, err := i.layers()
	if err != nil {
		return err
	}
	stored, err := os.ReadDir(string(s))
	if err != nil {
		return err
	}
	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			return err
		}
		blobs := filepath.Join(into, "blobs", digest.Algorithm)
		if err := os.MkdirAll(blobs, 0o755); err != nil {
			return err
		}
		// if none has the layer, or the file system has no links, it is pulled
		for _, image := range stored {
			if os.Link(filepath.Join(string(s), image.Name(), "blobs", digest.Algorithm, digest.Hex),
				filepath.Join(blobs, digest.Hex)) == nil {
				break
			}
		}
	}
	return nil
}

// layers returns the layers of all platforms.
func (i *Image) layers() ([]v1.Layer, error) {
	if i.index == nil {
		return i.plain.Layers()
	}
	parts, err := imagesOf(i.index)
	if err != nil {
		return nil, err
	}
	var all []v1.Layer
	for _, part := range parts {
		layers, err := part.Layers()
		if err != nil {
			return nil, err
		}
		all = append(all, layers...)
	}
	return all, nil
}

// write writes an image as an OCI layout.
func (i *Image) write(dir string) error {
	only := mutate.IndexAddendum{
		Descriptor: v1.Descriptor{Annotations: map[string]string{"org.opencontainers.image.ref.name": i.Name}}}
	if only.Add = i.plain; i.index != nil {
		only.Add = i.index
	}
	_, err := layout.Write(dir, mutate.AppendManifests(empty.Index, only))
	return err
}

// Open returns the image of that name, or [ErrNotFound].
func (s Store) Open(image string) (*Image, error) {
	all, err := layout.ImageIndexFromPath(s.dir(image))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("image %s: %w", image, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open image %s: %w", image, err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, fmt.Errorf("open image %s: %w", image, err)
	}
	if len(manifest.Manifests) != 1 {
		return nil, fmt.Errorf("open image %s: %s holds %d images: build it again", image, s.dir(image),
			len(manifest.Manifests))
	}
	i := &Image{Name: image}
	if only := manifest.Manifests[0]; only.MediaType.IsIndex() {
		i.index, err = all.ImageIndex(only.Digest)
	} else {
		i.plain, err = all.Image(only.Digest)
	}
	if err != nil {
		return nil, fmt.Errorf("open image %s: %w", image, err)
	}
	return i, i.seal()
}

// image returns the image of that name for one platform, or [ErrNotFound].
func (s Store) image(name, platform string) (v1.Image, error) {
	want, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, err
	}
	i, err := s.Open(name)
	if err != nil {
		return nil, err
	}
	var all []v1.Image
	if i.index == nil {
		all = []v1.Image{i.plain}
	} else if all, err = imagesOf(i.index); err != nil {
		return nil, fmt.Errorf("open image %s: %w", name, err)
	}
	var there []v1.Platform
	for _, image := range all {
		config, err := image.ConfigFile()
		if err != nil {
			return nil, fmt.Errorf("open image %s: %w", name, err)
		}
		if there = append(there, *config.Platform()); covers(there[len(there)-1:], *want) {
			return image, nil
		}
	}
	return nil, fmt.Errorf("--base_image=%s, which was built here, is for %s, not for %s", name, join(there), platform)
}

// imagesOf returns the images of an index, one for each platform.
func imagesOf(index v1.ImageIndex) ([]v1.Image, error) {
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	var all []v1.Image
	for _, m := range manifest.Manifests {
		image, err := index.Image(m.Digest)
		if err != nil {
			return nil, err
		}
		all = append(all, image)
	}
	return all, nil
}

// Names returns the names of the images in the store, sorted.
func (s Store) Names() []string {
	entries, _ := os.ReadDir(string(s)) // no directory: no images
	var names []string
	for _, e := range entries {
		if image, err := url.PathUnescape(e.Name()); err == nil && !strings.HasPrefix(image, ".") {
			names = append(names, image)
		}
	}
	slices.Sort(names)
	return names
}

// WriteArchive writes an image of one platform as a file for docker load, ctr images import,
// minikube image load and kind load image-archive. The file appears completely or not at all.
func WriteArchive(i *Image, path string) error {
	if i.plain == nil {
		return fmt.Errorf("write %s: of an image for %s, and an archive is for one platform", path,
			strings.Join(i.Platforms, ", "))
	}
	tag, err := parseTag(i.Name, false)
	if err != nil {
		return err
	}
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(temporary.Name())
	if err := errors.Join(tarball.Write(tag, i.plain, temporary), temporary.Chmod(0o644),
		temporary.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(temporary.Name(), path)
}
