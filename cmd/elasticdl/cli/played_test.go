package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"mvdan.cc/sh/v3/syntax"

	"github.com/elasticdl/elasticdl/test/pace"
)

// play defines which tests run blocks of commands, or why none does.
type play struct {
	// a page, or a directory of pages, which ends in a slash
	page string
	// "" = all sections without another entry
	section string
	// the blocks that begin with this text; "" = all without another entry
	begins string
	// tests, as "test/e2e TestTwoJobs, test/e2e TestQuota"; or here; or torch; or a part of make
	// core, as "ci demo"
	by string
	// the reason why no test runs them
	excused string
}

const (
	byPages = "here" // [TestPagesAreRun]
	// [TestTorchPages], which has the build tag torch
	byTorch = "torch"
)

// Every block of commands of all pages has an entry. Tests of make e2e run the commands of
// tutorials with their own, smaller jobs.
var played = []play{
	{page: "README.md", section: "Install", by: "stacks TestReadmeCloud"},
	{page: "README.md", section: "Thirty seconds", by: byTorch},
	{page: "README.md", section: "A model in Go", by: "ci demo, ci test"},
	{page: "README.md", section: "A job on your cluster",
		by: "test/e2e TestGKETutorial, test/e2e TestFaultTolerance, test/e2e TestNothingIsLeft"},
	{page: "README.md", section: "A cluster with one command", by: "stacks TestReadmeCloud"},

	{page: "docs/checkpoints.md", section: "Buckets", by: "cmd/elasticdl/cli TestStories"},
	{page: "docs/dashboard.md", by: "test/browser TestKill, test/e2e TestDashboard"},
	{page: "docs/dashboard.md", section: "From another machine", excused: "it needs a second machine"},
	{page: "docs/exactly-once.md", section: "Prove it",
		by: "cmd/elasticdl/cli TestJobStories, test/local TestAccuracy"},
	{page: "docs/failures.md", section: "Events", by: "test/e2e TestNodesLost"},
	{page: "docs/failures.md", section: "Notice of a node", by: "cmd/elasticdl/cli TestStories"},
	{page: "docs/frameworks.md", section: "As they stand",
		by: "test/local TestFrameworksContinueFromTheirCheckpoints"},
	{page: "docs/frameworks.md", section: "Trainer", by: "test/local TestFrameworksExamples"},
	{page: "docs/from-torchrun.md", by: byPages},
	{page: "docs/jobs.md", by: "cmd/elasticdl/cli TestStories, cmd/elasticdl/cli TestJobStories, " +
		"test/e2e TestGKETutorial"},
	{page: "docs/debug-dump.md", by: "cmd/elasticdl/cli TestJobStories, test/e2e TestDashboard"},
	{page: "docs/why.md", by: "cmd/elasticdl/cli TestJobStories"},
	{page: "docs/json.md", by: "cmd/elasticdl/cli TestJobStories"},
	{page: "docs/json.md", begins: "kubectl wait", by: "test/e2e TestTheTruthIsTold"},
	{page: "docs/jobs.md", section: "TensorBoard", by: "test/local TestTensorBoard"},
	{page: "docs/make-your-script-keep-its-state.md", section: "Editors and notebooks",
		excused: "it names a file of a release; make release installs the wheel of the present version"},
	{page: "docs/metrics.md", by: "test/local TestPrometheus, trainer/runtime/manifest TestMetricsPort"},
	{page: "docs/placement.md", by: "trainer/runtime/manifest TestPlacementPage, cmd/elasticdl/cli TestStories"},
	{page: "docs/predict.md", by: "test/e2e TestGKETutorial"},
	{page: "docs/predict.md", begins: "elasticdl evaluate --runtime=local", by: byPages},
	{page: "docs/benchmarks.md", section: "Two jobs in queues while other teams take quota",
		by: "test/e2e/scale TestQueueChurn"},
	{page: "docs/strategies.md", section: "Data in a bucket", by: "cmd/elasticdl/cli TestJobStories"},
	{page: "docs/queues.md", section: "Install Kueue",
		excused: "it asks for a release of Kueue; tests of make e2e start Kueue from its module"},
	{page: "docs/queues.md", section: "Divide the cluster",
		by: "trainer/runtime/manifest TestQueuesPage, cmd/elasticdl/cli TestStories"},
	{page: "docs/queues.md", section: "Give users their rights", excused: "it binds a ClusterRole that Kueue ships"},
	{page: "docs/queues.md", section: "Submit a job",
		by: "trainer/runtime/manifest TestQueuesPage, test/e2e TestQueueReclaims, test/e2e TestQueueBorrows"},
	{page: "docs/your-code-on-the-cluster.md", section: "The image that has elasticdl", by: "stacks TestRealCluster"},
	{page: "docs/your-code-on-the-cluster.md", section: "Upload a directory", by: "test/e2e TestProgramCode"},
	{page: "docs/your-code-on-the-cluster.md", begins: "kubectl get configmaps",
		excused: "it is kubectl's, ls and rm; TestProgramCode looks at what they show"},
	{page: "docs/your-code-on-the-cluster.md", section: "An image with the code", by: "test/e2e TestProgramCode"},
	{page: "docs/your-code-on-the-cluster.md", section: "Your own image", by: "test/e2e TestProgramAsItStands"},
	{page: "docs/your-code-on-the-cluster.md", section: "A URL", by: "test/e2e TestProgramCode"},
	{page: "docs/infrastructure/", by: "stacks TestPages, stacks TestPageOfAccounts"},
	{page: "docs/infrastructure/", begins: "gcloud storage buckets create gs://PROJECT-pulumi ",
		by: "stacks TestStateInABucket"},
	{page: "docs/infrastructure/", begins: "aws s3api create-bucket --bucket BUCKET ", by: "stacks TestStateInABucket"},

	{page: "docs/stuck.md", by: "test/hang TestHangs, test/hang TestHangTimeout"},

	{page: "docs/tutorials/this-machine.md", by: byPages},
	{page: "docs/tutorials/minikube.md", by: "test/e2e TestMinikubeTutorial"},
	{page: "docs/tutorials/minikube.md", section: "A cluster and the data", by: "stacks TestPages"},
	{page: "docs/tutorials/minikube.md", section: "The image", by: "cmd/elasticdl/cli TestZoo"},
	{page: "docs/tutorials/gke.md", by: "test/e2e TestGKETutorial, test/e2e TestFaultTolerance"},
	{page: "docs/tutorials/gke.md", begins: "gcloud container clusters get-credentials",
		excused: "it asks for an account of Google"},
	{page: "docs/tutorials/gpus.md", section: "The cluster", by: "stacks TestExamples"},
	{page: "docs/tutorials/gpus.md", begins: "BUCKET=\"s3:",
		excused: "it asks for an account of Amazon; TestGKETutorial brings a data set to a claim"},
	{page: "docs/tutorials/gpus.md", begins: "BUCKET=gs:",
		excused: "it asks for an account of Google; TestGKETutorial brings a data set to a claim"},
	{page: "docs/tutorials/gpus.md", section: "The job", by: "stacks TestExamples, stacks TestRealCluster"},
	{page: "docs/tutorials/gpus.md", begins: "elasticdl scale imagenet", by: "test/e2e TestProgramAsItStands"},
	{page: "docs/tutorials/gpus.md", section: "A cluster that you have", by: "test/e2e TestProgramCode"},
	{page: "docs/tutorials/gpus.md", section: "The end", by: "stacks TestExamples"},
	{page: "docs/tutorials/elastic-scheduling.md", by: "test/e2e TestElasticScheduling, test/e2e TestTwoJobs"},

	{page: "tools/README.md", section: "Kueue", by: "test/e2e TestQueueReclaims"},
	{page: "tools/README.md", section: "Karpenter", by: "test/e2e/scale TestNodesFollow"},

	{page: "examples/public-cloud/",
		by: "stacks TestExamples, test/e2e TestFaultTolerance, test/e2e TestElasticScheduling"},
	{page: "examples/clusters/", by: "examples/clusters TestClusters"},
	{page: "examples/edl-cluster/", by: "stacks TestExamples, test/e2e TestElasticScheduling"},
	{page: "examples/elastic-scheduling/", by: "stacks TestExamples, test/e2e TestTwoJobs"},
	{page: "examples/personal-computer/", by: "stacks TestExamples, test/e2e TestMinikubeTutorial"},
	{page: "examples/torchelastic/", by: "stacks TestExamples, stacks TestRealCluster, test/e2e TestGKETutorial"},
	{page: "examples/torchelastic/", section: "Elasticity",
		by: "stacks TestExamples, stacks TestRealCluster, test/e2e TestProgramAsItStands"},
	{page: "examples/", section: "The end", by: "stacks TestExamples"},
	{page: "examples/pytorch/", section: "On this machine", by: byTorch},
	{page: "examples/pytorch/", section: "On a cluster", by: "test/e2e TestProgramCode, test/e2e TestGKETutorial"},
}

// play returns the entry for a block, or nil if there is none: the one with the longest beginning,
// or else that of its section.
func (b block) play() (found *play) {
	for i := range played {
		p := &played[i]
		about := p.page == b.page || strings.HasSuffix(p.page, "/") && strings.HasPrefix(b.page, p.page)
		if about && (p.section == "" || p.section == b.section) && strings.HasPrefix(b.text, p.begins) &&
			(found == nil || len(p.begins) > len(found.begins) || p.section != "" && found.section == "") {
			found = p
		}
	}
	return found
}

// Every block is run by an existing test, or excused; every entry has a block.
func TestPagesAreRunBySomebody(t *testing.T) {
	about := map[*play]bool{}
	for _, b := range allBlocks(t) {
		p := b.play()
		about[p] = true
		if p == nil {
			t.Errorf("%s:%d: say in played_test.go which test runs these commands of the section "+
				"%q:\n%s", b.page, b.line, b.section, b.text)
		}
	}
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range played {
		p := &played[i]
		name := strings.TrimSpace(p.page + " " + p.section + " " + p.begins)
		switch {
		case !about[p]:
			t.Errorf("%s: there are no such commands", name)
		case (p.by == "") == (p.excused == ""):
			t.Errorf("%s: either run by a test, or excused", name)
		}
		for by := range strings.SplitSeq(p.by, ", ") {
			where, what, _ := strings.Cut(by, " ")
			switch {
			case by == "", by == byPages, by == byTorch:
			case where == "ci":
				if !regexp.MustCompile(`(?m)^CORE *:=.* ` + what + `\b`).Match(makefile) {
					t.Errorf("%s: make core, which .ci/run runs, has no part %s", name, what)
				}
			case !isTest(t, where, what):
				t.Errorf("%s: there is no test %s in %s", name, what, where)
			}
		}
	}
}

// isTest reports whether a directory has a test of this name.
func isTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(repository, dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "\nfunc "+name+"(t *testing.T)") {
			return true
		}
	}
	return false
}

// tour is a page whose commands are run unchanged, from the first to the last, in one shell.
type tour struct {
	page  string
	files map[string]string // further files that the reader needs
	says  []string          // texts that the commands print
	smaller
}

// smaller has the settings of a page and their replacements in the test: jobs that need little
// time, and last long enough to lose a worker.
type smaller map[string]string

// patient replaces the model of a page by a cheap one that pauses until the page waits for the end.
var patient = [2]string{"mnist.mnist_functional_api.custom_model", pace.Patient.Def()}

var tours = []tour{
	{
		page: "docs/tutorials/this-machine.md",
		says: []string{
			`Loss = \d`, `Evaluation metrics\[v=\d`, `(?m)^worker-4 +(Running|Pending|Succeeded)`,
			`(?m)^job test-mnist Succeeded`,
			`(?m)^World \d+ formed: \d workers`, `(?m)^Scaled from 4 to 6 workers`,
			`(?m)^job test-mnist-allreduce Succeeded`, `(?m)^job guess Succeeded`,
		},
		smaller: smaller{patient[0]: patient[1], "--num_epochs=20": "--num_epochs=40"},
	},
	{
		page: "docs/predict.md",
		files: map[string]string{"before.sh": "elasticdl dataset mnist data/mnist " +
			"--source=examples/mnist/data\nelasticdl train --runtime=local --job_name=before " +
			"--model_def=" + patient[1] + " --training_data=data/mnist/train --checkpoint_dir=ckpt\n"},
		says:    []string{`(?m)^Evaluation metrics\[v=\d`, `(?m)^job guess Succeeded`},
		smaller: smaller{patient[0]: patient[1]},
	},
	{
		page: "docs/from-torchrun.md",
		files: map[string]string{
			"main.py":             "import os, time\nwhile os.environ['WORLD_SIZE'] != '3': time.sleep(0.1)\n",
			"package/__init__.py": "", "package/main.py": "import os\nassert os.environ['RANK']\n",
		},
		says: []string{`(?m)^main: 4 -> 3 workers`, `(?m)^job main Succeeded`, `(?m)^job other Succeeded`},
	},
}

// TestPagesAreRun runs the pages of this machine with the program itself.
func TestPagesAreRun(t *testing.T) {
	t.Parallel()
	run := map[string]bool{}
	for _, tour := range tours {
		run[tour.page] = true
		t.Run(tour.page, func(t *testing.T) {
			t.Parallel()
			tour.run(t, byPages, "PATH="+os.Getenv("PATH"))
		})
	}
	for _, p := range played {
		if p.by == byPages && !run[p.page] {
			t.Errorf("%s: there is no tour of it", p.page)
		}
	}
}

// run runs the blocks of a page whose entry names by, in a directory with the repository's
// examples.
func (tour *tour) run(t *testing.T, by string, env ...string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository, tour.page))
	if err != nil {
		t.Fatal(err)
	}
	dir, home := t.TempDir(), t.TempDir()
	examples, err := filepath.Abs(filepath.Join(repository, "examples"))
	if err == nil {
		err = os.Symlink(examples, filepath.Join(dir, "examples"))
	}
	for name, text := range tour.files {
		path := filepath.Join(dir, name)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(path), 0o755)
		}
		if err == nil {
			err = os.WriteFile(path, []byte(text), 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	script := shellPreamble
	for _, b := range blocks(tour.page, string(text)) {
		if p := b.play(); p != nil && p.by == by {
			script += b.script(t)
		}
	}
	for from, to := range tour.smaller {
		if !strings.Contains(script, from) {
			t.Errorf("%s has no %s", tour.page, from)
		}
		script = strings.ReplaceAll(script, from, to)
	}
	t.Cleanup(func() { // stop a job that a command has left
		for process := range processesOf(home) {
			syscall.Kill(process, syscall.SIGKILL)
		}
	})
	c := exec.CommandContext(t.Context(), "bash", "-c", script)
	c.Dir, c.Env = dir, append(env, "HOME="+home, "ELASTICDL_HOME="+home)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, says := range tour.says {
		if !regexp.MustCompile(says).Match(out) {
			t.Errorf("no command says %s:\n%s", says, out)
		}
	}
	for pid, command := range processesOf(home) {
		t.Errorf("the page ends, and process %d runs still: %q", pid, command)
	}
}

// shellPreamble begins the script of a page. It makes commands that show a job retry until there is
// output, as a reader would.
const shellPreamble = `set -u -o pipefail
again() { local end=$((SECONDS + 60)); until eval "$1"; do [ $SECONDS -lt $end ] || return 1; sleep 0.1; done; }
runs() { again "elasticdl status $1 | grep -qE '^$2 +Running +[0-9]'"; }
[ ! -f before.sh ] || . ./before.sh || exit 1
`

var (
	looks = regexp.MustCompile(`^elasticdl (status|logs|list) `)
	// commands that end when the job does, and those that start one to be watched
	awaits  = regexp.MustCompile(`^elasticdl (wait|resume) `)
	watches = regexp.MustCompile(`^elasticdl train .*--detach `)
	kills   = regexp.MustCompile(`^kill .*elasticdl status (\S+) .*"(worker-\d+)"`)
)

// Pages kill only a process of a running pod: for other pods the table has no PID.
func TestPagesKillWhatRuns(t *testing.T) {
	found := 0
	for _, b := range allBlocks(t) {
		for line := range strings.Lines(b.text) {
			if !strings.HasPrefix(line, "kill ") || !strings.Contains(line, "elasticdl status") {
				continue
			}
			if found++; !strings.Contains(line, `$2 == "Running" {print $3}`) {
				t.Errorf("%s: kills also what does not run: %s", b.page, line)
			}
		}
	}
	if found == 0 {
		t.Error("no page kills a worker")
	}
}

// script returns a script that runs the commands of a block, prints each, and ends at the first
// that fails.
func (b block) script(t *testing.T) string {
	t.Helper()
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(b.text), "")
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, statement := range file.Stmts {
		text := b.text[statement.Pos().Offset():statement.End().Offset()]
		fmt.Fprintf(&s, "printf '# %%s\\n' %s\n",
			shellQuote(fmt.Sprintf("%s:%d: %s", b.page, b.line+int(statement.Pos().Line())-1, text)))
		if found := kills.FindStringSubmatch(text); found != nil {
			fmt.Fprintf(&s, "runs %s %s || exit 1\n", found[1], found[2])
		}
		// the pauses of the model patient end with the commands that watch the job
		switch {
		case awaits.MatchString(text):
			s.WriteString("touch $ELASTICDL_HOME/hurry\n")
		case watches.MatchString(text):
			s.WriteString("rm -f $ELASTICDL_HOME/hurry\n")
		}
		if looks.MatchString(text) {
			text = "again " + shellQuote(text)
		}
		fmt.Fprintf(&s, "%s\nstatus=$?; [ $status = 0 ] || { echo \"# exit status $status\"; exit 1; }\n", text)
	}
	return s.String()
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
