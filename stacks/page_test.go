package main

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// block is a block of commands of a page, for its reader to run.
type block struct {
	page    string
	section string // heading above the block
	line    int    // line of its first command
	text    string
}

// blocks returns the blocks of a page that are marked as bash.
func blocks(t *testing.T, file string) (all []block) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	section, n, in := "", 0, ""
	for line := range strings.Lines(string(text)) {
		n++
		heading := regexp.MustCompile(`^##+ (.+)\n`).FindStringSubmatch(line)
		switch fence, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "```"); {
		case ok && in != "":
			in = ""
		case ok:
			if in = cmp.Or(fence, "text"); in == "bash" {
				all = append(all, block{page: file, section: section, line: n + 1})
			}
		case in == "bash":
			all[len(all)-1].text += line
		case in == "" && heading != nil:
			section = heading[1]
		}
	}
	return all
}

// step is a command of a page, with all of its lines.
type step struct {
	page    string
	line    int
	command string
}

// steps returns the commands of a block.
func (b block) steps(t *testing.T) (all []step) {
	t.Helper()
	var now string
	n, began := b.line, b.line
	for line := range strings.Lines(b.text) {
		if now == "" {
			began = n
		}
		n++
		if now == "" && strings.TrimSpace(line) == "" {
			continue
		}
		if now += line; complete(t, now) {
			all = append(all, step{b.page, began, now})
			now = ""
		}
	}
	if now != "" {
		t.Errorf("%s:%d: this command has no end:\n%s", b.page, began, now)
	}
	return all
}

var heredoc = regexp.MustCompile(`<<-?['"]?(\w+)`)

// complete reports whether text is a complete command for a shell, which would not wait for more
// lines.
func complete(t *testing.T, text string) bool {
	t.Helper()
	if strings.HasSuffix(text, "\\\n") {
		return false
	}
	if end := heredoc.FindStringSubmatch(text); end != nil && !strings.Contains(text, "\n"+end[1]+"\n") {
		return false
	}
	check := exec.CommandContext(t.Context(), "bash", "-n")
	check.Stdin = strings.NewReader(text)
	return check.Run() == nil
}

// script returns a script that runs commands in one shell, prints each, and ends at the first that
// fails. Placeholders for the reader are replaced by values.
func script(all []step, values map[string]string) string {
	var s strings.Builder
	s.WriteString("set -u -o pipefail\n")
	for _, step := range all {
		for of, is := range values {
			step.command = strings.ReplaceAll(step.command, of, is)
		}
		fmt.Fprintf(&s, "printf '# %%s\\n' %s\n%s",
			shellQuote(fmt.Sprintf("%s:%d: %s", step.page, step.line, strings.TrimSpace(step.command))), step.command)
		s.WriteString("status=$?; [ $status = 0 ] || { echo \"# exit status $status\"; exit 1; }\n")
	}
	return s.String()
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
