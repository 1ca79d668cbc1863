package minikube

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// profile is a cluster as minikube calls it, and how it is started.
type profile struct{ settings.Minikube }

// What the start command says on its standard output, which later commands are told.
const (
	started = "started"
	adopted = "adopted"
)

// notFound is the exit code of minikube status for a profile that there is none of.
const notFound = 85

// flags returns how a profile is started: other flags, another cluster.
func (p *profile) flags() string {
	flags := []string{"-p", p.Profile}
	add := func(flag, value string) {
		if value != "" {
			flags = append(flags, flag+"="+value)
		}
	}
	add("--driver", p.Driver)
	add("--cpus", number(p.CPUs, ""))
	add("--memory", number(p.MemoryMB, "mb"))
	add("--disk-size", number(p.DiskGB, "g"))
	add("--kubernetes-version", p.KubernetesVersion)
	add("--cni", p.CNI)
	if p.GPUs != "" {
		add("--gpus", p.GPUs)
		add("--container-runtime", "docker") // the only one with which minikube hands GPUs on
	}
	if p.Data != "" {
		flags = append(flags, "--mount", "--mount-string="+p.Data+":"+data)
	}
	for i, f := range flags {
		flags[i] = quote(f)
	}
	return strings.Join(flags, " ")
}

func number(n int, unit string) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n) + unit
}

// manners are flags of every start: no questions, no change of kubectl's context, wait until the cluster is ready.
const manners = "--keep-context --interactive=false --wait=all"

// own is for commands on a profile of the stack's own: its context is in kubectl's usual file, whatever file kubectl reads
// meanwhile, as the one that the stack's kubeconfig was written to.
const own = "unset KUBECONFIG\n"

// create starts the profile, or takes over the one that there is. What minikube says goes to standard error. A start that
// fails leaves nothing, so that the next one is not told that there is a profile already.
func (p *profile) create() string {
	name := quote(p.Profile)
	find := "command -v minikube >/dev/null || { echo 'minikube is not on PATH: see https://minikube.sigs.k8s.io/docs/start' >&2; exit 127; }\n" +
		"code=0; minikube status -p " + name + " >/dev/null 2>&1 || code=$?\n"
	if p.Adopt {
		return find + fmt.Sprintf(`[ $code -ne %d ] || { echo %s >&2; exit 1; }
[ $code -eq 0 ] || minikube start -p %s %s >&2 || exit $?
printf %s
`, notFound, quote("minikube.adopt: true: there is no profile "+p.Profile+"; start it, or set minikube.adopt: false"), name, manners, adopted)
	}
	there := quote("minikube.profile: " + p.Profile + " is there already, and not of this stack: set minikube.adopt: true, or give another name, or delete it: minikube delete -p " + p.Profile)
	script := find + fmt.Sprintf("[ $code -eq %d ] || { echo %s >&2; exit 1; }\n", notFound, there)
	if p.Data != "" {
		script += fmt.Sprintf("[ -d %s ] || { echo %s >&2; exit 1; }\n", quote(p.Data), quote("minikube.data: "+p.Data+": there is no such directory"))
	}
	return own + script + fmt.Sprintf("minikube start %s %s >&2 || { code=$?; minikube delete -p %s >&2; exit $code; }\nprintf %s\n", p.flags(), manners, name, started)
}

// update runs when no flag has changed: whose profile it is may have. What the stack started it may give away, to be adopted as
// any other; what it adopted it cannot come to own.
func (p *profile) update() string {
	if p.Adopt {
		return p.create()
	}
	const owned = `minikube.adopt: false: the stack did not start the profile, and would not delete it: leave it true, or start another one by another minikube.profile`
	return fmt.Sprintf("[ \"$PULUMI_COMMAND_STDOUT\" = %s ] || { echo %s >&2; exit 1; }\nprintf %s\n", started, quote(owned), started)
}

// delete ends the profile if the stack started it. One that is gone already is no error to minikube.
func (p *profile) delete() string {
	return own + fmt.Sprintf("[ \"$PULUMI_COMMAND_STDOUT\" != %s ] || minikube delete -p %s >&2\n", started, quote(p.Profile))
}

// view prints the kubeconfig of the profile alone, with its certificates and key in it. An adopted one may be in either file.
func (p *profile) view() string {
	view := "kubectl config view --minify --flatten --context=" + quote(p.Profile)
	if p.Adopt {
		return view + " 2>/dev/null || { " + strings.TrimSpace(own) + "; " + view + "; }\n"
	}
	return own + view + "\n"
}

// quote makes one word of the shell of any text.
func quote(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

var plain = regexp.MustCompile(`^[-A-Za-z0-9_@%+=:,./]+$`)
