package infra

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// program is one that `pulumi up` runs, and how one gets it.
type program struct{ name, get string }

var (
	gcloud   = program{"gcloud", "https://cloud.google.com/sdk/docs/install"}
	gcpAuth  = program{"gke-gcloud-auth-plugin", "gcloud components install gke-gcloud-auth-plugin"}
	aws      = program{"aws", "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html"}
	minikube = program{"minikube", "https://minikube.sigs.k8s.io/docs/start/"}
	kubectl  = program{"kubectl", "https://kubernetes.io/docs/tasks/tools/"}
)

// Programs returns a check for [Load] that reports every program that is needed by what the settings ask for and that find, as
// exec.LookPath, does not find: before anything is made, since the first of them would be missed half way. A preview needs them
// as `up` does, which begins with one; most of them also to reach the cluster that is there.
func Programs(find func(name string) (path string, err error)) func(*Settings) error {
	return func(s *Settings) error {
		var problems []error
		var missing []string
		for _, p := range s.programs() {
			if _, err := find(p.name); err != nil {
				missing = append(missing, fmt.Sprintf("%s (%s)", p.name, p.get))
			}
		}
		if len(missing) > 0 {
			problems = append(problems, fmt.Errorf("%s:cloud: %s needs programs that are not on PATH: %s", s.Project, s.Cloud, strings.Join(missing, ", ")))
		}
		look := func(path, command string) {
			if command == "" {
				return // which the settings' own check has reported
			}
			if !strings.Contains(command, "/") {
				if _, err := find(command); err != nil {
					problems = append(problems, fmt.Errorf("%s:%s: %s is not on PATH, and the stack runs it: make build && export PATH=$PWD/build:$PATH, or give %[2]s: build/elasticdl", s.Project, path, command))
				}
				return
			}
			at := s.Path(filepath.FromSlash(command))
			if _, err := find(at); err != nil {
				problems = append(problems, fmt.Errorf("%s:%s: %s: expected the elasticdl binary, and there is no program %s: make build writes build/elasticdl", s.Project, path, command, at))
			}
		}
		if s.Image != nil {
			look("image.command", s.Image.Command)
		}
		if s.Data != nil && (s.Image == nil || s.Data.Command != s.Image.Command) {
			look("data.command", s.Data.Command)
		}
		return errors.Join(problems...)
	}
}

// programs returns those of the stack's cloud.
func (s *Settings) programs() []program {
	switch {
	case s.GKE != nil && s.Image != nil: // to push it
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
