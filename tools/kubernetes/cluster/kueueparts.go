package cluster

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"

	"k8s.io/apimachinery/pkg/util/yaml"
)

const (
	mutatingWebhooks   = "kueue-mutating-webhook-configuration"
	validatingWebhooks = "kueue-validating-webhook-configuration"
)

// queued selects the namespaces that Kueue manages.
var queued = map[string]any{"matchLabels": map[string]any{QueuedLabel: "true"}}

// kueueParts is Kueue as its module ships it for a cluster, made fit for a manager that is a process
// of this machine.
type kueueParts struct {
	// namespace, roles, resource definitions and webhooks
	objects []map[string]any
	// of its manager
	config map[string]any
}

// kueueKinds has the kinds of the objects that are used: the Deployment and what belongs to it are
// not.
var kueueKinds = []string{"Namespace", "ServiceAccount", "Role", "RoleBinding", "ClusterRole",
	"ClusterRoleBinding", "CustomResourceDefinition", "MutatingWebhookConfiguration",
	"ValidatingWebhookConfiguration"}

// readKueue reads the rendered manifests that Kueue's module ships. Its webhooks are served at base
// by a certificate of that authority.
func readKueue(shipped []byte, base string, authority []byte) (*kueueParts, error) {
	parts := &kueueParts{}
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(shipped), 4096); ; {
		var object map[string]any
		err := d.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read the manifests of Kueue: %w", err)
		}
		if err := parts.take(object); err != nil {
			return nil, err
		}
	}
	if len(parts.objects) == 0 || parts.config == nil {
		return nil, fmt.Errorf("read the manifests of Kueue: %d objects and settings %v, expected some",
			len(parts.objects), parts.config)
	}
	for _, object := range parts.objects {
		redirect(object, base, base64.StdEncoding.EncodeToString(authority))
	}
	return parts, nil
}

func (k *kueueParts) take(object map[string]any) error {
	switch kind, _ := object["kind"].(string); {
	case kind == "ConfigMap":
		data, _ := object["data"].(map[string]any)
		text, _ := data["controller_manager_config.yaml"].(string)
		if err := yaml.Unmarshal([]byte(text), &k.config); err != nil {
			return fmt.Errorf("read the settings of Kueue: %w", err)
		}
	case slices.Contains(kueueKinds, kind):
		if all, ok := object["webhooks"].([]any); ok {
			object["webhooks"] = chooseWebhooks(all)
		}
		k.objects = append(k.objects, object)
	}
	return nil
}

// definitions returns the resource definitions in the format of kubectl's arguments.
func (k *kueueParts) definitions() (names []string) {
	for _, object := range k.objects {
		if object["kind"] == "CustomResourceDefinition" {
			names = append(names, "customresourcedefinition/"+object["metadata"].(map[string]any)["name"].(string))
		}
	}
	return names
}

// chooseWebhooks returns the webhooks of Kueue's own objects, and those of pods and Jobs, which it
// restricts to the namespaces that Kueue manages. The others belong to integrations that the
// manager does not serve.
func chooseWebhooks(all []any) []any {
	var chosen []any
	for _, one := range all {
		webhook := one.(map[string]any)
		switch rule := webhook["rules"].([]any)[0].(map[string]any); rule["apiGroups"].([]any)[0] {
		case "", "batch":
			webhook["namespaceSelector"] = queued
			chosen = append(chosen, webhook)
		case "kueue.x-k8s.io":
			chosen = append(chosen, webhook)
		}
	}
	return chosen
}

// redirect makes every webhook in value, which is called through a Service, be called at base.
func redirect(value any, base, authority string) {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			redirect(element, base, authority)
		}
	case map[string]any:
		for _, field := range value {
			redirect(field, base, authority)
		}
		client, _ := value["clientConfig"].(map[string]any)
		if service, ok := client["service"].(map[string]any); ok {
			path, _ := service["path"].(string)
			value["clientConfig"] = map[string]any{"url": base + path, "caBundle": authority}
		}
	}
}
