package provider

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// plugin is the program that the engine starts as a provider of Kubernetes: it takes the next port
// of a list, prints it, and waits until it is ended.
const plugin = `#!/bin/sh
for port in %s; do
  if mkdir "%s/$port" 2>/dev/null; then
    echo "$port"
    exec sleep 3600
  fi
done
echo "no port is left" >&2
exit 1
`

// mostProviders is the number of providers of Kubernetes that the engine may start in a test.
const mostProviders = 64

// Several makes the cloud good for programs with several clusters: each provider of Kubernetes of
// such a program has a configuration of its own, and so a process. It returns the environment of
// the Pulumi CLI.
func (c *Cloud) Several(t testing.TB) map[string]string {
	t.Helper()
	var ports []string
	for range mostProviders {
		k := &Kubernetes{base: base{pkg: c.Kubernetes.pkg, version: c.Kubernetes.version, mu: c.Kubernetes.mu},
			cloud: c, clusters: c.Kubernetes.clusters, admins: c.Kubernetes.admins, started: c.Kubernetes.started}
		ports = append(ports, fmt.Sprint(serve(t, k)))
	}
	bin := t.TempDir()
	text := fmt.Sprintf(plugin, strings.Join(ports, " "), t.TempDir())
	if err := os.WriteFile(filepath.Join(bin, "pulumi-resource-kubernetes"), []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	env := c.Env()
	env["PATH"] = bin + string(os.PathListSeparator) + env["PATH"]
	var attached []string
	for _, p := range c.debug {
		if !strings.HasPrefix(p, c.Kubernetes.pkg+":") {
			attached = append(attached, p)
		}
	}
	env["PULUMI_DEBUG_PROVIDERS"] = strings.Join(attached, ",")
	return env
}
