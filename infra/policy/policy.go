package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// Resource is what a program asks for.
type Resource struct {
	Type, Name string
	Inputs     resource.PropertyMap
	Options    Options
}

// Options are those that rules look at. Other resources are named "type name".
type Options struct {
	Provider  string   `json:"provider"` // "" = the default one
	DependsOn []string `json:"dependsOn"`
	Protect   bool     `json:"protect"`
}

// Rule is one thing that a stack may not do, and is named by it.
type Rule struct {
	Name   string
	What   string // it forbids
	Why    string
	Remedy string // what to do instead

	// judge says what is wrong with a resource; all is everything asked for by now.
	judge func(r Resource, all []Resource) []string
	// whole rules miss something, which may yet come while the program runs: only [Check] has them.
	whole bool
	// elsewhere: it compares with what there was, which no graph has. Package platform looks.
	elsewhere bool
}

// Violation is a resource that is against a rule.
type Violation struct {
	Rule       *Rule
	Type, Name string // of the resource
	Problem    string
}

// Error names everything that is needed to put it right.
func (v Violation) Error() string {
	return fmt.Sprintf("policy %s: %s %q: %s. %s. (To let it pass: elasticdl:policy.allow: [%q])",
		v.Rule.Name, v.Type, v.Name, v.Problem, v.Rule.Remedy, v.Rule.Name+":"+v.Name)
}

// Check judges all that a program asks for, but for what is allowed: "rule", or "rule:name" of a resource.
func Check(all []Resource, allow ...string) []Violation { return check(all, true, allow) }

func check(all []Resource, whole bool, allow []string) (found []Violation) {
	for _, r := range slices.Concat(all, jobPods(all)) {
		for i := range Rules {
			rule := &Rules[i]
			if rule.elsewhere || rule.whole && !whole || slices.Contains(allow, rule.Name) || slices.Contains(allow, rule.Name+":"+r.Name) {
				continue
			}
			for _, problem := range rule.judge(r, all) {
				found = append(found, Violation{Rule: rule, Type: r.Type, Name: r.Name, Problem: problem})
			}
		}
	}
	return found
}

// Known reports each rule that a stack lets pass and that does not exist. It is a [settings.Check].
func Known(s *settings.Settings, p *settings.Problems) {
	var names []string
	for _, r := range Rules {
		names = append(names, r.Name)
	}
	for i, a := range s.Policy.Allow {
		name, _, _ := strings.Cut(a, ":")
		p.Check(slices.Contains(names, name), fmt.Sprintf("policy.allow[%d]", i), "%s is no rule: expected one of %s, or one with :<name of a resource>", a, strings.Join(names, ", "))
	}
}
