package policy

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// An update is made only as planned: by the command that compares, with the plan of the same run,
// after the approval; and it sees the state with the same variables as the plan.
func TestWorkflowPlan(t *testing.T) {
	w, _ := readWorkflow(t, "preview.yml")
	const (
		planning = "github.job == 'preview' || github.job == 'plan'"
		updating = "github.job == 'up'"
		plan     = `go run ./stacks/plan -stack="$STACK" > plan.txt`
		apply    = `go run ./stacks/plan -stack="$STACK" -apply=plan.txt`
		artifact = "plan-${{ matrix.stack }}"
	)
	if up := w.Jobs["up"]; up.Needs != "plan" || !strings.Contains(up.If, "!cancelled()") {
		t.Errorf("up needs %q, if %s: an approval would come before the plan, or one stack that "+
			"cannot be planned stops all", up.Needs, up.If)
	}
	at := map[string]int{}
	env := map[string]map[string]string{}
	for i, s := range w.Jobs["up"].Steps {
		action, _, _ := strings.Cut(s.Uses, "@")
		for what, is := range map[string]bool{
			"plan":     s.If == planning && strings.HasPrefix(s.Run, plan+"\n"),
			"upload":   s.If == planning && action == "actions/upload-artifact" && s.With["path"] == "plan.txt",
			"install":  s.If == updating && action == "pulumi/actions" && s.With["command"] == nil,
			"download": s.If == updating && action == "actions/download-artifact" && s.With["path"] == nil,
			"apply":    s.If == updating && s.Run == apply,
		} {
			if is {
				at[what], env[what] = i, s.Env
			}
		}
		if strings.HasSuffix(action, "load-artifact") && s.With["name"] != artifact {
			t.Errorf("%s %v: want %s", s.Uses, s.With, artifact)
		}
		if strings.Contains(s.Run, "-apply") && s.Run != apply || strings.Contains(s.Run, "pulumi up") ||
			action == "pulumi/actions" && s.With["command"] != nil && s.With["command"] != "preview" {
			t.Errorf("this updates without a plan: %+v", s)
		}
		if action == "pulumi/actions" && s.If != updating && s.If != "github.job != 'up'" {
			t.Errorf("Pulumi previews if %q", s.If)
		}
	}
	if len(at) != 5 || at["plan"] > at["upload"] || at["install"] > at["apply"] || at["download"] > at["apply"] {
		t.Errorf("steps of plan and update: %v", at)
	}
	if len(env["plan"]) != 4 || !maps.Equal(env["plan"], env["apply"]) {
		t.Errorf("the plan is made with %v, and compared with %v", env["plan"], env["apply"])
	}
}

// The job plan reports whether its plan is that of the pull request, whatever GitHub knows of one.
func TestWorkflowPlanOfPullRequest(t *testing.T) {
	w, _ := readWorkflow(t, "preview.yml")
	var script string
	for _, s := range w.Jobs["plan"].Steps {
		if s.If == "github.job == 'plan'" {
			script = s.Run
		}
	}
	for name, tt := range map[string]struct{ gh, differs, want string }{
		"pushed without one": {"", "", "no pull request has shown a plan"},
		"no preview of it":   {"api", "", "no pull request has shown a plan"},
		"no plan any more":   {"api run-list", "", "no pull request has shown a plan"},
		"the same":           {"api run-list run-download", "", "the plan is that of the pull request"},
		"another":            {"api run-list run-download", "- create x", "the plan is not that of the pull request"},
	} {
		dir := t.TempDir()
		for tool, text := range map[string]string{
			"gh": `case "$1-$2" in
api-repos/o/n/commits/abc/pulls) case "$GH" in *api*) echo def ;; esac ;;
run-list) [[ "$*" == *" --commit=def "* ]]; case "$GH" in *run-list*) echo 17 ;; esac ;;
run-download) [[ "$3" == 17 && "$4" == --name=plan-gke && "$GH" == *run-download* ]] ;;
*) exit 64 ;;
esac`,
			"go": `[[ "$*" == "run ./stacks/plan -compare=$RUNNER_TEMP/shown/plan.txt plan.txt" ]] || exit 64
echo "$DIFFERS"; [ -z "$DIFFERS" ]`,
		} {
			text = "#!/bin/bash\nset -e\n" + text + "\n"
			if err := os.WriteFile(filepath.Join(dir, tool), []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		run := exec.Command("bash", "-eo", "pipefail", "-c", script)
		summary := filepath.Join(dir, "summary")
		run.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "GH="+tt.gh, "DIFFERS="+tt.differs,
			"GH_REPO=o/n", "GITHUB_SHA=abc", "STACK=gke", "RUNNER_TEMP="+dir, "GITHUB_STEP_SUMMARY="+summary)
		out, err := run.CombinedOutput()
		text, failed := os.ReadFile(summary)
		if err != nil || failed != nil || string(out) != "::notice title=gke::"+tt.want+"\n" ||
			!strings.HasPrefix(string(text), "## gke: "+tt.want+"\n") || !strings.Contains(string(text), tt.differs) {
			t.Errorf("%s: %v, %v\n%s\n%s", name, err, failed, out, text)
		}
	}
}
