//go:build !e2e

package main

import (
	"cmp"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// block is a piece of a page that its reader is to run.
type block struct {
	section string // the heading that it is under
	line    int    // of its first command
	text    string
}

// blocks are those of a page that are marked as bash.
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
				all = append(all, block{section: section, line: n + 1})
			}
		case in == "bash":
			all[len(all)-1].text += line
		case in == "" && heading != nil:
			section = heading[1]
		}
	}
	return all
}

// commands are those of a block, each with all of its lines.
func commands(t *testing.T, b block) (all []string) {
	t.Helper()
	var now string
	for line := range strings.Lines(b.text) {
		if now == "" && strings.TrimSpace(line) == "" {
			continue
		}
		if now += line; complete(t, now) {
			all = append(all, now)
			now = ""
		}
	}
	if now != "" {
		t.Errorf("line %d: this command has no end:\n%s", b.line, now)
	}
	return all
}

var heredoc = regexp.MustCompile(`<<-?['"]?(\w+)`)

// complete reports whether a shell would run text as it is, and not wait for more of it.
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

// script runs the commands of blocks in one shell, tells each, and ends at the first that fails. Of what the reader is to fill
// in, values has the test's.
func script(t *testing.T, all []block, values map[string]string) string {
	t.Helper()
	var s strings.Builder
	s.WriteString("set -u -o pipefail\n")
	for _, b := range all {
		line := b.line
		for _, command := range commands(t, b) {
			lines := strings.Count(command, "\n")
			for of, is := range values {
				command = strings.ReplaceAll(command, of, is)
			}
			s.WriteString("printf '# %s\\n' " + shellQuote(strings.TrimSpace(command)) + "\n")
			s.WriteString(command)
			s.WriteString("status=$?; [ $status = 0 ] || { echo \"# exit status $status\"; exit 1; }\n")
			line += lines
		}
	}
	return s.String()
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
