package trainer

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// thisFile is the file whose first commit is the oldest one that TestCommitSubjectsArePlain reads.
const thisFile = "trainer/arch_commit_test.go"

// The subjects of commits follow the same patterns as comments. Checked are the commit that added
// this file and its descendants. A shallow clone has some of them, a copy without history none.
func TestCommitSubjectsArePlain(t *testing.T) {
	all, shallow, err := subjects(root, thisFile)
	if err != nil {
		t.Skipf("no commit is checked: %v", err)
	}
	if shallow {
		t.Logf("a shallow clone: only %d commits are checked", len(all))
	}
	for _, problem := range unplain(patterns(t), all) {
		t.Error(problem)
	}
}

func TestCommitSubjectsAreFound(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	bad := patterns(t)[0].example
	dir := t.TempDir()
	commit := func(subject string) {
		t.Helper()
		for _, args := range [][]string{{"add", "-A"},
			{"-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "--allow-empty", "-m", subject}} {
			if _, err := git(dir, args...); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := git(dir, "init", "-q"); err != nil {
		t.Fatal(err)
	}
	commit("job: " + bad)
	if all, _, err := subjects(dir, "a/check"); err != nil || len(all) != 0 {
		t.Errorf("before the check was added: %q, %v", all, err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a/check"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	commit("job: a check")
	commit("job: " + bad + "\n\nOr " + bad)
	clone := filepath.Join(t.TempDir(), "clone")
	if _, err := git(dir, "clone", "-q", "--depth=1", "file://"+dir, clone); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		dir     string
		shallow bool
		number  int
	}{{dir, false, 2}, {clone, true, 1}} {
		all, shallow, err := subjects(c.dir, "a/check")
		if err != nil || shallow != c.shallow || len(all) != c.number {
			t.Errorf("shallow %v, subjects %q, %v", shallow, all, err)
		}
		if problems := unplain(patterns(t), all); len(problems) != 1 || !strings.Contains(problems[0], bad) {
			t.Errorf("found %q", problems)
		}
	}
	if all, _, err := subjects(t.TempDir(), "a/check"); err == nil {
		t.Errorf("without a repository: %q", all)
	}
}

// subjects returns the subjects of the commit that added the file and of its descendants, each
// behind its hash, and reports whether the clone is shallow. There is none before the commit.
func subjects(dir, file string) (all []string, shallow bool, err error) {
	is, err := git(dir, "rev-parse", "--is-shallow-repository")
	if err != nil {
		return nil, false, err
	}
	added, err := git(dir, "log", "--diff-filter=A", "--format=%H", "--", file)
	if err != nil || len(added) == 0 {
		return nil, false, err
	}
	first := added[len(added)-1]
	all, err = git(dir, "log", "--ancestry-path", "--format=%h %s", first+"..HEAD")
	if err != nil {
		return nil, false, err
	}
	oldest, err := git(dir, "log", "-1", "--format=%h %s", first)
	return append(all, oldest...), slices.Equal(is, []string{"true"}), err
}

// unplain describes the hits of the patterns in the subjects.
func unplain(all []pattern, subjects []string) (problems []string) {
	for _, subject := range subjects {
		for _, pattern := range all {
			if hit := pattern.re.FindString(subject); hit != "" {
				problems = append(problems, fmt.Sprintf("commit %s: write %q as in %q", subject, hit, pattern.instead))
			}
		}
	}
	return problems
}

// git runs a command in a directory that is the root of a repository, and returns its lines.
func git(dir string, args ...string) ([]string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(strings.TrimSpace(stderr.String())))
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == '\n' }), nil
}
