package policy

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
)

// graph returns resources in the form of the golden files of package graph.
func graph(t testing.TB, doc string) (all []Resource) {
	t.Helper()
	var docs []struct {
		Type, Name string
		Inputs     map[string]any
		Options    Options
	}
	if err := yaml.Unmarshal([]byte(doc), &docs); err != nil {
		t.Fatalf("read %s: %v", doc, err)
	}
	for _, d := range docs {
		inputs := resource.NewPropertyMapFromMap(d.Inputs)
		for k, v := range inputs {
			inputs[k] = marked(v)
		}
		all = append(all, Resource{Type: d.Type, Name: d.Name, Inputs: inputs, Options: d.Options})
	}
	return all
}

// marked returns a value in which the marks of golden files are unknown values or secrets.
func marked(v resource.PropertyValue) resource.PropertyValue {
	switch {
	case v.IsString() && v.StringValue() == "(unknown)":
		return resource.MakeComputed(resource.NewProperty(""))
	case v.IsObject():
		m := v.ObjectValue()
		if s, ok := m["(secret)"]; ok {
			return resource.MakeSecret(marked(s))
		}
		for k, e := range m {
			m[k] = marked(e)
		}
	case v.IsArray():
		for i, e := range v.ArrayValue() {
			v.ArrayValue()[i] = marked(e)
		}
	}
	return v
}

// examples returns, by rule, a graph that passes, and the graphs that violate it, by problem.
func examples(t testing.TB) map[string]struct {
	Pass []string
	Fail map[string]words // one graph, or several
} {
	t.Helper()
	docs, err := os.ReadFile("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var rules map[string]struct {
		Pass []string
		Fail map[string]words // one graph, or several
	}
	if err := yaml.UnmarshalStrict(docs, &rules); err != nil {
		t.Fatal(err)
	}
	return rules
}

func TestRules(t *testing.T) {
	rules := examples(t)
	for _, r := range Rules {
		if !r.elsewhere && (len(rules[r.Name].Pass) == 0 || len(rules[r.Name].Fail) == 0) {
			t.Errorf("rules.yaml has nothing for %s", r.Name)
		}
		delete(rules, r.Name)
	}
	for name := range rules {
		t.Errorf("rules.yaml has %s, which is no rule", name)
	}
}

func TestRule(t *testing.T) {
	rules := examples(t)
	others := func(rule string) (names []string) {
		for _, r := range Rules {
			if r.Name != rule {
				names = append(names, r.Name)
			}
		}
		return names
	}
	for rule, cases := range rules {
		t.Run(rule, func(t *testing.T) {
			for _, doc := range cases.Pass {
				for _, v := range Check(graph(t, doc), others(rule)...) {
					t.Errorf("%v\nof\n%s", v, doc)
				}
			}
			for problem, docs := range cases.Fail {
				for _, doc := range docs {
					fails(t, rule, problem, doc, others(rule))
				}
			}
		})
	}
}

// fails checks that a graph has that problem of the rule and no other, and none if it is allowed.
func fails(t *testing.T, rule, problem, doc string, others []string) {
	t.Helper()
	all := graph(t, doc)
	got := Check(all, others...)
	if len(got) != 1 || got[0].Rule.Name != rule || got[0].Problem != problem {
		t.Errorf("%v, want %q of\n%s", got, problem, doc)
		return
	}
	for _, want := range []string{rule, got[0].Type, got[0].Name, problem, got[0].Rule.Remedy} {
		if !strings.Contains(got[0].Error(), want) {
			t.Errorf("%q does not say %q", got[0].Error(), want)
		}
	}
	if got := Check(all, append(others, rule+":"+got[0].Name)...); len(got) > 0 {
		t.Errorf("%v although it is allowed", got)
	}
	if got := Check(all, append(others, rule+":another")...); len(got) != 1 {
		t.Errorf("%v where another is allowed", got)
	}
	if got := Check(all, append(others, rule)...); len(got) > 0 {
		t.Errorf("%v although the rule is off", got)
	}
}

// An unknown value is no violation, and neither is anything that contains it.
func TestUnknown(t *testing.T) {
	for rule, cases := range examples(t) {
		for _, doc := range cases.Pass {
			all := graph(t, doc)
			for i := range all {
				eachUnknown(resource.NewProperty(all[i].Inputs), func(v resource.PropertyValue) {
					partly := slices.Clone(all)
					partly[i].Inputs = v.ObjectValue()
					for _, v := range Check(partly) {
						if v.Rule.Name == rule {
							t.Errorf("%v with something unknown of\n%s", v, doc)
						}
					}
				})
			}
		}
	}
}

// eachUnknown calls f with copies of a value in which one part is unknown, each part once.
func eachUnknown(v resource.PropertyValue, f func(resource.PropertyValue)) {
	unknown := resource.MakeComputed(resource.NewProperty(""))
	switch {
	case v.IsObject():
		for k, e := range v.ObjectValue() {
			with := func(part resource.PropertyValue) {
				m := v.ObjectValue().Copy()
				m[k] = part
				f(resource.NewProperty(m))
			}
			with(unknown)
			eachUnknown(e, with)
		}
	case v.IsArray():
		for i, e := range v.ArrayValue() {
			with := func(part resource.PropertyValue) {
				a := slices.Clone(v.ArrayValue())
				a[i] = part
				f(resource.NewProperty(a))
			}
			with(unknown)
			eachUnknown(e, with)
		}
	}
}

func TestDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/infrastructure/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range Rules {
		row := fmt.Sprintf("| `%s` | %s | %s | %s |\n", r.Name, r.Forbids, r.Why, r.Remedy)
		if !strings.Contains(string(page), row) {
			t.Errorf("policy.md has not\n%s", row)
		}
	}
	if n := strings.Count(string(page), "\n| `"); n != len(Rules) {
		t.Errorf("policy.md has %d rules, want %d", n, len(Rules))
	}
}

// The clouds' SDKs have every type that a rule names, with the inputs that the rule checks.
func TestTypesOfTheSDKs(t *testing.T) {
	inputs := map[string][]string{}
	for kind, path := range labels {
		inputs[kind] = append(inputs[kind], path[0])
	}
	for kind, path := range identityPolicies {
		inputs[kind] = append(inputs[kind], path[0])
	}
	for kind, key := range resourcePolicies {
		inputs[kind] = append(inputs[kind], key)
	}
	for kind, where := range ingress {
		if where.rules != "" {
			inputs[kind] = append(inputs[kind], where.rules)
		} else {
			inputs[kind] = append(inputs[kind], where.cidrs...)
		}
	}
	sdks := map[string]string{}
	for cloud, path := range map[string]string{"aws": "github.com/pulumi/pulumi-aws/sdk/v6/go/aws",
		"gcp": "github.com/pulumi/pulumi-gcp/sdk/v7/go/gcp"} {
		dir, err := exec.Command("go", "list", "-f", "{{.Dir}}", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		sdks[cloud] = strings.TrimSpace(string(dir))
	}
	for kind, names := range inputs {
		cloud, file, _ := strings.Cut(kind, ":")
		file, _, _ = strings.Cut(file, ":") // "eks/cluster"
		source, err := os.ReadFile(filepath.Join(sdks[cloud], file+".go"))
		if err != nil || !strings.Contains(string(source), `"`+kind+`"`) {
			t.Errorf("the SDK has no %s: %v", kind, err)
		}
		for _, name := range names {
			if !strings.Contains(string(source), "`pulumi:\""+name+"\"`") {
				t.Errorf("%s has no input %s", kind, name)
			}
		}
	}
}

// Every resource of the stacks that can be labelled must be labelled, except for free ones.
func TestLabelsOfTheStacks(t *testing.T) {
	free := []string{"gcp:monitoring/notificationChannel:NotificationChannel", "aws:eks/accessEntry:AccessEntry",
		"aws:eks/podIdentityAssociation:PodIdentityAssociation",
		"aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"}
	looked := map[string]bool{}
	for _, cloud := range []string{"eks/testdata/own-up.yaml", "gke/testdata/everything.yaml"} {
		doc, err := os.ReadFile("../" + cloud)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range graph(t, string(doc)) {
			before := len(r.Inputs)
			for _, key := range []resource.PropertyKey{"labels", "resourceLabels", "tags"} {
				if key == "tags" || strings.HasPrefix(r.Type, "gcp:") {
					delete(r.Inputs, key)
				}
			}
			if len(r.Inputs) == before || slices.Contains(free, r.Type) {
				continue
			}
			looked[r.Type] = true
			if !slices.ContainsFunc(Check([]Resource{r}), func(v Violation) bool {
				return v.Rule.Name == "unlabelled-cost"
			}) {
				t.Errorf("%s %s may be without labels", r.Type, r.Name)
			}
		}
	}
	if len(looked) < 20 {
		t.Errorf("only %d types were looked at", len(looked))
	}
}
