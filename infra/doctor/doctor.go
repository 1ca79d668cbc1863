// Package doctor lists what a stack still lacks before its first `pulumi up`: programs, settings,
// credentials, permissions and quotas. It decides by the answers of the programs that users have
// anyway: pulumi, gcloud, aws and kubectl. It changes nothing.
//
// Laws:
//
//  1. Everything that is missing is reported at once, each with the command or setting that cures
//     it.
//  2. A question that has no answer, because a program or a right is missing, is reported as such,
//     and never as passed.
package doctor

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// Machine is the machine of the user.
type Machine struct {
	// Find returns the path of a program, as exec.LookPath does.
	Find func(program string) (path string, err error)
	// Run returns what a program prints; its error has the last line of the program's errors.
	Run func(program string, args ...string) (string, error)
	// Env returns a variable of the environment.
	Env func(name string) string
	// MemoryGB is the free memory in GiB; 0 = not known.
	MemoryGB float64
}

// State is the result of a check.
type State string

// States of checks.
const (
	OK      State = "ok"
	Missing State = "MISSING" // `pulumi up` would fail
	Unknown State = "unknown" // it could not be asked
	Note    State = "note"    // it works, and the user may want to know
)

// Finding is a check, and its result.
type Finding struct {
	State State
	Name  string
	Text  string
	Cure  string // "" = none is needed
}

// String returns one line, and a second one with the cure.
func (f Finding) String() string {
	text := fmt.Sprintf("%-8s %s", f.State, f.Name)
	if f.Text != "" {
		text += ": " + f.Text
	}
	if f.Cure != "" {
		text += "\n         -> " + f.Cure
	}
	return text
}

// examination collects findings.
type examination struct {
	Machine
	all []Finding
}

func (e *examination) say(state State, name, cure, format string, args ...any) {
	if state == OK {
		cure = ""
	}
	e.all = append(e.all, Finding{state, name, fmt.Sprintf(format, args...), cure})
}

// unasked reports questions that could not be asked.
func (e *examination) unasked(why string, names ...string) {
	for _, name := range names {
		e.say(Unknown, name, "", "not asked: %s", why)
	}
}

// has reports whether a program is installed.
func (e *examination) has(program string) bool {
	_, err := e.Find(program)
	return err == nil
}

// Examine checks a machine for a stack: its settings as far as they could be read, and the error
// with their problems.
func Examine(m Machine, stack string, s *settings.Settings, wrong error) []Finding {
	e := &examination{Machine: m}
	e.machine()
	e.pulumi(stack)
	if wrong != nil {
		for line := range strings.Lines(wrong.Error()) {
			e.say(Missing, "setting", "", "%s", strings.TrimSpace(line))
		}
	} else {
		e.say(OK, "settings", "", "stacks/Pulumi.%s.yaml", stack)
	}
	switch {
	case s.GKE != nil:
		e.google(s)
	case s.EKS != nil:
		e.amazon(s)
	case s.Existing != nil:
		e.cluster(s)
	case s.Minikube != nil && !e.has("minikube"):
		e.say(Missing, "minikube", "https://minikube.sigs.k8s.io/docs/start/", "it is not on PATH")
	}
	return e.all
}

// needGB is the free memory that the compiler takes for the program of the stacks.
const needGB = 2

func (e *examination) machine() {
	for program, get := range map[string]string{
		"go": "https://go.dev/doc/install", "kubectl": "https://kubernetes.io/docs/tasks/tools/",
		"pulumi": "https://www.pulumi.com/docs/install/", "elasticdl": "make build && export PATH=$PWD/build:$PATH",
	} {
		if !e.has(program) {
			e.say(Missing, program, get, "it is not on PATH")
		}
	}
	slices.SortFunc(e.all, func(a, b Finding) int { return strings.Compare(a.Name, b.Name) })
	if e.MemoryGB > 0 && e.MemoryGB < needGB {
		e.say(Missing, "memory", "close other programs", "%.1f GiB are free, and the compiler takes up to %d for the "+
			"program of the stacks", e.MemoryGB, needGB)
	}
}

// least is the oldest version of Pulumi with all that the program uses, as in Pulumi.yaml.
const least = "3.184.0"

func (e *examination) pulumi(stack string) {
	if !e.has("pulumi") {
		e.unasked("pulumi is missing", "state", "stack")
		return
	}
	version, err := e.Run("pulumi", "version")
	switch version = strings.TrimPrefix(strings.TrimSpace(version), "v"); {
	case err != nil:
		e.say(Unknown, "pulumi", "", "%v", err)
	case older(version, least):
		e.say(Missing, "pulumi", "https://www.pulumi.com/docs/install/", "%s is installed, and %s or later is needed",
			version, least)
	default:
		e.say(OK, "pulumi", "", "%s", version)
	}
	user, err := e.Run("pulumi", "whoami", "--non-interactive")
	if err != nil {
		e.say(Missing, "state", "pulumi login --local, or with a bucket: docs/infrastructure/ci.md", "no login: %v",
			err)
		e.unasked("there is no login of Pulumi", "stack")
		return
	}
	e.say(OK, "state", "", "logged in as %s", strings.TrimSpace(user))
	list, err := e.Run("pulumi", "stack", "ls", "--json", "--non-interactive")
	var stacks []struct{ Name string }
	if err == nil {
		err = json.Unmarshal([]byte(list), &stacks)
	}
	there := slices.ContainsFunc(stacks, func(s struct{ Name string }) bool {
		return s.Name == stack || strings.HasSuffix(s.Name, "/"+stack)
	})
	switch {
	case err != nil:
		e.say(Unknown, "stack", "", "%v", err)
	case !there:
		e.say(Missing, "stack", "pulumi stack init "+stack, "there is no stack %s", stack)
	default:
		e.say(OK, "stack", "", "%s", stack)
	}
	if e.Env("PULUMI_CONFIG_PASSPHRASE") == "" && e.Env("PULUMI_CONFIG_PASSPHRASE_FILE") == "" {
		e.say(Note, "passphrase", "export PULUMI_CONFIG_PASSPHRASE=…",
			"none is set: Pulumi asks for it, unless the stack has a key of a cloud")
	}
}

// errorMark begins a line with an error of a program: "ERROR: (gcloud.projects.describe) ".
var errorMark = regexp.MustCompile(`^(?i:error: *)?(\(gcloud[-.a-z]*\) *)?`)

// Cause returns the last line of a program's errors, without what marks it as one.
func Cause(stderr string) string {
	lines := strings.Split(strings.TrimSpace(stderr), "\n")
	return errorMark.ReplaceAllString(strings.TrimSpace(lines[len(lines)-1]), "")
}

// older reports whether a version is older than another.
func older(version, than string) bool {
	a, b := strings.Split(version, "."), strings.Split(than, ".")
	for i := range b {
		if i >= len(a) {
			return true
		}
		x, errX := strconv.Atoi(strings.TrimFunc(a[i], func(r rune) bool { return r < '0' || r > '9' }))
		y, errY := strconv.Atoi(b[i])
		if errX != nil || errY != nil {
			return false
		}
		if x != y {
			return x < y
		}
	}
	return false
}
