package policy

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/pulumi/pulumi/sdk/v3/go/auto"
	"github.com/pulumi/pulumi/sdk/v3/go/common/tokens"
	"github.com/pulumi/pulumi/sdk/v3/go/common/workspace"
	"github.com/pulumi/pulumi/sdk/v3/go/pulumi"

	"github.com/elasticdl/elasticdl/infra/settings"
)

// stack returns a stack of the real engine, with a program that needs no provider.
func stack(t *testing.T, program pulumi.RunFunc) auto.Stack {
	t.Helper()
	cli, err := filepath.Abs("../../build/tools/pulumi") // make pulumi-tools
	if err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(cli, filepath.Join(root, "bin", "pulumi")); err != nil {
		t.Fatal(err)
	}
	command, err := auto.NewPulumiCommand(&auto.PulumiCommandOptions{Root: root})
	if err != nil {
		t.Fatalf("%v; make pulumi-tools builds it", err)
	}
	s, err := auto.UpsertStackInlineSource(t.Context(), "test", "elasticdl", program,
		auto.Pulumi(command), auto.WorkDir(t.TempDir()), auto.PulumiHome(t.TempDir()),
		auto.SecretsProvider("passphrase"),
		auto.Project(workspace.Project{
			Name: tokens.PackageName("elasticdl"), Runtime: workspace.NewProjectRuntimeInfo("go", nil),
			Backend: &workspace.ProjectBackend{URL: "file://" + t.TempDir()},
		}),
		auto.EnvVars(map[string]string{
			"PULUMI_CONFIG_PASSPHRASE": "of a test", "PULUMI_SKIP_UPDATE_CHECK": "true",
			"PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
		}))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type thing struct {
	pulumi.ResourceState
	Inputs pulumi.MapOutput
}

// ask registers a resource of any type, as a component: the engine needs a provider only for other
// resources.
func ask(ctx *pulumi.Context, kind, name string, inputs pulumi.Map, opts ...pulumi.ResourceOption) (*thing, error) {
	var r thing
	return &r, ctx.RegisterComponentResourceV2(kind, name, inputs, &r, opts...)
}

// crooked returns a program with many violations: in secrets, in lists, and in resources that
// depend on a violation.
func crooked(s *settings.Settings) pulumi.RunFunc {
	return func(ctx *pulumi.Context) error {
		if err := Enforce(ctx, s); err != nil {
			return err
		}
		fs, err := ask(ctx, "aws:efs/fileSystem:FileSystem", "data", pulumi.Map{
			"encrypted": pulumi.ToSecret(pulumi.Bool(false)), "tags": pulumi.StringMap{"team": pulumi.String("ml")},
		})
		if err != nil {
			return err
		}
		_, err = ask(ctx, "aws:ec2/securityGroup:SecurityGroup", "nfs", pulumi.Map{
			"ingress":     pulumi.Array{pulumi.Map{"cidrBlocks": pulumi.StringArray{pulumi.String("0.0.0.0/0")}}},
			"description": fs.URN(), "tags": pulumi.StringMap{"team": pulumi.String("ml")},
		}, pulumi.Parent(fs))
		return err
	}
}

var wrong = []string{
	`policy unencrypted-volume: aws:efs/fileSystem:FileSystem "data": encrypted is not true.`,
	`policy unprotected-storage: aws:efs/fileSystem:FileSystem "data": it is not protected.`,
	`policy open-ingress: aws:ec2/securityGroup:SecurityGroup "nfs": 0.0.0.0/0 is everybody.`,
}

func TestPreviewSaysAllThatIsWrong(t *testing.T) {
	s := stack(t, crooked(&settings.Settings{ProtectStorage: true}))
	result, err := s.Preview(t.Context())
	if err == nil {
		t.Fatalf("a crooked stack is fine: %s", result.StdOut)
	}
	for _, want := range wrong {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing says %s\n%v", want, err)
		}
	}
}

// An update is refused also without a preview, which the Automation API skips.
func TestUpdateMakesNothingWrong(t *testing.T) {
	s := stack(t, crooked(&settings.Settings{ProtectStorage: true}))
	_, err := s.Up(t.Context())
	if err == nil || !strings.Contains(err.Error(), wrong[0]) || !strings.Contains(err.Error(), wrong[1]) {
		t.Errorf("%v, want %s", err, wrong[0])
	}
	state, err := s.Export(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if text := string(state.Deployment); strings.Contains(text, "aws:efs") || strings.Contains(text, "aws:ec2") {
		t.Errorf("it was made: %s", text)
	}
}

func TestAllowed(t *testing.T) {
	s := stack(t, crooked(&settings.Settings{Project: "elasticdl",
		Policy: settings.Policy{Allow: []string{"unencrypted-volume", "open-ingress:nfs"}}}))
	if _, err := s.Preview(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := s.Up(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestUnknownRule(t *testing.T) {
	s := stack(t, crooked(&settings.Settings{Project: "elasticdl",
		Policy: settings.Policy{Allow: []string{"open-ingress", "unencrypted", "x:y"}}}))
	_, err := s.Preview(t.Context())
	if err == nil {
		t.Fatal("rules that there are not are allowed")
	}
	for _, want := range []string{"elasticdl:policy.allow[1]: unencrypted is no rule",
		"elasticdl:policy.allow[2]: x:y is no rule"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("nothing says %s\n%v", want, err)
		}
	}
}

// Every request passes through Enforce unchanged, with all of its options.
func TestEnforceChangesNothing(t *testing.T) {
	states := make([]string, 2)
	for i := range states {
		s := stack(t, func(ctx *pulumi.Context) error {
			if i == 0 {
				if err := Enforce(ctx, &settings.Settings{}); err != nil {
					return err
				}
			}
			outer, err := ask(ctx, "test:index:Outer", "outer",
				pulumi.Map{"secret": pulumi.ToSecret(pulumi.String("s")), "n": pulumi.Float64(1)})
			if err != nil {
				return err
			}
			_, err = ask(ctx, "test:index:Inner", "inner", pulumi.Map{"of": outer.URN()},
				pulumi.Parent(outer), pulumi.DeletedWith(outer),
				pulumi.Protect(true), pulumi.IgnoreChanges([]string{"of"}), pulumi.DependsOn([]pulumi.Resource{outer}))
			return err
		})
		if _, err := s.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		state, err := s.Export(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lines := slices.DeleteFunc(strings.Split(string(state.Deployment), "\n"), func(line string) bool {
			return strings.Contains(line, `"time"`) || strings.Contains(line, `"created"`) ||
				strings.Contains(line, `"modified"`) ||
				strings.Contains(line, `"ciphertext"`) || strings.Contains(line, `"salt"`) ||
				strings.Contains(line, `"magic"`) || strings.Contains(line, `"state"`)
		})
		states[i] = strings.Join(lines, "\n")
		if !strings.Contains(states[i], `"deletedWith"`) {
			t.Errorf("nothing is deleted with another: %s", states[i])
		}
	}
	if states[0] != states[1] {
		t.Errorf("with Enforce the state is\n%s\nand without\n%s", states[0], states[1])
	}
}
