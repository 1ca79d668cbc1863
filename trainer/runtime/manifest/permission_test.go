package manifest

import "testing"

// The permission to watch nodes is that, and nothing else, for one namespace.
func TestNodePermissions(t *testing.T) {
	role, binding := NodePermissions("research")
	text, err := YAML(role, binding)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "node-permissions.yaml", text)
}
