package image

import (
	"encoding/json"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
)

// bomFile is where an image says what its binary is made of.
const bomFile = "/elasticdl.cdx.json"

// component is a module as CycloneDX has it.
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
}

// BOM returns a software bill of materials of a binary, by what Go has written into it: CycloneDX, as JSON. The same binary has
// the same: there is neither a time nor a serial number in it. What a base image has is the base's to say.
func (b Binary) BOM() ([]byte, error) {
	components := []component{{"library", "stdlib", strings.TrimPrefix(b.build.GoVersion, "go"), purl("stdlib", strings.TrimPrefix(b.build.GoVersion, "go"))}}
	for _, m := range b.build.Deps { // sorted by Go
		components = append(components, componentOf("library", m))
	}
	of := componentOf("application", &b.build.Main)
	if of.Name == "" {
		of.Name = b.build.Path
	}
	text, err := json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
		"metadata": map[string]any{"component": of}, "components": components,
	}, "", "  ")
	return append(text, '\n'), err
}

// componentOf describes a module, or that in its place. One of a directory has no version, and nobody else can know it.
func componentOf(kind string, m *debug.Module) component {
	if m.Replace != nil && m.Replace.Version != "" {
		m = m.Replace
	}
	if m.Version == "" || m.Version == "(devel)" || m.Replace != nil {
		return component{Type: kind, Name: m.Path}
	}
	return component{kind, m.Path, m.Version, purl(m.Path, m.Version)}
}

// purl is the package URL of a Go module.
func purl(path, version string) string {
	parts := strings.Split(path, "/")
	for i, p := range parts {
		parts[i] = url.PathEscape(p)
	}
	return "pkg:golang/" + strings.Join(parts, "/") + "@" + url.QueryEscape(version)
}

// writeBOM writes the bill of materials of a binary to a file.
func writeBOM(b Binary, path string) error {
	text, err := b.BOM()
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}
