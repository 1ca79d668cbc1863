//go:build !e2e

package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pulumi/pulumi/sdk/v3/go/auto/optup"

	"github.com/elasticdl/elasticdl/test/provider"
)

// An update that submits a job says whether it trains, or why not, within the set time; one that
// submits none, and a preview, wait for nothing.
func TestStart(t *testing.T) {
	t.Parallel()
	e := start(t, "minikube")
	e.set("elasticdl:wait", "1m")
	var conditions []any
	paused := 0
	e.pause = func(_ context.Context, d time.Duration) error {
		if paused++; paused == 3 && conditions != nil {
			e.change(jobObject, func(is provider.Props) { is["status"] = provider.Props{"conditions": conditions} })
		}
		if paused > 100 {
			t.Error("it waits without an end")
			return context.Canceled
		}
		return nil
	}
	up := func() (string, error) {
		t.Helper()
		paused = 0
		if _, err := e.tryPreview(); err != nil || paused > 0 {
			t.Errorf("a preview pauses %d times: %v", paused, err)
		}
		r, err := e.stack.Up(e.Context(), optup.SuppressProgress())
		return r.StdOut + r.StdErr, err
	}

	said, err := up()
	if err != nil || paused != 20 || !strings.Contains(said, "warning: job test-mnist has not started to train "+
		"within 1m0s (wait): its master is not created yet. It is not given up: `elasticdl status test-mnist "+
		"--namespace=elasticdl`") {
		t.Errorf("after %d pauses: %v\n%s", paused, err, said)
	}
	if said, err = up(); err != nil || paused > 0 || strings.Contains(said, "has not started") {
		t.Errorf("an update without a new job: %d pauses, %v\n%s", paused, err, said)
	}

	e.set("elasticdl:job.numEpochs", 7)
	conditions = []any{provider.Props{"type": "elasticdl.dev/Running", "status": "True"}}
	if said, err = up(); err != nil || paused != 3 ||
		!strings.Contains(said, "job test-mnist: training has started, 9s after") {
		t.Errorf("after %d pauses: %v\n%s", paused, err, said)
	}

	e.set("elasticdl:job.numEpochs", 8)
	conditions = []any{provider.Props{"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded",
		"message": "no data"}}
	if said, err = up(); err == nil || paused != 3 || !strings.Contains(err.Error(),
		"job test-mnist has failed: BackoffLimitExceeded: no data: see `elasticdl logs test-mnist "+
			"--namespace=elasticdl`") {
		t.Errorf("after %d pauses: %v\n%s", paused, err, said)
	}
	if said, err = up(); err != nil || paused > 0 {
		t.Errorf("the next update: %d pauses, %v\n%s", paused, err, said)
	}

	e.set("elasticdl:job.numEpochs", 9)
	e.set("elasticdl:wait", "0")
	if said, err = up(); err != nil || paused > 0 || strings.Contains(said, "has not started") {
		t.Errorf("with wait: 0: %d pauses, %v\n%s", paused, err, said)
	}
}
