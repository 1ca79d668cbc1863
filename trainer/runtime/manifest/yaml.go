package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// YAML returns objects as kubectl apply reads them.
func YAML(objects ...runtime.Object) ([]byte, error) {
	var out bytes.Buffer
	for i, o := range objects {
		text, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("write object %d: %w", i, err)
		}
		var fields map[string]json.RawMessage
		if err := json.Unmarshal(text, &fields); err != nil {
			return nil, fmt.Errorf("write object %d: %w", i, err)
		}
		delete(fields, "status") // set by the cluster
		if text, err = json.Marshal(fields); err == nil {
			text, err = yaml.JSONToYAML(text)
		}
		if err != nil {
			return nil, fmt.Errorf("write object %d: %w", i, err)
		}
		if i > 0 {
			out.WriteString("---\n")
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// YAML returns all objects for kubectl apply, the Job last, so that what it needs exists before it.
func (s *Submission) YAML() ([]byte, error) {
	objects := s.Objects()
	return YAML(append(objects[1:], objects[0])...)
}
