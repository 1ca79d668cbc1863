package settings

import (
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

// FromFile returns the configuration of a stack's file as the engine would pass it to the program,
// without decrypting it, and the keys with secrets.
func FromFile(text []byte) (config map[string]string, secret []string, err error) {
	var file struct {
		Config map[string]any `json:"config"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, nil, err
	}
	config = map[string]string{}
	for key, v := range file.Config {
		if text, ok := v.(string); ok {
			config[key] = text
			continue
		}
		if section, ok := v.(map[string]any); ok && section["secure"] != nil {
			secret = append(secret, key)
			continue
		}
		text, err := json.Marshal(v)
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %w", key, err)
		}
		config[key] = string(text)
	}
	return config, secret, nil
}
