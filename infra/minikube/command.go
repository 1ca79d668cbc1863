package minikube

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// profile is a minikube profile, with the settings of its start.
type profile struct{ settings.Minikube }

// The words that the start command prints on its standard output, which are passed to later
// commands.
const (
	started = "started"
	adopted = "adopted"
)

// notFound is the exit code of minikube status for a profile that does not exist.
const notFound = 85

// flags returns the flags with which a profile is started. Other flags mean another cluster.
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
		// the only container runtime with which minikube passes GPUs to containers
		add("--container-runtime", "docker")
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

// manners has the flags of every start: ask no questions, do not change kubectl's context, wait
// until the cluster is ready.
const manners = "--keep-context --interactive=false --wait=all"

// own starts the commands on a profile that the stack started: its context is in kubectl's default
// file, even if KUBECONFIG names another file now, such as the one with the stack's kubeconfig.
const own = "unset KUBECONFIG\n"

// create returns the script that starts the profile, or adopts the existing one. minikube's output
// goes to standard error. A start that fails deletes the profile, so that the next one does not
// find a profile that exists already.
func (p *profile) create() string {
	name := quote(p.Profile)
	find := "command -v minikube >/dev/null || { echo 'minikube is not on PATH: see " +
		"https://minikube.sigs.k8s.io/docs/start' >&2; exit 127; }\n" +
		"code=0; minikube status -p " + name + " >/dev/null 2>&1 || code=$?\n"
	if p.Adopt {
		return find + fmt.Sprintf(`[ $code -ne %d ] || { echo %s >&2; exit 1; }
[ $code -eq 0 ] || minikube start -p %s %s >&2 || exit $?
printf %s
`, notFound, quote("minikube.adopt: true: there is no profile "+p.Profile+
			"; start it, or set minikube.adopt: false"), name, manners, adopted)
	}
	there := quote("minikube.profile: " + p.Profile +
		" already exists, and is not of this stack: set minikube.adopt: true, or give another name, " +
		"or delete it: minikube delete -p " + p.Profile)
	script := find + fmt.Sprintf("[ $code -eq %d ] || { echo %s >&2; exit 1; }\n", notFound, there)
	if p.Data != "" {
		script += fmt.Sprintf("[ -d %s ] || { echo %s >&2; exit 1; }\n", quote(p.Data),
			quote("minikube.data: "+p.Data+": there is no such directory"))
	}
	return own + script + fmt.Sprintf("minikube start %s %s >&2 || { code=$?; minikube delete -p %s "+
		">&2; exit $code; }\nprintf %s\n", p.flags(), manners, name, started)
}

// update returns the script that runs when no flag has changed, but the owner may have. The stack
// may give up a profile that it started, which is then an adopted one; it cannot come to own a
// profile that it adopted.
func (p *profile) update() string {
	if p.Adopt {
		return p.create()
	}
	const owned = `minikube.adopt: false: the stack did not start the profile, and would not delete it: leave it true, or start another one by another minikube.profile`
	return fmt.Sprintf("[ \"$PULUMI_COMMAND_STDOUT\" = %s ] || { echo %s >&2; exit 1; }\nprintf %s\n",
		started, quote(owned), started)
}

// delete returns the script that deletes the profile if the stack started it. minikube does not
// fail if the profile is deleted already.
func (p *profile) delete() string {
	return own + fmt.Sprintf("[ \"$PULUMI_COMMAND_STDOUT\" != %s ] || minikube delete -p %s >&2\n",
		started, quote(p.Profile))
}

// view returns the script that prints the kubeconfig of the profile alone, with its certificates
// and key. An adopted profile may be in the default file or in KUBECONFIG.
func (p *profile) view() string {
	view := "kubectl config view --minify --flatten --context=" + quote(p.Profile)
	if p.Adopt {
		return view + " 2>/dev/null || { " + strings.TrimSpace(own) + "; " + view + "; }\n"
	}
	return own + view + "\n"
}

// quote returns any text as one word of the shell.
func quote(s string) string {
	if plain.MatchString(s) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

var plain = regexp.MustCompile(`^[-A-Za-z0-9_@%+=:,./]+$`)
