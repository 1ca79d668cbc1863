//go:build !e2e

package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// play defines what the tests do with blocks of commands: run them, or not, with a reason.
type play struct {
	page    string
	section string
	// the blocks that begin with this text; "" = all without another entry
	begins string
	// the stack on which they are run, or accounts
	on string
	// the command of that stack's page before which they are run in the second run; "" = they are
	// run in their own place
	before string
	// the event after them
	after string
	// the reason why they are not run
	excused string
}

const (
	guide      = "docs/infrastructure/"
	install    = "Install" // headings of the README
	oneCommand = "A cluster with one command"
	// commands that only stand-ins of stacks/testdata/page/tools.sh answer, in TestPageOfAccounts
	accounts = "GitHub, and accounts of a cloud"
	// commands for a state in a bucket, in TestStateInABucket
	inBucket = "a state in a bucket"
)

// Every block of commands of the pages on stacks, and of the README's sections on them.
var played = []play{
	{page: "README.md", section: install, on: "gke"},
	{page: "README.md", section: oneCommand, on: "gke"},

	{page: guide + "gke.md", section: "Before the first time", on: "gke"},
	{page: guide + "gke.md", section: fromNothing, on: "gke"},
	{page: guide + "gke.md", section: fromNothing, begins: "gcloud storage buckets create", on: inBucket},
	{page: guide + "gke.md", section: "A key of yours", on: "gke",
		before: "pulumi config set --path job.numWorkers 8"},
	{page: guide + "gke.md", section: "Taking it down", on: "gke",
		before: "pulumi config set --path job.numWorkers 8", after: "the cluster is lost"},

	{page: guide + "eks.md", section: "Before the first time", on: "eks"},
	{page: guide + "eks.md", section: fromNothing, on: "eks"},
	{page: guide + "eks.md", section: fromNothing, begins: "aws s3api create-bucket", on: inBucket},
	{page: guide + "eks.md", section: "A budget", on: "eks"},
	{page: guide + "eks.md", section: "Managed node groups",
		excused: "the stack as shipped has none; TestChangesOfEKS scales such groups"},
	{page: guide + "eks.md", section: "Taking it down", on: "eks", before: "pulumi destroy",
		after: "the cluster is lost"},

	{page: guide + "minikube.md", section: "Before the first time", on: "minikube"},
	{page: guide + "minikube.md", section: fromNothing, on: "minikube"},
	{page: guide + "minikube.md", section: "Data", on: "minikube", before: "pulumi up"},

	{page: guide + "existing.md", section: "Before the first time", on: "existing"},
	{page: guide + "existing.md", section: fromNothing, on: "existing"},
	{page: guide + "existing.md", section: fromNothing, begins: "aws s3api create-bucket", on: inBucket},

	{page: guide + "platform.md", section: "Permissions to submit", on: "minikube", before: "kubectl logs"},
	{page: guide + "platform.md", section: "A job that runs", on: "minikube", before: "elasticdl wait",
		after: "the job is stopped"},
	{page: guide + "platform.md", section: "The image", on: "minikube",
		before: "pulumi config set --path job.numWorkers 2"},
	{page: guide + "platform.md", section: "A deleted cluster", on: "minikube",
		before: "pulumi destroy", after: "the cluster is lost"},

	{page: guide + "policy.md", section: "Exceptions", on: "gke", before: "pulumi destroy"},

	{page: guide + "ci.md", section: "Environments", on: accounts},
	{page: guide + "ci.md", section: "State", on: accounts},
	{page: guide + "ci.md", section: "Google", on: accounts},
	{page: guide + "ci.md", section: "Amazon", on: accounts},
	{page: guide + "ci.md", section: "A cluster of yours", on: accounts},
	{page: guide + "ci.md", section: "Parts of yours", on: accounts},
	{page: guide + "ci.md", section: "Drift", on: accounts},
}

func (p *play) name() string { return strings.Trim(p.page+", "+p.section+": "+p.begins, ": ") }

// play returns the entry for a block, or nil if there is none.
func (b block) play(t *testing.T) *play {
	t.Helper()
	var found *play
	for i := range played {
		p := &played[i]
		if p.page == b.page && p.section == b.section && strings.HasPrefix(b.text, p.begins) &&
			(found == nil || len(p.begins) > len(found.begins)) {
			found = p
		}
	}
	if found == nil {
		t.Errorf("%s:%d: these commands, of the section %s, are neither run nor excused by the "+
			"table of stacks/played_test.go:\n%s", b.page, b.line, b.section, b.text)
		return &play{}
	}
	return found
}

// blocksOf returns the blocks of a page, or for the README those of its sections on stacks.
func blocksOf(t *testing.T, page string) (all []block) {
	t.Helper()
	for _, b := range blocks(t, page) {
		if page != "README.md" || b.section == install || b.section == oneCommand {
			all = append(all, b)
		}
	}
	return all
}

// Every block of commands is run or excused; every entry of the table has a block, and every stack
// a tour.
func TestPlayed(t *testing.T) {
	pages, err := filepath.Glob(guide + "*.md")
	if err != nil || len(pages) < 6 {
		t.Fatal(pages, err)
	}
	about := map[*play]int{}
	for _, page := range append(pages, "README.md") {
		for _, b := range blocksOf(t, page) {
			about[b.play(t)]++
			if len(b.steps(t)) == 0 {
				t.Errorf("%s:%d: there are no commands", b.page, b.line)
			}
		}
	}
	for i := range played {
		p := &played[i]
		if about[p] == 0 {
			t.Errorf("%s: there are no such commands", p.name())
		}
		if (p.on == "") == (p.excused == "") {
			t.Errorf("%s: either on a stack, or excused", p.name())
		}
		there := p.on == "" || p.on == accounts && p.page == guide+"ci.md"
		for _, tour := range tours {
			own := p.page == guide+tour.stack+".md"
			there = there || p.on == inBucket && own ||
				p.on == tour.stack && (own || p.before != "" || p.page == "README.md")
		}
		if !there {
			t.Errorf("%s: nothing runs it on %s", p.name(), p.on)
		}
	}
}
