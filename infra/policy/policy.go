package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// Resource is a resource that a program requests.
type Resource struct {
	Type, Name string
	Inputs     resource.PropertyMap
	Options    Options
}

// Options has the options that rules check. Other resources are named as "type name".
type Options struct {
	Provider  string   `json:"provider"` // "" = the default provider
	DependsOn []string `json:"dependsOn"`
	Protect   bool     `json:"protect"`
}

// Rule forbids one thing, and has a name.
type Rule struct {
	Name    string
	Forbids string // what the rule forbids
	Why     string
	Remedy  string // what to do instead

	// judge returns the problems of a resource; all has the resources requested so far.
	judge func(r Resource, all []Resource) []string
	// whole marks rules that require another resource, which the program may still request: only
	// [Check] applies them.
	whole bool
	// elsewhere marks rules that compare with an earlier state, which no list of resources has.
	// Package platform applies them.
	elsewhere bool
}

// Violation is a resource that is against a rule.
type Violation struct {
	Rule       *Rule
	Type, Name string // type and name of the resource
	Problem    string
}

// Error returns the resource, the problem, and its remedy.
func (v Violation) Error() string {
	return fmt.Sprintf("policy %s: %s %q: %s. %s. (To let it pass: elasticdl:policy.allow: [%q])",
		v.Rule.Name, v.Type, v.Name, v.Problem, v.Rule.Remedy, v.Rule.Name+":"+v.Name)
}

// Check returns the violations among the resources that a program requests, except for those that
// are allowed: "rule", or "rule:name" of a resource.
func Check(all []Resource, allow ...string) []Violation { return check(all, true, allow) }

func check(all []Resource, whole bool, allow []string) (found []Violation) {
	for _, r := range slices.Concat(all, jobPods(all)) {
		for i := range Rules {
			rule := &Rules[i]
			if rule.elsewhere || rule.whole && !whole || slices.Contains(allow, rule.Name) ||
				slices.Contains(allow, rule.Name+":"+r.Name) {
				continue
			}
			for _, problem := range rule.judge(r, all) {
				found = append(found, Violation{Rule: rule, Type: r.Type, Name: r.Name, Problem: problem})
			}
		}
	}
	return found
}

// Known reports each rule that a stack allows to break and that does not exist. It is a
// [settings.Check].
func Known(s *settings.Settings, p *settings.Problems) {
	var names []string
	for _, r := range Rules {
		names = append(names, r.Name)
	}
	for i, a := range s.Policy.Allow {
		name, _, _ := strings.Cut(a, ":")
		p.Check(slices.Contains(names, name), fmt.Sprintf("policy.allow[%d]", i),
			"%s is no rule: expected one of %s, or one with :<name of a resource>", a, strings.Join(names, ", "))
	}
}
