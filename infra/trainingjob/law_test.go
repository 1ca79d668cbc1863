package trainingjob

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/common/resource"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra"
	"github.com/elasticdl/elasticdl/infra/platform"
	"github.com/elasticdl/elasticdl/test/graph"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
)

// plain returns arguments of a job on a cluster.
func plain(t *testing.T, c *infra.Cluster) *Args {
	return &Args{Platform: &platform.Platform{Cluster: c},
		Job: mnist(t, "--worker_resource_request=cpu=1,memory=1Gi")}
}

// The outputs name the job, and are commands that a user may copy.
func TestOutputs(t *testing.T) {
	var got []any
	_, err := graph.Record(graph.Cloud{}, func(ctx *pulumi.Context) error {
		made, err := New(ctx, "test-mnist", plain(t, &infra.Cluster{}))
		if err != nil {
			return err
		}
		all := pulumi.All(made.Master, made.Dashboard, made.Logs, made.Status)
		ctx.Export("all", all.ApplyT(func(all []any) string {
			got = all
			return ""
		}))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	const master = "elasticdl-test-mnist-master"
	if len(got) != 4 || got[0] != master || got[1] == "" || got[2] != "kubectl logs -f "+master+" -n training" ||
		got[3] != "elasticdl status test-mnist --namespace=training" {
		t.Errorf("%q", got)
	}
}

// A job without an identity of the program's gets one from its cluster, which names the account of
// that job alone.
func TestIdentityOfTheCluster(t *testing.T) {
	var asked []infra.Account
	c := &infra.Cluster{Identify: func(_ string, of infra.Account) (*infra.Identity, error) {
		asked = append(asked, of)
		return &infra.Identity{Annotations: map[string]pulumi.StringOutput{
			"role": pulumi.String("reader").ToStringOutput()}}, nil
	}}
	all, err := graph.Record(graph.Cloud{}, func(ctx *pulumi.Context) error {
		_, err := New(ctx, "test-mnist", plain(t, c))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want := infra.Account{Job: "test-mnist", Namespace: "training", Name: "elasticdl-test-mnist"}
	if len(asked) != 1 || asked[0] != want {
		t.Errorf("it is asked for %+v, want %+v", asked, want)
	}
	if role := annotation(*graph.Find(all, kindAccount, "test-mnist"), "role"); role != "reader" {
		t.Errorf("the job has the role %q", role)
	}
	c.Identify = func(string, infra.Account) (*infra.Identity, error) { return nil, errors.New("no such role") }
	if _, err := graph.Record(graph.Cloud{}, func(ctx *pulumi.Context) error {
		_, err := New(ctx, "test-mnist", plain(t, c))
		return err
	}); err == nil {
		t.Error("a job without its identity is started")
	}
}

// Pods pull the image that the program builds, or else that of the job, each by its own policy.
func TestPulled(t *testing.T) {
	a := &Args{Job: &job.Job{Image: "theirs", ImagePullPolicy: "Never"}, PullPolicy: "Always"}
	if image, policy := a.Pulled(); image != pulumi.String("theirs") || policy != "Never" {
		t.Errorf("%v, %s", image, policy)
	}
	a.Image = pulumi.String("built")
	if image, policy := a.Pulled(); image != pulumi.String("built") || policy != "Always" {
		t.Errorf("%v, %s", image, policy)
	}
}

// Only spec.suspend: true suspends a job.
func TestSuspends(t *testing.T) {
	type object = map[string]any
	for _, test := range []struct {
		job  object
		want bool
	}{{object{"spec": object{"suspend": true}}, true}, {object{"spec": object{"suspend": false}}, false},
		{object{"spec": object{}}, false}, {object{}, false}, {object{"spec": object{"suspend": "true"}}, false}} {
		if got := suspends(resource.NewPropertyMapFromMap(test.job)); got != test.want {
			t.Errorf("%v: %t", test.job, got)
		}
	}
}

// An update waits for a job that it has created, and no longer than the setting. A preview, and an
// update that changes no job, wait for nothing.
func TestAwait(t *testing.T) {
	for name, test := range map[string]struct {
		preview, created bool
		least, most      int
	}{"created": {false, true, 1, 3}, "as it was": {false, false, 0, 0}, "a preview": {true, true, 0, 0}} {
		_, err := graph.Record(graph.Cloud{Preview: test.preview}, func(ctx *pulumi.Context) error {
			pauses := 0
			s := &starter{ctx: ctx, most: 3 * lookEvery, name: "digits", namespace: "training",
				pause: func(context.Context, time.Duration) error {
					pauses++
					return nil
				}}
			s.created.Store(test.created)
			if err := s.await(); err != nil || pauses < test.least || pauses > test.most {
				t.Errorf("%s: %d pauses, %v", name, pauses, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
