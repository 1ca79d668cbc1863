package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/elasticdl/elasticdl/trainer/wire"
)

// Every row of a table has as many columns as its header, also for unknown values: so awk prints
// the right column.
func TestColumns(t *testing.T) {
	bare := running()
	bare.Name, bare.Strategy = "bare", ""
	for _, p := range bare.Pods {
		p.Pid, p.Incarnation, p.Address, p.Reason, p.StartedUnixMs = 0, 0, "", "", 0
	}
	far := proto.Clone(bare).(*wire.JobStatus)
	far.Namespace = "training"
	begun := &wire.JobStatus{Name: "begun", State: "Pending"}
	for name, text := range map[string]string{
		"pods":               podTable(running(), start),
		"pods of nothing":    podTable(bare, start),
		"pods of a cluster":  podTable(far, start),
		"jobs":               listText([]*wire.JobStatus{begun, running()}, false, start),
		"jobs of namespaces": listText([]*wire.JobStatus{begun, far}, true, start),
	} {
		lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		columns := len(strings.Fields(lines[0]))
		for _, line := range lines[1:] {
			if cells := regexp.MustCompile(` {2,}`).Split(line, -1); len(cells) != columns ||
				slices.Contains(cells, "") {
				t.Errorf("%s: %d columns of %d:\n%s", name, len(cells), columns, text)
			}
		}
	}
	for line := range strings.Lines(podTable(running(), start)) {
		if cells := strings.Fields(line); cells[0] == "worker-0" && cells[2] != "-" {
			t.Errorf("the PID of a pod that has ended: %s", line)
		}
	}
}
