package image

import (
	"encoding/json"
	"net/url"
	"os"
	"runtime/debug"
	"strings"
)

// bomFile is the path in an image of its binary's bill of materials.
const bomFile = "/elasticdl.cdx.json"

// component is a module in CycloneDX's format.
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version,omitempty"`
	PURL    string `json:"purl,omitempty"`
}

// BOM returns the software bill of materials of a binary, from what Go has written into it:
// CycloneDX, as JSON. The same binary gives the same bytes, because they have neither a time nor a
// serial number. The contents of a base image are not listed.
func (b Binary) BOM() ([]byte, error) {
	components := []component{{"library", "stdlib", strings.TrimPrefix(b.build.GoVersion, "go"),
		purl("stdlib", strings.TrimPrefix(b.build.GoVersion, "go"))}}
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

// componentOf describes a module, or its replacement. A module replaced by a local directory has no
// version, and is listed by its name only.
func componentOf(kind string, m *debug.Module) component {
	if m.Replace != nil && m.Replace.Version != "" {
		m = m.Replace
	}
	if m.Version == "" || m.Version == "(devel)" || m.Replace != nil {
		return component{Type: kind, Name: m.Path}
	}
	return component{kind, m.Path, m.Version, purl(m.Path, m.Version)}
}

// purl returns the package URL of a Go module.
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
