package cli

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"mvdan.cc/sh/v3/syntax"

	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/runtime/kube"
	"github.com/elasticdl/elasticdl/trainer/train/zoo"
)

// block is a block of commands of a page, for its reader to run in a shell.
type block struct {
	page string
	// heading above the block, "" before the first
	section string
	// line of its first command
	line int
	text string
}

var (
	fence     = regexp.MustCompile("^```([a-z]*)(?: [a-z]+)?$")
	sectionOf = regexp.MustCompile(`^##+ (.+)$`)
)

// blocks returns the blocks that a page marks as commands of a shell.
func blocks(page, text string) (all []block) {
	section, language, within := "", "", false
	for n, line := range strings.Split(text, "\n") {
		found := fence.FindStringSubmatch(line)
		switch {
		case within && found != nil:
			within = false
		case found != nil:
			if within, language = true, found[1]; isShell(language) {
				all = append(all, block{page: page, section: section, line: n + 2})
			}
		case within && isShell(language):
			all[len(all)-1].text += line + "\n"
		case !within && sectionOf.MatchString(line):
			section = sectionOf.FindStringSubmatch(line)[1]
		}
	}
	return all
}

func isShell(language string) bool {
	return slices.Contains([]string{"bash", "sh", "console"}, language)
}

// allBlocks returns the blocks of all pages, in the order of their names.
func allBlocks(t *testing.T) (all []block) {
	t.Helper()
	pages := markdown(t)
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		all = append(all, blocks(page, pages[page])...)
	}
	return all
}

// command is a simple command of a block.
type typed struct {
	line  int // line in the page
	words []string
}

// readers replaces the words that stand for a reader's values by possible values.
var readers = strings.NewReplacer("REGISTRY", "registry.example", "CLAIM", "claim")

// unknown stands for values that only a shell knows, such as $HOME or the output of a command: a
// name that is also a file of the repository.
const unknown = "go.mod"

// commands returns the simple commands of a block, including those in pipes, lists and
// substitutions, but without calls of the block's own functions.
func (b block) commands() (all []typed, err error) {
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(b.text), "")
	if err != nil {
		return nil, fmt.Errorf("%s:%d: bash cannot read this: %w", b.page, b.line, err)
	}
	own := map[string]bool{}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch node := node.(type) {
		case *syntax.FuncDecl:
			own[node.Name.Value] = true
		case *syntax.CallExpr:
			c := typed{line: b.line + int(node.Pos().Line()) - 1}
			for _, word := range node.Args {
				c.words = append(c.words, readers.Replace(static(word.Parts)))
			}
			if len(c.words) > 0 && !own[c.words[0]] {
				all = append(all, c)
			}
		}
		return true
	})
	return all, nil
}

// static returns a word as a shell would expand it.
func static(parts []syntax.WordPart) string {
	var s strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			s.WriteString(strings.ReplaceAll(part.Value, `\`, ""))
		case *syntax.SglQuoted:
			s.WriteString(part.Value)
		case *syntax.DblQuoted:
			s.WriteString(static(part.Parts))
		default:
			s.WriteString(unknown)
		}
	}
	return s.String()
}

// tools lists the commands of pages other than elasticdl and make. The table of played_test.go
// names the test that runs them.
var tools = []string{
	"awk", "aws", "build/tools/cluster", "cat", "cd", "chmod", "cosign", "cp", "curl", "cut", "docker", "export",
	"gcloud", "gh", "git", "grep", "jq", "kill", "minikube", "mkdir", "pip",
	"prometheus", "pulumi", "sed", "sort", "ssh", "tar", "tensorboard", "which",
}

// kubectl lists the commands of kubectl that pages use.
var kubectl = []string{"annotate", "apply", "config", "cp", "create", "delete", "describe", "drain", "edit", "events",
	"exec", "get", "label", "logs", "patch", "port-forward", "rollout", "scale", "version", "wait"}

// Every command of every page can be run: a shell can parse it, elasticdl accepts its flags and
// their values, make has the target, and other tools are run by a test or excused in the table of
// played_test.go.
func TestPagesAreAccepted(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	all := allBlocks(t)
	t.Chdir(repository) // the directory of the readers
	for _, b := range all {
		commands, err := b.commands()
		if err != nil {
			t.Error(err)
		}
		for _, c := range commands {
			n++
			if err := accepts(c.words, string(makefile)); err != nil {
				t.Errorf("%s:%d: %s: %v", b.page, c.line, strings.Join(c.words, " "), err)
			}
		}
	}
	if n < 250 {
		t.Errorf("%d commands were found", n)
	}
}

// accepts returns an error if a command of a page is not valid.
func accepts(words []string, makefile string) error {
	switch name, args := words[0], words[1:]; name {
	case "elasticdl":
		return acceptsArgs(args)
	case "make":
		for _, arg := range args {
			if !strings.Contains(arg, "=") && !strings.Contains(makefile, "\n"+arg+":") {
				return fmt.Errorf("there is no target %s", arg)
			}
		}
	case "kubectl":
		if len(args) == 0 || !slices.Contains(kubectl, args[0]) {
			return errors.New("expected a command of the list kubectl in pages_test.go")
		}
	default:
		if !slices.Contains(tools, name) {
			return errors.New("expected elasticdl, make, or a command of the list tools in pages_test.go")
		}
	}
	return nil
}

// types has the commands whose flags are those of a job.
var types = map[string]job.Type{"train": job.Train, "evaluate": job.Evaluate, "predict": job.Predict, "run": job.Run}

// acceptsArgs returns the error that elasticdl would return for its arguments, before it does
// anything.
func acceptsArgs(args []string) error {
	root := newRoot()
	root.SetGlobalNormalizationFunc(spelling(args))
	root.SetFlagErrorFunc(flagProblem)
	found, _, err := root.Find(args)
	switch {
	case err != nil:
		return err
	case !found.HasParent() || found.Hidden:
		return errors.New("there is no such command")
	}
	found.Run, found.RunE = nil, func(cmd *cobra.Command, words []string) error {
		if c := jobOf(cmd.Flags()); c != nil {
			c.Words(words)
			return acceptsJob(c)
		}
		return nil
	}
	root.SetArgs(prepared(root, args))
	root.SetOut(io.Discard)
	return root.Execute()
}

// acceptsJob returns an error if what a command was given is not valid, including the job's model
// and, on a cluster, its objects.
func acceptsJob(c *job.Command) error {
	err := c.Settle()
	if err == nil && c.Job.ModelDef != "" {
		_, err = zoo.Lookup(c.Job.ModelDef)
	}
	// with an upload, the object would have its checksum
	if err == nil && c.Runtime == "kubernetes" && c.Upload == "" {
		_, err = kube.Manifests(c.Job)
	}
	return err
}

// foreign lists flags on pages that are not elasticdl's.
var foreign = strings.Fields(`
	--api_key --load_fast --strict
	--driver --gpus --mount --mount-string --cni --keep-context
	--body --input_path --type --predicate
	--fair-sharing --spot --exclude-protected --preserve-config --refresh --replace --yes --skip-preview --diff --show-secrets --show-urns
	--heartbeat_timeout_ms --join_timeout_ms --quorum_tick_ms
`)

var (
	codeSpan = regexp.MustCompile("`([^`\n]+)`")
	prose    = regexp.MustCompile("(?s)```.*?```")
	spoken   = regexp.MustCompile(`^--([a-z][a-z0-9_-]*)`)
	flagged  = regexp.MustCompile(`(?:^|[ (])(--[a-z][a-z0-9_-]*)`)
)

// Everything that the text of a page names exists: commands of elasticdl with their flags, flags
// alone, targets of make.
func TestPagesNameWhatIsThere(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join(repository, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	known := allFlags()
	n := 0
	for path, text := range markdown(t) {
		for _, found := range codeSpan.FindAllStringSubmatch(prose.ReplaceAllString(text, ""), -1) {
			words := strings.Fields(found[1])
			if len(words) == 0 {
				continue
			}
			n++
			for _, flag := range flagged.FindAllStringSubmatch(found[1], -1) {
				if others := words[0] == "kubectl" || slices.Contains(tools, words[0]); !others &&
					!known[strings.ReplaceAll(flag[1][2:], "-", "_")] && !slices.Contains(foreign, flag[1]) {
					t.Errorf("%s: `%s`: elasticdl has no flag %s; if it is another program's, it "+
						"belongs to the list foreign in pages_test.go", path, found[1], flag[1])
				}
			}
			if err := names(words, string(makefile)); err != nil {
				t.Errorf("%s: `%s`: %v", path, found[1], err)
			}
		}
	}
	if n < 500 {
		t.Errorf("%d words of code were found", n)
	}
}

// allFlags returns the names of all flags of all commands, with underscores.
func allFlags() map[string]bool {
	known := map[string]bool{"help": true}
	add := func(f *pflag.Flag) { known[strings.ReplaceAll(f.Name, "-", "_")] = true }
	var visit func(*cobra.Command)
	visit = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(add)
		for _, child := range c.Commands() {
			visit(child)
		}
	}
	visit(newRoot())
	for _, f := range job.Flags() {
		for _, name := range append([]string{f.Name}, f.Aliases...) {
			known[name] = true
		}
	}
	return known
}

// names returns an error if a command in a text does not exist; arguments may be left out.
func names(words []string, makefile string) error {
	if (words[0] == "make" || words[0] == "kubectl") && len(words) > 1 {
		return accepts(words, makefile)
	}
	if words[0] != "elasticdl" || len(words) == 1 {
		return nil
	}
	found, _, err := newRoot().Find(words[1:])
	if err != nil || !found.HasParent() || found.Hidden {
		return errors.Join(errors.New("there is no such command"), err)
	}
	for _, word := range words {
		// the rest is the command of the user's program
		if word == "--" {
			break
		}
		flag := spoken.FindStringSubmatch(word)
		if flag == nil || flag[1] == "help" {
			continue
		}
		there := found.Flags().Lookup(flag[1]) != nil || found.InheritedFlags().Lookup(flag[1]) != nil
		if t, ok := types[found.Name()]; ok {
			f := job.Find(flag[1])
			there = f != nil && f.With(t)
		}
		if !there {
			return fmt.Errorf("there is no flag --%s", flag[1])
		}
	}
	return nil
}
