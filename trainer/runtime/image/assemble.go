package image

import (
	"archive/tar"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/elasticdl/elasticdl/trainer/run/folder"
)

// entryPoint is the path of the binary in an image.
const entryPoint = "/elasticdl"

// WorkDir is the path of the code in an image that has code, and the working directory of its
// processes.
const WorkDir = "/app"

// Config describes what an image is made of.
type Config struct {
	// "registry/repository:tag"
	Name string
	// one for each platform
	Binaries []Binary
	// image to which the layers are added; "": none
	Base string
	// where a base is looked for before its registry; "": nowhere
	Built Store
	// the base's registry may speak plain HTTP
	Insecure bool
	// file of certificate authorities, for an image without a base; "": none
	Certificates string

	// what else is in it, at WorkDir; nil: nothing
	Code *folder.Folder
}

// Image is an assembled image. Its layers are files, so it is invalid once the directory in which
// it was assembled is removed.
type Image struct {
	Name string
	// "sha256:…"
	Digest string
	// bytes to push: compressed layers of all platforms
	Size      int64
	Platforms []string
	// of one platform, or
	plain v1.Image
	// of several
	index v1.ImageIndex
}

// CheckName returns why an image of that name cannot be built or pushed, or nil.
func CheckName(image string) error {
	_, err := parseTag(image, false)
	return err
}

// CheckReference returns why the name of an existing image, which may end in a digest, is wrong, or
// nil.
func CheckReference(image string) error {
	_, err := name.ParseReference(image)
	return err
}

func parseTag(image string, insecure bool) (name.Tag, error) {
	tag, err := name.NewTag(image, options(insecure)...)
	if err != nil {
		if strings.Contains(image, "@") {
			return tag, errors.New("expected a tag, not a digest, as REGISTRY/NAME:TAG")
		}
		return tag, fmt.Errorf("expected REGISTRY/NAME:TAG in lower case: %w", err)
	}
	return tag, nil
}

func options(insecure bool) []name.Option {
	if insecure {
		return []name.Option{name.Insecure}
	}
	return nil
}

// Assemble makes an image. It writes the layers to dir, which must stay as long as the image is
// used.
func Assemble(ctx context.Context, c Config, dir string, progress func(Progress)) (*Image, error) {
	if err := CheckName(c.Name); err != nil {
		return nil, fmt.Errorf("image %s: %w", c.Name, err)
	}
	if len(c.Binaries) == 0 {
		return nil, fmt.Errorf("image %s: no binary for it", c.Name)
	}
	image := &Image{Name: c.Name}
	var parts []mutate.IndexAddendum
	for i, b := range c.Binaries {
		if slices.Contains(image.Platforms, b.Platform) {
			return nil, fmt.Errorf("image %s: two binaries for %s", c.Name, b.Platform)
		}
		progress(Progress{Step: "assemble for " + b.Platform})
		part, err := assembleOne(ctx, c, b, filepath.Join(dir, fmt.Sprint(i)))
		if err != nil {
			return nil, fmt.Errorf("assemble %s for %s: %w", c.Name, b.Platform, err)
		}
		size, err := layersSize(part)
		if err != nil {
			return nil, fmt.Errorf("assemble %s for %s: %w", c.Name, b.Platform, err)
		}
		image.Size += size
		image.Platforms = append(image.Platforms, b.Platform)
		image.plain = part
		platform, _ := v1.ParsePlatform(b.Platform)
		parts = append(parts, mutate.IndexAddendum{Add: part, Descriptor: v1.Descriptor{Platform: platform}})
	}
	if len(parts) > 1 {
		image.plain, image.index = nil,
			mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex), parts...)
	}
	return image, image.seal()
}

// seal sets the digest, size and platforms of a complete image.
func (i *Image) seal() error {
	var of interface{ Digest() (v1.Hash, error) } = i.plain
	if i.index != nil {
		of = i.index
	}
	digest, err := of.Digest()
	i.Digest = digest.String()
	return err
}

func layersSize(image v1.Image) (int64, error) {
	manifest, err := image.Manifest()
	if err != nil {
		return 0, err
	}
	var size int64
	for _, layer := range manifest.Layers {
		size += layer.Size
	}
	return size, nil
}

// assembleOne makes the image of one platform.
func assembleOne(ctx context.Context, c Config, b Binary, dir string) (v1.Image, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	base, labels := scratch(), b.labels()
	if c.Base != "" {
		var err error
		if base, err = c.base(ctx, b.Platform); err != nil {
			return nil, err
		}
		digest, err := base.Digest()
		if err != nil {
			return nil, fmt.Errorf("read the base %s: %w", c.Base, err)
		}
		labels["org.opencontainers.image.base.name"], labels["org.opencontainers.image.base.digest"] =
			c.Base, digest.String()
	}
	kind, err := layerKind(base)
	if err != nil {
		return nil, fmt.Errorf("read the base %s: %w", c.Base, err)
	}
	var layers []v1.Layer
	if c.Base == "" {
		entries := []entry{{name: "tmp/", mode: 0o1777}}
		if c.Certificates != "" {
			entries = append(entries, entry{name: "etc/", mode: 0o755},
				entry{name: "etc/ssl/", mode: 0o755}, entry{name: "etc/ssl/certs/", mode: 0o755},
				entry{name: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, file: c.Certificates})
		}
		layer, err := writeLayer(filepath.Join(dir, "system.tar.gz"), kind, entries)
		if err != nil {
			return nil, err
		}
		layers = append(layers, layer)
	}
	bill := filepath.Join(dir, "elasticdl.cdx.json")
	if err := writeBOM(b, bill); err != nil {
		return nil, fmt.Errorf("write the bill of materials: %w", err)
	}
	layer, err := writeLayer(filepath.Join(dir, "elasticdl.tar.gz"), kind,
		[]entry{{name: entryPoint[1:], mode: 0o755, file: b.Path}, {name: bomFile[1:], mode: 0o644, file: bill}})
	if err != nil {
		return nil, err
	}
	layers = append(layers, layer)
	workDir := ""
	// a layer of its own, the last: it changes most often
	if c.Code != nil {
		if layer, err = writeLayer(filepath.Join(dir, "code.tar.gz"), kind, codeEntries(c.Code)); err != nil {
			return nil, err
		}
		layers, workDir = append(layers, layer), WorkDir
	}
	return configure(base, layers, b, labels, workDir)
}

// base returns the image to which the layers for a platform are added. As with docker build, an
// image that was built here comes before one of the same name in a registry.
func (c Config) base(ctx context.Context, platform string) (v1.Image, error) {
	if c.Built != "" {
		image, err := c.Built.image(c.Base, platform)
		if !errors.Is(err, ErrNotFound) {
			return image, err
		}
	}
	return pullBase(ctx, c.Base, c.Insecure, platform)
}

// codeEntries returns the entries of a directory of code at WorkDir, owned by root and readable by
// all.
func codeEntries(code *folder.Folder) []entry {
	top := WorkDir[1:] + "/"
	entries := []entry{{name: top, mode: 0o755}}
	for _, e := range code.Entries {
		entries = append(entries, entry{name: top + e.Name, mode: int64(e.Mode()), file: e.Path})
	}
	return entries
}

// configure adds layers to a base, and sets how the image is run: in workDir, or in the working
// directory of the base if that is "".
func configure(base v1.Image, layers []v1.Layer, b Binary, labels map[string]string, workDir string) (v1.Image, error) {
	created := v1.Time{Time: b.created()}
	var added []mutate.Addendum
	for _, layer := range layers {
		added = append(added, mutate.Addendum{Layer: layer,
			History: v1.History{Created: created, CreatedBy: "elasticdl zoo build"}})
	}
	image, err := mutate.Append(base, added...)
	if err != nil {
		return nil, err
	}
	file, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	file = file.DeepCopy()
	os, arch, variant := splitPlatform(b.Platform)
	file.OS, file.Architecture, file.Variant, file.Created = os, arch, variant, created
	file.Config.Entrypoint, file.Config.Cmd = []string{entryPoint}, nil
	file.Config.Env = withPath(file.Config.Env)
	file.Config.WorkingDir = cmp.Or(workDir, file.Config.WorkingDir)
	if file.Config.Labels == nil {
		file.Config.Labels = make(map[string]string)
	}
	maps.Copy(file.Config.Labels, labels)
	if image, err = mutate.ConfigFile(image, file); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, labels).(v1.Image), nil
}

// withPath returns an environment whose PATH has the binary after the base's commands.
func withPath(env []string) []string {
	env = slices.Clone(env)
	for i, e := range env {
		if strings.HasPrefix(e, "PATH=") {
			env[i] += ":/"
			return env
		}
	}
	return append(env, "PATH=/")
}

// scratch returns an empty image.
func scratch() v1.Image {
	return mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
}

// layerKind returns the media type of layers for a base: all parts of an image are of Docker's
// format or of the OCI's.
func layerKind(base v1.Image) (types.MediaType, error) {
	kind, err := base.MediaType()
	if kind == types.DockerManifestSchema2 {
		return types.DockerLayer, err
	}
	return types.OCILayer, err
}

// entry is a file in a layer, or a directory if its name ends with a slash.
type entry struct {
	name string // from the root, without a slash before
	mode int64
	file string // what is in it
}

// writeLayer writes a layer that depends on its entries only: it has no times and no owners.
func writeLayer(path string, kind types.MediaType, entries []entry) (v1.Layer, error) {
	out, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	zip := gzip.NewWriter(out)
	archive := tar.NewWriter(zip)
	for _, e := range entries {
		if err := e.write(archive); err != nil {
			return nil, fmt.Errorf("write %s into a layer: %w", e.name, err)
		}
	}
	if err := errors.Join(archive.Close(), zip.Close(), out.Close()); err != nil {
		return nil, err
	}
	return tarball.LayerFromFile(path, tarball.WithMediaType(kind))
}

func (e entry) write(to *tar.Writer) error {
	header := &tar.Header{Name: e.name, Mode: e.mode, ModTime: time.Unix(0, 0), Typeflag: tar.TypeDir,
		Format: tar.FormatPAX}
	if e.file == "" {
		return to.WriteHeader(header)
	}
	f, err := os.Open(e.file)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header.Typeflag, header.Size = tar.TypeReg, info.Size()
	if err := to.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(to, f)
	return err
}
