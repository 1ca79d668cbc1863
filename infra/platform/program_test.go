package platform

import (
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/settings"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// ofProgram returns a cluster that a program describes.
func ofProgram(t *testing.T, of settings.Platform) *infra.Cluster {
	t.Helper()
	s, err := settings.Cluster(settings.Input{Project: "blue", Stack: "dev", Base: "elasticdl-dev-blue", Arch: "amd64"},
		&settings.Settings{Cloud: settings.CloudExisting, Existing: &settings.Existing{}, ProtectStorage: true,
			Platform: of})
	if err != nil {
		t.Fatal(err)
	}
	return &infra.Cluster{Settings: s, ID: pulumi.String("1"), Adopted: true, NetPolicies: true}
}

// Jobs of a program are checked together, with the platform's own section, and a cluster has one
// platform.
func TestPlatformOfAProgram(t *testing.T) {
	digits, hooked := job.Default(), job.Default()
	for name, j := range map[string]*job.Job{"digits": digits, "hooked": hooked} {
		j.Name, j.ModelDef, j.TrainingData = name, "mnist.mnist_functional_api.custom_model", "/data/train"
	}
	plain := settings.Platform{Namespace: "training"}
	problems := func(args *Args) string {
		_, err := graph.Record(graph.Cloud{}, func(ctx *pulumi.Context) error {
			_, err := New(ctx, "blue", args)
			return err
		})
		if err == nil {
			return ""
		}
		return err.Error()
	}
	c := ofProgram(t, plain)
	args := &Args{Cluster: c, Jobs: []*job.Job{digits, hooked}}
	if got := problems(args); got != "" {
		t.Error(got)
	}
	if got := problems(args); !strings.Contains(got, "platform blue: the cluster has a platform already") {
		t.Error(got)
	}
	for _, none := range []*Args{nil, {}, {Cluster: &infra.Cluster{}}} {
		if got := problems(none); !strings.Contains(got, "platform blue: Args.Cluster is missing") {
			t.Error(got)
		}
	}
	plain.Quota = map[string]string{"requests.cpu": "2"}
	args.Cluster = ofProgram(t, plain)
	hooked.NumWorkers = -1
	got := problems(args)
	for _, want := range []string{"blue:job.numWorkers: -1", "blue:platform.quota[\"requests.cpu\"]: 2: "} {
		if !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
