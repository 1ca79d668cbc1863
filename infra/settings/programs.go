package settings

import (
	"fmt"
	"path/filepath"
	"strings"
)

// program is a program that `pulumi up` runs, and how to install it.
type program struct{ name, get string }

var (
	gcloud   = program{"gcloud", "https://cloud.google.com/sdk/docs/install"}
	gcpAuth  = program{"gke-gcloud-auth-plugin", "gcloud components install gke-gcloud-auth-plugin"}
	aws      = program{"aws", "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html"}
	minikube = program{"minikube", "https://minikube.sigs.k8s.io/docs/start/"}
	kubectl  = program{"kubectl", "https://kubernetes.io/docs/tasks/tools/"}
)

// Programs returns a check that every program which the stack runs is installed. find looks up a
// program, as exec.LookPath does. A preview needs the same programs as `up`, which begins with a
// preview; most of them are also used to reach an existing cluster.
func Programs(find func(name string) (path string, err error)) Check {
	return func(s *Settings, p *Problems) {
		var missing []string
		for _, o := range s.programs() {
			if _, err := find(o.name); err != nil {
				missing = append(missing, fmt.Sprintf("%s (%s)", o.name, o.get))
			}
		}
		p.Check(len(missing) == 0, "cloud", "%s needs programs that are not on PATH: %s", s.Cloud,
			strings.Join(missing, ", "))
		look := func(path, command string) {
			if command == "" {
				return // the settings' own check has reported it
			}
			if !strings.Contains(command, "/") {
				_, err := find(command)
				p.Check(err == nil, path,
					"%s is not on PATH, and the stack runs it: make build && export "+
						"PATH=$PWD/build:$PATH, or give %s: build/elasticdl", command, path)
				return
			}
			at := s.Path(filepath.FromSlash(command))
			_, err := find(at)
			p.Check(err == nil, path,
				"%s: expected the elasticdl binary, and there is no program %s: make build writes "+
					"build/elasticdl", command, at)
		}
		if s.Image != nil {
			look("image.command", s.Image.Command)
		}
		if s.Data != nil && (s.Image == nil || s.Data.Command != s.Image.Command) {
			look("data.command", s.Data.Command)
		}
	}
}

// programs returns the programs that the stack's cloud needs.
func (s *Settings) programs() []program {
	switch {
	case s.GKE != nil && s.Image != nil: // needed to push the image
		return []program{gcloud, gcpAuth}
	case s.GKE != nil:
		return []program{gcpAuth}
	case s.EKS != nil:
		return []program{aws}
	case s.Minikube != nil:
		return []program{minikube, kubectl}
	}
	return nil
}
