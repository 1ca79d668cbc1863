package policy

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/elasticdl/elasticdl/infra/settings"
)

type workflow struct {
	On          map[string]any    `json:"true"` // YAML reads the key `on` as true
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]struct {
		If          string            `json:"if"`
		Needs       string            `json:"needs"`
		Environment string            `json:"environment"`
		Permissions map[string]string `json:"permissions"`
		Concurrency struct {
			Group  string `json:"group"`
			Cancel bool   `json:"cancel-in-progress"`
		} `json:"concurrency"`
		Strategy struct {
			Matrix struct {
				Stack  any      `json:"stack"` // a list, or an expression
				Target []string `json:"target"`
			} `json:"matrix"`
		} `json:"strategy"`
		Steps []struct {
			If   string            `json:"if"`
			Uses string            `json:"uses"`
			Run  string            `json:"run"`
			With map[string]any    `json:"with"`
			Env  map[string]string `json:"env"`
		} `json:"steps"`
	} `json:"jobs"`
}

func readWorkflow(t *testing.T, name string) (w workflow, doc string) {
	t.Helper()
	raw, err := os.ReadFile("../../.github/workflows/" + name)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(raw, &w); err != nil {
		t.Fatal(err)
	}
	return w, string(raw)
}

// Every stack is previewed; the stacks of a cloud are also brought up, after an approval.
func TestWorkflowHasAllStacks(t *testing.T) {
	w, _ := readWorkflow(t, "preview.yml")
	files, err := filepath.Glob("../../stacks/Pulumi.*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var stacks []string
	for _, f := range files {
		stacks = append(stacks, strings.TrimSuffix(strings.TrimPrefix(filepath.Base(f), "Pulumi."), ".yaml"))
	}
	preview, up := w.Jobs["preview"], w.Jobs["up"]
	local := fmt.Sprint(w.Jobs["local"].Strategy.Matrix.Stack)
	expression := regexp.MustCompile(`^\$\{\{ fromJSON\(vars\.STACKS \|\| '\[(.*)\]'\) \}\}$`)
	byDefault := expression.FindStringSubmatch(fmt.Sprint(preview.Strategy.Matrix.Stack))
	if byDefault == nil {
		t.Fatalf("previews of %v", preview.Strategy.Matrix.Stack)
	}
	for _, stack := range stacks {
		if !strings.Contains(local+" "+byDefault[1], stack) {
			t.Errorf("previews of %s and %s, and not of %s", local, byDefault[1], stack)
		}
	}
	for _, job := range []string{"plan", "up", "drift"} {
		if got := w.Jobs[job].Strategy.Matrix.Stack; got != preview.Strategy.Matrix.Stack {
			t.Errorf("%s of %v, previews of %v", job, got, preview.Strategy.Matrix.Stack)
		}
	}
	for _, job := range []string{"plan", "drift"} {
		if got := w.Jobs[job].Environment; got != preview.Environment {
			t.Errorf("%s in %s", job, got)
		}
	}
	if up.Environment != "${{ matrix.stack }}" || preview.Environment != "${{ matrix.stack }}-preview" {
		t.Errorf("up is in the environment %q and previews in %q: reviewers are of the first, and "+
			"need not look at the other", up.Environment, preview.Environment)
	}
	if c := up.Concurrency; !strings.Contains(c.Group, "matrix.stack") || c.Cancel ||
		c.Group == preview.Concurrency.Group {
		t.Errorf("up has %+v: one at a time for each stack, none cancelled by a newer one or by a preview", c)
	}
}

// Code that is not reviewed gets no credentials that are worth stealing.
func TestWorkflowCredentials(t *testing.T) {
	w, doc := readWorkflow(t, "preview.yml")
	for event := range w.On {
		if !slices.Contains([]string{"pull_request", "push", "schedule", "workflow_dispatch"}, event) {
			t.Errorf("on %s: code of forks would run with credentials, or without a review", event)
		}
	}
	if push, _ := w.On["push"].(map[string]any); !slices.Equal(push["branches"].([]any), []any{"main"}) {
		t.Errorf("on push to %v, want main", push["branches"])
	}
	if !maps.Equal(w.Permissions, map[string]string{"contents": "read"}) {
		t.Errorf("everything may %v, want contents: read", w.Permissions)
	}
	want := map[string]map[string]string{
		"local":   nil,
		"preview": {"contents": "read", "id-token": "write", "pull-requests": "write"},
		"plan":    {"actions": "read", "contents": "read", "id-token": "write", "pull-requests": "read"},
		"up":      {"contents": "read", "id-token": "write"},
		"drift":   {"contents": "read", "id-token": "write", "issues": "write"},
	}
	for name, j := range w.Jobs {
		if !maps.Equal(j.Permissions, want[name]) {
			t.Errorf("%s may %v, want %v", name, j.Permissions, want[name])
		}
	}
	if cond := w.Jobs["preview"].If; !strings.Contains(cond,
		"github.event.pull_request.head.repo.full_name == github.repository") {
		t.Errorf("forks have previews with credentials: %s", cond)
	}
	if cond := w.Jobs["drift"].If; strings.Contains(cond, "pull_request") {
		t.Errorf("drift if %s", cond)
	}
	if cond := w.Jobs["up"].If; !strings.Contains(cond, "github.event_name == 'push'") {
		t.Errorf("up if %s", cond)
	}
	for _, key := range []string{"credentials_json", "aws-access-key-id", "aws-secret-access-key", "ACCESS_KEY"} {
		if strings.Contains(doc, key) {
			t.Errorf("%s is a key that lasts, instead of OIDC", key)
		}
	}
	begin, end := strings.Index(doc, "\n  local:"), strings.Index(doc, "\n  preview:")
	if job := doc[begin:end]; strings.Contains(job, "secrets.") || strings.Contains(job, "vars.") {
		t.Errorf("the job for forks uses secrets or variables of the repository:\n%s", job)
	}
}

// The author of a stack may have committed the settings of its secrets' encryption. The workflow
// has no access to that key, and removes them.
func TestWorkflowForgetsKeys(t *testing.T) {
	w, _ := readWorkflow(t, "preview.yml")
	dir := t.TempDir()
	file := filepath.Join(dir, "stacks", "Pulumi.minikube.yaml")
	const is = "config:\n  elasticdl:cloud: minikube # encryptionsalt: is no key here\n"
	if err := errors.Join(os.Mkdir(filepath.Dir(file), 0o755),
		os.WriteFile(file, []byte("secretsprovider: awskms://alias/pulumi\nencryptedkey: "+
			"AQ==\nencryptionsalt: v1:AA==:v1:BB==:CC==\n"+is), 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, s := range w.Jobs["local"].Steps {
		if !strings.Contains(s.Run, "encryptionsalt") {
			continue
		}
		run := exec.Command("sh", "-ec", strings.ReplaceAll(s.Run, "${{ matrix.stack }}", "minikube"))
		run.Dir = dir
		if out, err := run.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", s.Run, err, out)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != is {
		t.Errorf("%v\n%s", err, text)
	}
}

// The stack that pull requests preview on an empty cluster is valid, and needs nothing of others.
func TestWorkflowStack(t *testing.T) {
	text, err := os.ReadFile("../../.github/Pulumi.existing.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config, _, err := settings.FromFile(text)
	if err != nil {
		t.Fatal(err)
	}
	s, err := settings.Parse(settings.Input{Project: "elasticdl", Stack: "existing", Root: "../..", Config: config,
		Stat: func(path string) (bool, error) {
			info, err := os.Stat(path)
			return err == nil && info.IsDir(), err
		}}, Known)
	if err != nil {
		t.Fatal(err)
	}
	if s.Existing == nil || s.Existing.Context != "" || s.Platform.ShareNamespace ||
		len(s.Platform.SharePriorityClasses) > 0 {
		t.Errorf("an empty cluster has not what this needs: %+v", s)
	}
}

// The workflow refuses a kubeconfig with a key in it, which a variable would show.
func TestWorkflowKubeconfig(t *testing.T) {
	w, _ := readWorkflow(t, "preview.yml")
	var script string
	for _, s := range w.Jobs["up"].Steps {
		if strings.Contains(s.Run, "$CONFIG") {
			script = s.Run
		}
	}
	for config, ok := range map[string]bool{
		"users:\n- name: u\n  user:\n    exec:\n      args: [get-token]\n": true,
		"users:\n- name: u\n  user:\n    token: abc\n":                     false,
		"users:\n- name: u\n  user:\n    client-key-data: abc\n":           false,
	} {
		dir := t.TempDir()
		run := exec.Command("bash", "-ec", script)
		run.Env = append(os.Environ(), "CONFIG="+config, "RUNNER_TEMP="+dir, "GITHUB_ENV="+filepath.Join(dir, "env"))
		if out, err := run.CombinedOutput(); (err == nil) != ok {
			t.Errorf("%q: %v\n%s", config, err, out)
		}
		if env, err := os.ReadFile(filepath.Join(dir, "env")); (err == nil) != ok || ok &&
			string(env) != "KUBECONFIG="+dir+"/kubeconfig\n" {
			t.Errorf("%q: %q, %v", config, env, err)
		}
	}
}

// Pulumi's action only previews. Only the look for drift reads every resource, and fails if there
// is a difference.
func TestWorkflowCommands(t *testing.T) {
	w, _ := readWorkflow(t, "preview.yml")
	for _, job := range []string{"preview", "plan", "drift"} {
		found := false
		for _, s := range w.Jobs[job].Steps {
			if !strings.HasPrefix(s.Uses, "pulumi/actions@") || s.If == "github.job == 'up'" {
				continue
			}
			found = true
			for key, want := range map[string]string{
				"command":           "preview",
				"refresh":           "${{ github.job == 'drift' }}",
				"expect-no-changes": "${{ github.job == 'drift' }}",
			} {
				if s.With[key] != want {
					t.Errorf("%s: %s is %v, want %s", job, key, s.With[key], want)
				}
			}
		}
		if !found {
			t.Errorf("%s does not run Pulumi", job)
		}
	}
}

func TestWorkflowTools(t *testing.T) {
	w, doc := readWorkflow(t, "preview.yml")
	if !strings.Contains(doc, "gke-gcloud-auth-plugin") || !strings.Contains(doc, "aws --version") {
		t.Error("a preview without the commands of the kubeconfigs says nothing of what is in the cluster")
	}
	mod, err := os.ReadFile("../../tools/pulumi/go.mod")
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`github.com/pulumi/pulumi/pkg/v3 v(\S+)`).FindStringSubmatch(string(mod))
	if version == nil {
		t.Fatal("tools/pulumi has no Pulumi")
	}
	page, err := os.ReadFile("../../docs/infrastructure/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, j := range w.Jobs {
		has := false
		for _, s := range j.Steps {
			has = has || strings.Contains(s.Run, "bin/elasticdl\" ./cmd/elasticdl") &&
				strings.Contains(s.Run, "GITHUB_PATH")
			if strings.HasPrefix(s.Uses, "pulumi/actions@") && !has {
				t.Errorf("%s has no elasticdl on PATH, without which the program refuses the stack", name)
			}
			action, _, _ := strings.Cut(s.Uses, "@")
			// The default of one hour may end before an `up` does.
			if seconds := fmt.Sprint(
				s.With["role-duration-seconds"]); action == "aws-actions/configure-aws-credentials" &&
				(seconds != "7200" || !strings.Contains(string(page), "--max-session-duration "+seconds)) {
				t.Errorf("%s has Amazon's credentials for %s seconds, want 7200, and roles that "+
					"give them for so long", name, seconds)
			}
			if action == "pulumi/actions" && s.With["pulumi-version"] != version[1] {
				t.Errorf("%s has Pulumi %v, and tools/pulumi %s", name, s.With["pulumi-version"], version[1])
			}
		}
	}
}

// Workflows run in parallel jobs what make runs in sequence: those of a change what .ci/run does,
// those of the night all tests.
func TestWorkflowsRunWhatMakeRuns(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	script, err := os.ReadFile("../../.ci/run")
	if err != nil || !regexp.MustCompile(`(?m)^make .*core$`).Match(script) {
		t.Errorf(".ci/run does not run make core: %v", err)
	}
	for _, tt := range []struct {
		variable, workflow string
		others             []string // targets that only the workflow runs
	}{
		{"CORE", "test.yml", nil},
		{"PARTS", "nightly.yml", []string{"churn", "disturb", "fuzz", "simulation", "vulnerabilities"}},
	} {
		parts := regexp.MustCompile(`(?m)^` + tt.variable + ` +[:?]= ([\w -]+)$`).FindSubmatch(makefile)
		if parts == nil {
			t.Fatalf("the Makefile has no list %s", tt.variable)
		}
		want := strings.Fields(string(parts[1]))
		w, _ := readWorkflow(t, tt.workflow)
		var got []string
		for name, j := range w.Jobs {
			for _, target := range j.Strategy.Matrix.Target {
				target, _, _ = strings.Cut(target, " ")
				got = append(got, target)
				if !slices.Contains(want, target) && !slices.Contains(tt.others, target) {
					t.Errorf("%s: job %s makes %s, which is not in %s of the Makefile", tt.workflow,
						name, target, tt.variable)
				}
			}
		}
		for _, target := range append(want, tt.others...) {
			if !slices.Contains(got, target) {
				t.Errorf("%s: no job makes %s", tt.workflow, target)
			}
		}
	}
}

// Actions are pinned to the commit that was reviewed: otherwise the owner of a tag could run code
// with the repository's credentials. Each action has the same commit everywhere.
func TestWorkflowPins(t *testing.T) {
	pin := regexp.MustCompile(`^([\w-]+/[\w-]+)@([0-9a-f]{40}) # v\d+\.\d+\.\d+$`)
	files, err := filepath.Glob("../../.github/workflows/*.yml")
	if err != nil || len(files) < 2 {
		t.Fatalf("workflows: %v, %v", files, err)
	}
	pins := map[string]string{}
	for _, file := range files {
		_, doc := readWorkflow(t, filepath.Base(file))
		for line := range strings.Lines(doc) {
			_, uses, ok := strings.Cut(line, "uses: ")
			if !ok {
				continue
			}
			uses = strings.TrimSpace(uses)
			if !pin.MatchString(uses) {
				t.Errorf("%s uses %s: expected a commit, and its version in a comment", file, uses)
				continue
			}
			action, _, _ := strings.Cut(uses, "@")
			if other := pins[action]; other != "" && other != uses {
				t.Errorf("%s uses %s, and another step %s", file, uses, other)
			}
			pins[action] = uses
		}
	}
	if len(pins) < 4 {
		t.Errorf("%d actions: %v", len(pins), pins)
	}
}

// Google is asked in a preview for the number of the project, which roles/viewer may, and for parts
// that exist already.
func TestWorkflowPreviewOfGoogle(t *testing.T) {
	page, err := os.ReadFile("../../docs/infrastructure/ci.md")
	if err != nil || !strings.Contains(string(page), "grant gke-preview roles/viewer\n") {
		t.Errorf("ci.md gives previews other rights: %v", err)
	}
	// roles on the part that is looked up; "" = roles/viewer of the project is enough
	rights := map[string]string{"getProject": "", "getInstance": "", "getClientConfig": "",
		"getRepository":   "roles/artifactregistry.reader",
		"getKMSCryptoKey": "roles/cloudkms.viewer",
		"getAccount":      "", "getIamPolicy": "roles/iam.securityReviewer",
		"getBucket": "roles/storage.legacyBucketReader", "getSubnetwork": "roles/compute.networkUser"}
	files, err := filepath.Glob("../gke/*.go")
	if err != nil {
		t.Fatal(err)
	}
	asked := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		calls := regexp.MustCompile(`"gcp:\w+/get\w+:(get\w+)"|\b\w+\.(?:Get|Lookup)\w+\((?:ctx|p\.ctx)[,)]`)
		for _, call := range calls.FindAllStringSubmatch(string(text), -1) {
			asked++
			role, ok := rights[call[1]]
			if !ok || role != "" && !strings.Contains(string(page), "--role="+role+"\n") {
				t.Errorf("%s calls %s: name the rights that it takes, here and in ci.md", file, call[0])
			}
		}
	}
	if asked == 0 {
		t.Error("infra/gke calls nothing: is the page right?")
	}
}

// The role of previews may call every function that the program calls in a preview, and few others.
func TestWorkflowPreviewRole(t *testing.T) {
	rights := map[string][]string{
		"aws.GetAvailabilityZones":    {"ec2:DescribeAvailabilityZones"},
		"aws.GetCallerIdentity":       nil, // needs no right
		"aws.GetPartition":            nil, // answered by the provider itself
		"aws.GetRegion":               nil,
		"ec2.LookupNetworkInterface":  {"ec2:DescribeNetworkInterfaces"},
		"ec2.LookupNetworkInterfaces": {"ec2:DescribeNetworkInterfaces"},
		"efs.LookupFileSystem": {"elasticfilesystem:DescribeFileSystems",
			"elasticfilesystem:DescribeLifecycleConfiguration"},
		"ecr.LookupRepository": {"ecr:DescribeRepositories", "ecr:DescribeImages",
			"ecr:ListTagsForResource"},
		"kms.LookupKey":                       {"kms:DescribeKey"},
		"s3.LookupBucket":                     {"s3:ListBucket"},
		"ec2.LookupVpc":                       {"ec2:DescribeVpcs", "ec2:DescribeVpcAttribute"},
		"ec2.LookupSubnet":                    {"ec2:DescribeSubnets"},
		"eks.GetAddonVersion":                 {"eks:DescribeAddonVersions"},
		"eks.GetClusters":                     {"eks:ListClusters"},
		"eks.GetClusterVersions":              {"eks:DescribeClusterVersions"},
		"eks.GetNodeGroups":                   {"eks:ListNodegroups"},
		"eks.LookupCluster":                   {"eks:DescribeCluster"},
		"eks.LookupNodeGroup":                 {"eks:DescribeNodegroup"},
		"iam.LookupPrincipalPolicySimulation": {"iam:SimulatePrincipalPolicy"},
		"iam.LookupRole":                      {"iam:GetRole"},
		"iam.GetSessionContext":               {"iam:GetRole"},
	}
	page, err := os.ReadFile("../../docs/infrastructure/ci.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("../eks/*.go")
	if err != nil {
		t.Fatal(err)
	}
	asked := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range regexp.MustCompile(
			`\b(\w+\.(?:Get|Lookup)\w+)\((?:ctx|p\.ctx)[,)]`).FindAllStringSubmatch(string(text), -1) {
			asked[strings.TrimSuffix(call[1], "Output")] = true
		}
		// registered by the names of their types
		byToken := regexp.MustCompile(`"aws:(ec2|ecr|efs|kms|s3)/get\w+:get(\w+)"`)
		for _, call := range byToken.FindAllStringSubmatch(string(text), -1) {
			asked[call[1]+".Lookup"+call[2]] = true
		}
	}
	for call := range asked {
		need, ok := rights[call]
		if !ok {
			t.Errorf("infra/eks calls %s: name the rights that it takes, here and in ci.md", call)
		}
		for _, right := range need {
			if !strings.Contains(string(page), `"`+right+`"`) {
				t.Errorf("infra/eks calls %s, and the role of previews in ci.md may not %s", call, right)
			}
		}
	}
	if len(asked) < 3 {
		t.Errorf("infra/eks calls %v: are there no others?", asked)
	}
	if strings.Contains(string(page), "ReadOnlyAccess") {
		t.Error("ReadOnlyAccess reads every object of every bucket")
	}
}
