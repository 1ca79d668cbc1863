package trainer

import (
	"go/ast"
	"slices"
	"testing"
)

// strange lists the names of job.Job that each of the two products does not use, because the other
// product has that type of job.
var strange = map[string][]string{
	"trainer/train": {"Runs", "Program"},
	"trainer/run":   {"Trains", "ModelDef", "Strategy"},
}

// Each product gets only its own types of jobs: package role asks what a job is, and calls one of
// them. Neither calls the other through a function that it is given.
func TestProductsDoNotAskForTheOther(t *testing.T) {
	for _, s := range load(t) {
		if s.test {
			continue
		}
		for product, names := range strange {
			if !within(s.dir, product) {
				continue
			}
			jobs := s.local(module+"/trainer/elastic/job", "job")
			ast.Inspect(s.File, func(n ast.Node) bool {
				if n, ok := n.(*ast.SelectorExpr); ok && jobs != "" && slices.Contains(names, n.Sel.Name) {
					t.Errorf("%s: %s is of jobs that %s does not have", s.path, n.Sel.Name, product)
				}
				return true
			})
		}
	}
}
