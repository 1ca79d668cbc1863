package infra

import (
	"fmt"
	"strings"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// Part is a part of a stack that exists already, and that a setting names: a VPC, a file system, a
// bucket. The stack uses it, and never changes, protects or deletes it.
type Part struct {
	// Path of the setting: "eks.efs.id".
	Path string
	// Name of the part in the cloud; "" = there is no such part, and the stack may make one.
	Name string
	// Find looks up the part, and reports by expect what does not fit. An error says that the part
	// could not be looked up.
	Find func(expect Expect) error
}

// Expect adds a reason why a part does not fit, if ok is false: what was found, what is expected,
// and what to do.
type Expect func(ok bool, format string, args ...any)

// LookUp looks up parts that exist already, in the order of their list. It returns an error with
// all that do not fit, one a line, each with all reasons.
func LookUp(s *settings.Settings, all []Part) error {
	problems := &settings.Problems{Project: s.Project}
	for _, part := range all {
		if part.Name == "" {
			continue
		}
		var reasons []string
		err := part.Find(func(ok bool, format string, args ...any) {
			if !ok {
				reasons = append(reasons, fmt.Sprintf(format, args...))
			}
		})
		if err != nil {
			reasons = append(reasons, "look it up: "+err.Error())
		}
		problems.Check(len(reasons) == 0, part.Path, "%s: %s", part.Name, strings.Join(reasons, "; "))
	}
	return problems.Err()
}
