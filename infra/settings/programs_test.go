package settings

import (
	"errors"
	"strings"
	"testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// All missing programs are reported at once, each with how to install it, and no program that the
// settings do not need.
func TestPrograms(t *testing.T) {
	image, data := &Image{Command: "elasticdl"}, &Data{Command: "elasticdl"}
	for _, test := range []struct {
		name  string
		s     Settings
		there string
		want  string
	}{
		{"all there", Settings{Cloud: CloudGKE, GKE: &GKE{}, Image: image, Data: data},
			"gcloud gke-gcloud-auth-plugin elasticdl", ""},
		{"none there", Settings{Cloud: CloudGKE, GKE: &GKE{}, Image: image, Data: data}, "",
			"elasticdl:cloud: gke needs programs that are not on PATH: gcloud " +
				"(https://cloud.google.com/sdk/docs/install), gke-gcloud-auth-plugin (gcloud " +
				"components install gke-gcloud-auth-plugin)\n" +
				"elasticdl:image.command: elasticdl is not on PATH, and the stack runs it: make " +
				"build && export PATH=$PWD/build:$PATH, or give image.command: build/elasticdl"},
		{"nothing to push", Settings{Cloud: CloudGKE, GKE: &GKE{}, Job: &job.Job{}}, "",
			"elasticdl:cloud: gke needs programs that are not on PATH: gke-gcloud-auth-plugin " +
				"(gcloud components install gke-gcloud-auth-plugin)"},
		{"eks", Settings{Cloud: CloudEKS, EKS: &EKS{}, Data: data}, "",
			"elasticdl:cloud: eks needs programs that are not on PATH: aws " +
				"(https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html)\n" +
				"elasticdl:data.command: elasticdl is not on PATH, and the stack runs it: make " +
				"build && export PATH=$PWD/build:$PATH, or give data.command: build/elasticdl"},
		{"minikube", Settings{Cloud: CloudMinikube, Minikube: &Minikube{}}, "kubectl",
			"elasticdl:cloud: minikube needs programs that are not on PATH: minikube " +
				"(https://minikube.sigs.k8s.io/docs/start/)"},
		{"by a path", Settings{Cloud: CloudMinikube, Minikube: &Minikube{},
			Image: &Image{Command: "build/elasticdl"}, Data: &Data{Command: "/opt/elasticdl"}},
			"kubectl minikube /opt/elasticdl",
			"elasticdl:image.command: build/elasticdl: expected the elasticdl binary, and there is " +
				"no program /repo/build/elasticdl: make build writes build/elasticdl"},
		{"by a path, there", Settings{Cloud: CloudMinikube, Minikube: &Minikube{},
			Image: &Image{Command: "build/elasticdl"}}, "kubectl minikube /repo/build/elasticdl", ""},
	} {
		test.s.Project, test.s.Root = "elasticdl", "/repo"
		err := test.s.Verify(Programs(func(name string) (string, error) {
			for there := range strings.FieldsSeq(test.there) {
				if there == name {
					return "/bin/" + name, nil
				}
			}
			return "", errors.New("no")
		}))
		if err == nil {
			err = errors.New("")
		}
		if err.Error() != test.want {
			t.Errorf("%s: %v\nwant %s", test.name, err, test.want)
		}
	}
}
