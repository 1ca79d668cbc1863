// Package seeds has the commands of five published tutorials, as they stand, and what a test
// machine has in place of what it cannot have. TestSeeds of make e2e runs all of them.
//
// A tutorial is a file NAME.txtar: its commands, in their order, and the files that it shows.
// [StandIns] is the table of the commands that are replaced, each with the reason. A command that
// is not in the table is run as it stands.
package seeds

import (
	"embed"
	"fmt"
	"strings"

	"github.com/rogpeppe/go-internal/txtar"
	"mvdan.cc/sh/v3/syntax"
)

//go:embed *.txtar
var archives embed.FS

// Names lists the tutorials, in the order in which they were published last.
var Names = []string{"gke", "gke-older", "minikube", "torchelastic", "elastic-scheduling"}

// Seed is one tutorial.
type Seed struct {
	Name     string
	Commands []Command
	Files    map[string]string // files that the tutorial shows, by name
}

// Command is one command of a tutorial.
type Command struct {
	// in the file of the tutorial
	Line int
	// as it stands
	Text string
	// what is run in its place; nil: nothing is
	StandIn *StandIn
}

// Read returns the tutorial of that name.
func Read(name string) (*Seed, error) {
	text, err := archives.ReadFile(name + ".txtar")
	if err != nil {
		return nil, err
	}
	archive := txtar.Parse(text)
	script := string(archive.Comment)
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(script), name+".txtar")
	if err != nil {
		return nil, err
	}
	s := &Seed{Name: name, Files: make(map[string]string)}
	for _, statement := range file.Stmts {
		text := script[statement.Pos().Offset():end(script, statement)]
		c := Command{Line: int(statement.Pos().Line()), Text: text}
		for i := range StandIns {
			row := &StandIns[i]
			if !row.replaces(name, text) {
				continue
			}
			if c.StandIn != nil {
				return nil, fmt.Errorf("%s.txtar:%d: two rows of the table replace %q", name, c.Line, text)
			}
			c.StandIn = row
		}
		s.Commands = append(s.Commands, c)
	}
	for _, f := range archive.Files {
		s.Files[f.Name] = string(f.Data)
	}
	return s, nil
}

// end returns the offset of the end of a statement in a script, with its here-documents, of which
// the last line is not part of the syntax tree.
func end(script string, statement *syntax.Stmt) uint {
	last := statement.End().Offset()
	syntax.Walk(statement, func(n syntax.Node) bool {
		if r, ok := n.(*syntax.Redirect); ok && r.Hdoc != nil {
			body := r.Hdoc.Pos().Offset()
			last = max(last, body+uint(strings.Index(script[body:], "\n"+r.Word.Lit()+"\n")+1+len(r.Word.Lit())))
		}
		return true
	})
	return last
}

// replaces reports whether the row is for this command of a tutorial.
func (row *StandIn) replaces(seed, command string) bool {
	return (row.Seed == "" || row.Seed == seed) && strings.HasPrefix(command, row.Begins)
}
