package role

import (
	"bytes"
	"encoding/json"
)

// Evidence is one file of what a runtime knows of a job, for people who look for a fault. It may
// have secrets.
type Evidence struct {
	// path in an archive, such as cluster/pods.json
	Name  string
	Value any // with a form in JSON
	// why it could not be read, or not whole; nil: it was
	Why error
}

// Tree returns the value of a JSON text, with all digits of its numbers.
func Tree(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}
