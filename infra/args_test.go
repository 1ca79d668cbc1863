package infra

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi-kubernetes/sdk/v4/go/kubernetes"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// A stack's arguments have what its settings have: storage is deleted only if it is not protected.
func TestOfStack(t *testing.T) {
	for _, protect := range []bool{true, false} {
		s := &settings.Settings{ProtectStorage: protect, Labels: map[string]string{"a": "b"}, Stack: "dev",
			Budget: &settings.Budget{}, Platform: settings.Platform{Namespace: "n"}, Now: time.Unix(1, 0)}
		a := OfStack(s)
		if a.DeleteStorage == protect || a.Budget != s.Budget || !reflect.DeepEqual(a.Platform, s.Platform) ||
			!reflect.DeepEqual(a.Labels, s.Labels) || !a.Now.Equal(s.Now) || len(a.Images) != 1 ||
			a.Images[0] != s.ImageName() {
			t.Errorf("%+v of %+v", a, s)
		}
		is, err := a.Settings(nil, "blue", settings.CloudGKE, func(*settings.Settings) { t.Error("they change") })
		if is != s || err != nil || !a.IsStack() {
			t.Errorf("%v, %v", is, err)
		}
	}
}

// The arguments of a program become settings with all defaults. Names of clusters that are not
// alone contain theirs.
func TestOfProgram(t *testing.T) {
	in(t, false, func(ctx *pulumi.Context) error {
		for _, yes := range []bool{true, false} {
			a := &ClusterArgs{Alone: yes, DeleteStorage: yes,
				Platform: settings.Platform{Namespace: "training", PriorityClasses: map[string]int32{"night": 1}}}
			s, err := a.Settings(ctx, "blue", settings.CloudExisting, func(s *settings.Settings) {
				s.Existing = &settings.Existing{}
			})
			if err != nil {
				return err
			}
			if s.ProtectStorage == yes || s.Platform.Namespace != "training" ||
				s.Platform.PriorityClasses["night"] != 1 ||
				strings.HasSuffix(s.Base, "-blue") == yes {
				t.Errorf("%+v of %+v", s, a)
			}
		}
		return nil
	})
}

// A program with several platforms shows of which one a hook speaks.
func TestNames(t *testing.T) {
	alone, blue := NewNames("blue", true), NewNames("blue", false)
	if got := []string{alone.Child("a"), blue.Child("a"), alone.Hook("h"), blue.Hook("h")}; !reflect.DeepEqual(got,
		[]string{"a", "blue-a", "h", "blue: h"}) {
		t.Errorf("%q", got)
	}
}

// Look-ups are made by the provider that a component is given, or else by that of its parent:
// others may be of another account.
func TestInvokeOptions(t *testing.T) {
	in(t, false, func(ctx *pulumi.Context) error {
		given, err := kubernetes.NewProvider(ctx, "given", &kubernetes.ProviderArgs{})
		if err != nil {
			return err
		}
		var parent pulumi.ResourceState
		if err := ctx.RegisterComponentResource("test:index:Parent", "parent", &parent); err != nil {
			return err
		}
		for name, test := range map[string]struct {
			opts     []pulumi.ResourceOption
			provider pulumi.ProviderResource
			parent   pulumi.Resource
		}{
			"none":     {nil, nil, nil},
			"a parent": {[]pulumi.ResourceOption{pulumi.Parent(&parent)}, nil, &parent},
			"one":      {[]pulumi.ResourceOption{pulumi.Provider(given)}, given, nil},
			"a list":   {[]pulumi.ResourceOption{pulumi.Providers(given)}, given, nil},
			"both":     {[]pulumi.ResourceOption{pulumi.Provider(given), pulumi.Parent(&parent)}, given, nil},
		} {
			opts, err := InvokeOptions[*kubernetes.Provider](test.opts)
			if err != nil {
				return err
			}
			is, err := pulumi.NewInvokeOptions(opts...)
			if err != nil || is.Provider != test.provider || is.Parent != test.parent {
				t.Errorf("%s: %+v, %v", name, is, err)
			}
		}
		return nil
	})
}
