package cli

import (
	"strings"
	"testing"
)

// mostCommands is the greatest number of commands from a clone to a job that trains.
const mostCommands = 12

// Each page of a stack is a quick start: its commands up to the status of the running job are few.
func TestQuickStartsAreShort(t *testing.T) {
	counts := map[string]int{}
	for _, b := range allBlocks(t) {
		page, ok := strings.CutPrefix(b.page, "docs/infrastructure/")
		if !ok || !strings.HasPrefix(b.section, "From nothing") || counts[page] > 0 {
			continue
		}
		// some pages have make build in the section before
		n, ends := 1, false
		for line := range strings.Lines(b.text) {
			if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "make build") {
				continue
			}
			n++
			if ends = strings.HasPrefix(line, "elasticdl status"); ends {
				break
			}
		}
		if counts[page] = n; !ends || n > mostCommands {
			t.Errorf("%s: %d commands, with a status %v: expected at most %d", page, n, ends, mostCommands)
		}
	}
	if len(counts) != 4 {
		t.Errorf("quick starts: %v", counts)
	}
	t.Logf("commands from a clone to a running job: %v", counts)
}
