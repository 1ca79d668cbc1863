package plan

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource/plugin"
)

const file = `secretsprovider: awskms://alias/pulumi
config:
  gcp:project: a-project
  aws:secretKey:
    secure: v1:abc:def
  elasticdl:job:
    numWorkers: 3
    envs: {A.B: "1", empty: {}}
    args: []
`

func urn(kinds, name string) string { return "urn:pulumi:gke::elasticdl::" + kinds + "::" + name }

// shown returns what a preview with these steps prints.
func shown(steps ...string) []byte {
	return []byte(`{"config": {"a": "b"}, "steps": [` + strings.Join(steps, ",") +
		`], "diagnostics": [{"message": "price", "severity": "info"}], "duration": 17, "changeSummary": {"create": 1}}`)
}

func one(op, kinds, name, more string) string {
	return fmt.Sprintf(`{"op": %q, "urn": %q%s}`, op, urn(kinds, name), more)
}

func read(t *testing.T, steps ...string) *Plan {
	t.Helper()
	p, err := Read("gke", false, []byte(file), shown(steps...))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const pool = `, "oldState": {"inputs": {"name": "w", "size": 4, "tags": ["a", "b"], "key": "[secret]", "former": 1}},
"newState": {"inputs": {"name": "w", "size": 6, "tags": ["a"], "key": "[secret]",
	"id": "04da6b54-80e4-46f7-96ec-b56ff0331ba9"}},
"detailedDiff": {"size": {"kind": "update"}, "key": {"kind": "update"}}`

func TestText(t *testing.T) {
	p := read(t,
		one("same", "a:b:C", "kept", ""), one("read", "a:b:C", "looked-up", ""),
		one("update", "pulumi:pulumi:Stack", "elasticdl-gke", ""),
		one("update", "e:f:G$gcp:container/nodePool:NodePool", "workers", pool),
		one("create-replacement", "a:b:Disk", "files", ""),
		one("replace", "a:b:Disk", "files", `, "oldState": {"inputs": {"tier": "HDD"}},
"newState": {"inputs": {"tier": "SSD"}}, "replaceReasons": ["tier"],
	"detailedDiff": {"tier": {"kind": "update-replace"}}`),
		one("delete-replaced", "a:b:Disk", "files", ""),
		one("delete-replaced", "a:b:Address", "ip", ""),
		one("replace", "a:b:Address", "ip",
			`, "oldState": {}, "newState": {"inputs": {}}, "replaceReasons": ["b", "a"]`),
		one("create-replacement", "a:b:Address", "ip", ""),
		one("delete", "a:b:C", "old", `, "oldState": {"inputs": {"x": 1}}`),
		one("delete", "a:b:C", "old", `, "oldState": {"inputs": {"x": 2}}`),
		one("create", "a:b:C", "n", `, "newState": {"inputs": {"__defaults": ["name"], "name": "n-1a2b3c4",
"text": "two\nlines", "long": "`+strings.Repeat("x", 101)+`",
"big": 12345678901234567890, "odd key": null, "no": {}, "password": "[secret]"}}`),
		one("create", "p:q:R$a:b:D", "twin", ""), one("create", "s:t:U$a:b:D", "twin", ""),
	)
	want, err := os.ReadFile(filepath.Join("testdata", "plan.txt"))
	if err != nil {
		t.Fatal(err)
	}
	if p.String() != string(want) {
		t.Errorf("it is\n%s", p)
	}
	if p.Steps() != 7 {
		t.Errorf("%d steps", p.Steps())
	}
	again, err := Parse(p.String())
	if err != nil || len(again.Differences(p)) > 0 || again.Digest() != p.Digest() {
		t.Errorf("after reading it again: %v, %s", err, again.Differences(p))
	}
}

// The order of steps, made-up names and what is not known yet make no difference; all else does.
func TestDifferences(t *testing.T) {
	create := func(name, inputs string) string {
		return one("create", "a:b:C", name, `, "newState": {"inputs": {`+inputs+`}}`)
	}
	was := read(t, create("a", `"name": "a-1234567", "n": 1`), create("b", ""))
	for name, tt := range map[string]struct {
		is   *Plan
		want []string
	}{
		"another order and made-up name": {
			read(t, create("b", ""), create("a", `"n": 1, "name": "a-89abcde"`)), nil},
		"another value": {read(t, create("b", ""), create("a", `"name": "a-1234567", "n": 2`)),
			[]string{"  create a:b:C a", "-     n: 1", "+     n: 2"}},
		"a step less": {read(t, create("a", `"name": "a-1234567", "n": 1`)), []string{"- create a:b:C b"}},
		"another operation": {read(t, create("a", `"name": "a-1234567", "n": 1`), one("delete", "a:b:C", "b", "")),
			[]string{"- create a:b:C b", "+ delete a:b:C b"}},
	} {
		got := was.Differences(tt.is)
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s:\n%s\nexpected\n%s", name, strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
		}
		if (was.Digest() == tt.is.Digest()) != (tt.want == nil) {
			t.Errorf("%s: digests %s and %s", name, was.Digest(), tt.is.Digest())
		}
	}
	other, err := Read("eks", true, []byte(strings.ReplaceAll(file, "def", "ghi")), shown())
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"- stack gke", "+ stack eks", "- refresh false", "+ refresh true",
		"- create a:b:C a"} {
		if got := was.Differences(other); !slices.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, strings.Join(got, "\n"))
		}
	}
	lines := strings.Join(was.Differences(other), "\n")
	if strings.Count(lines, "aws:secretKey: [secret sha256:") != 2 {
		t.Errorf("another secret:\n%s", lines)
	}
}

// Whatever users name themselves counts; only keys of Pulumi's own bookkeeping in inputs do not.
func TestKeysThatCount(t *testing.T) {
	const create = `, "newState": {"inputs": {"__defaults": ["a"], "_a": 1, "in": [{"__defaults": [], "b": 2}]}}`
	p, err := Read("gke", false, []byte("config: {'elasticdl:job': {envs: {_A: 3, __B: 4}}}"),
		shown(one("create", "a:b:C", "c", create)))
	if err != nil {
		t.Fatal(err)
	}
	want := []Part{{"settings", []string{"elasticdl:job.envs._A: 3", "elasticdl:job.envs.__B: 4"}},
		{"create a:b:C c", []string{"_a: 1", "in[0].b: 2"}}}
	if !reflect.DeepEqual(p.Parts, want) {
		t.Errorf("%q, want %q", p.Parts, want)
	}
}

func TestRefused(t *testing.T) {
	for _, tt := range []struct{ file, shown, want string }{
		{file, `{"steps": [{"op": "create", "urn": "x"}]}`, "expected an operation of a resource"},
		{file, `{"diagnostics": [{"severity": "error", "message": "no rights"}]}`, "the preview failed: no rights"},
		{file, `Previewing`, "expected what `pulumi preview --json` prints"},
		{file, `{} {}`, "more after the JSON value"},
		{"a: [", `{}`, "read the stack's file"},
	} {
		if p, err := Read("gke", false, []byte(tt.file), []byte(tt.shown)); err == nil ||
			!strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v, expected %s", tt.shown, p, err, tt.want)
		}
	}
	text := read(t, one("create", "a:b:C", "n", "")).String()
	body := "stack gke\nrefresh false\nsettings\n"
	for name, tt := range map[string]struct{ text, want string }{
		"empty":    {"", "expected the digest of a plan"},
		"edited":   {strings.Replace(text, "numWorkers: 3", "numWorkers: 4", 1), "edited or cut"},
		"cut":      {text[:len(text)-3], "edited or cut"},
		"no stack": {"digest " + sum("x\n") + "\nx\n", "names no stack"},
		"no step": {"digest " + sum("stack a\nrefresh false\n    x\n") + "\nstack a\nrefresh false\n    x\n",
			"no step"},
		"another order": {"digest " + sum(body+"b\na\n") + "\n" + body + "b\na\n", "not as `make plan`"},
		"another order of lines": {"digest " + sum(body+"    b\n    a\n") + "\n" + body + "    b\n    a\n",
			"not as `make plan`"},
		"truth": {"digest " + sum("stack a\nrefresh maybe\n") + "\nstack a\nrefresh maybe\n",
			"not as `make plan`"},
	} {
		if p, err := Parse(tt.text); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, %v, expected %s", name, p, err, tt.want)
		}
	}
}

// A value that is not known yet is recognized by a constant of Pulumi.
func TestUnknown(t *testing.T) {
	if unknown != plugin.UnknownStringValue {
		t.Errorf("Pulumi has %s", plugin.UnknownStringValue)
	}
}

// Whatever Pulumi prints, a plan can be read again, is the same then, and has no line of a secret.
func FuzzRead(f *testing.F) {
	f.Add([]byte(file), shown(one("update", "a:b:C", "n", pool)))
	f.Add([]byte("config: {\"a\\nb\": {\"\": [1, {}]}}"), shown(one("create", "a\u2028", " \n    x",
		`, "newState": {"inputs": {"\n": "\n"}}`)))
	f.Fuzz(func(t *testing.T, file, shown []byte) {
		p, err := Read("gke", true, file, shown)
		if err != nil {
			return
		}
		again, err := Parse(p.String())
		if err != nil {
			t.Fatalf("%v\n%s", err, p)
		}
		if lines := p.Differences(again); len(lines) > 0 || p.Digest() != again.Digest() {
			t.Fatalf("read again:\n%s", strings.Join(lines, "\n"))
		}
	})
}

// A text that is no plan is refused, and one that is a plan is that of its lines.
func FuzzParse(f *testing.F) {
	f.Add("stack gke\nrefresh true\nsettings\n    a: 1\ncreate a:b:C n\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, body string) {
		text := digestLine + sum(body) + "\n" + body
		if p, err := Parse(text); err == nil && p.String() != text {
			t.Fatalf("%q is %q", text, p)
		}
	})
}
