//go:build e2e

package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// startedOver checks that a job that lost a part of its model reports that everywhere, and that its
// final model is trained.
func (j *submitted) startedOver(epochs int64) {
	j.t.Helper()
	s := j.ends(epochs)
	if s.ModelGeneration < 2 || !strings.Contains(s.RollbackReason, "lost") {
		j.t.Errorf("model generation %d, %q: the status does not say that the training started over",
			s.ModelGeneration, s.RollbackReason)
	}
	if len(grep(j.log("master"), "The training starts over")) == 0 {
		j.t.Error("the master's log does not say that the training started over")
	}
	if out := j.elasticdl("status", j.job); len(grep(out, "started over")) == 0 {
		j.t.Errorf("elasticdl status does not say that the training started over:\n%s", out)
	}
	if !j.eventReported("Warning", "TrainingStartedOver") {
		j.t.Errorf("no event says that the training started over:\n%s",
			j.kubectl("events", "--for=job/elasticdl-"+j.job+"-master"))
	}
	if n := len(s.Evaluations); n == 0 {
		j.t.Error("nothing was evaluated")
	} else {
		accurate(j.t, s.Evaluations[n-1].Metrics["accuracy"])
	}
}

// checkpoints returns the flags of a job whose pods mount a volume for its checkpoints.
func (ns *namespace) checkpoints() []string {
	dir, err := os.MkdirTemp(filepath.Dir(digits), "checkpoints-")
	if err == nil {
		ns.t.Cleanup(func() { os.RemoveAll(dir) })
		err = os.Chmod(dir, 0o777)
	}
	if err != nil {
		ns.t.Fatal(err)
	}
	return []string{"--volume=host_path=" + digits + ",mount_path=/data;host_path=" + dir +
		",mount_path=/ckpt", "--checkpoint_dir=/ckpt/model", "--checkpoint_steps=200"}
}

// rolledBack checks that a job that lost a part of its model was rolled back to a checkpoint, and
// reports that in its status and by an event.
func (j *submitted) rolledBack(epochs int64) {
	j.t.Helper()
	s := j.ends(epochs)
	if s.ModelGeneration < 2 || !strings.Contains(s.RollbackReason, "returned to checkpoint") {
		j.t.Errorf("model generation %d, %q: the status does not say that the training returned "+
			"to a checkpoint", s.ModelGeneration, s.RollbackReason)
	}
	if !j.eventReported("Warning", "TrainingRolledBack") || j.eventReported("Warning", "TrainingStartedOver") {
		j.t.Errorf("the events do not say that the training returned to a checkpoint, and only "+
			"that:\n%s", j.kubectl("events", "--for=job/elasticdl-"+j.job+"-master"))
	}
	j.t.Log(s.RollbackReason)
	if want := epochs * trainingDigits; s.Checkpoint.GetRecords() != want {
		j.t.Errorf("the newest checkpoint is %v, want one of all %d records", s.Checkpoint, want)
	}
	if n := len(s.Evaluations); n == 0 {
		j.t.Error("nothing was evaluated")
	} else {
		accurate(j.t, s.Evaluations[n-1].Metrics["accuracy"])
	}
}

// Everything but the master is deleted at once at 30 % of the records.
func TestAllButTheMasterDeleted(t *testing.T) {
	t.Parallel()
	const epochs = 20
	ns := newNamespace(t)
	j := ns.train("stripped",
		slices.Concat(small, []string{mlp, "--num_epochs=20", "--num_ps_pods=2", "--num_workers=2",
			"--minibatch_size=64", "--num_minibatches_per_task=4"})...)
	j.trains(0.3)
	kept := j.uids("master")
	began := time.Now()
	ns.kubectl("delete", "pods", "-l",
		"elasticdl-job-name=stripped,elasticdl-replica-type in (ps,worker)", "--wait=false",
		"--grace-period=0", "--force")
	j.awaits("a new model generation", patience, func() bool {
		s := j.status()
		return s != nil && s.ModelGeneration > 1
	})
	took(t, "all but the master deleted to a new model generation", began)
	if now := j.uids("master"); !slices.Equal(now, kept) {
		t.Errorf("the master was disturbed: %v, before %v", now, kept)
	}
	j.startedOver(epochs)
}

// onBoth submits a job as spread does, and moves server 1 to the other node, so that each node has
// a server and two workers. The move itself begins a new model generation.
func (ns *namespace) onBoth(job, epochs string, more ...string) *submitted {
	ns.t.Helper()
	j := ns.spread(job, epochs, more...)
	ns.cordon(ns.nodes[0])
	before := j.uids("ps-1")[0]
	ns.kubectl("delete", "pod", "elasticdl-"+job+"-ps-1", "--wait=false")
	j.awaits("server 1 on the other node", patience, func() bool {
		o := j.pod("ps-1")
		return o.running() && o.Metadata.UID != before && o.Spec.NodeName == ns.nodes[1]
	})
	ns.kubectl("uncordon", ns.nodes[0])
	j.awaits("the second model generation", patience, func() bool {
		s := j.status()
		return s != nil && s.ModelGeneration == 2
	})
	// a checkpoint has records before the server has joined; its loss would cost nothing then
	j.goesOn(trainingDigits / 5)
	return j
}

// Both nodes are lost, one after the other: the first with a server and workers, the second with
// the master, all servers and the other workers. The job has checkpoints on a volume that both
// nodes mount: it is rolled back to the newest.
func TestNodesLost(t *testing.T) {
	t.Parallel()
	const epochs = 40
	ns := newNamespaceApart(t)
	j := ns.onBoth("halved", "40", ns.checkpoints()...)
	back := killed(t, ns.nodes[1])
	began := time.Now()
	j.awaits("server 1 on the node that is left, in a third model generation", patience, func() bool {
		o, s := j.pod("ps-1"), j.status()
		return o.running() && o.Spec.NodeName == ns.nodes[0] && s != nil && s.ModelGeneration == 3
	})
	took(t, "node killed with a server to the server replaced", began)
	back()
	j.awaits("4 workers again", patience, func() bool { return len(j.workers((*object).running)) == 4 })
	j.goesOn(trainingDigits / 10)

	master, done := j.uids("master")[0], j.done()
	back = killed(t, ns.nodes[0])
	began = time.Now()
	j.awaits("another master on the other node", patience, func() bool {
		o := j.pod("master")
		return o.running() && o.Metadata.UID != master && o.Spec.NodeName == ns.nodes[1]
	})
	took(t, "the other node killed, with all else, to another master", began)
	j.awaits("both servers on the other node, and the model's next generation", 2*patience, func() bool {
		s := j.status()
		return len(j.on(ns.nodes[1], (*object).running)) == 2 && j.pod("ps-0").running() && j.pod("ps-1").running() &&
			j.pod("ps-0").Spec.NodeName == ns.nodes[1] && j.pod("ps-1").Spec.NodeName == ns.nodes[1] &&
			s.ModelGeneration > 3
	})
	took(t, "the other node killed, with all else, to servers there", began)
	back()
	j.goesOn(trainingDigits / 10)
	took(t, "the other node killed, with all else, to further training", began)
	t.Logf("%d records were done before, %d are now", done, j.done())
	j.hurries()
	j.rolledBack(epochs)
	if log := j.log("master"); len(grep(log, "The training returns to a checkpoint")) == 0 {
		t.Error("the master's log does not say that the training returned to a checkpoint")
	}
}

// The kubelet of a node is killed, and the network works: a server that the cluster considers lost
// keeps running at the same time as its successor.
func TestKubeletLossWithServer(t *testing.T) {
	t.Parallel()
	// it must train for more than the minute after which the cluster notices, also on a quick
	// machine
	const epochs = 100
	ns := newNamespaceApart(t)
	j := ns.onBoth("doubled", "100")
	back := killed(t, kubelet(ns.nodes[1]))
	began := time.Now()
	j.awaits("server 1 on the node that is left, in a third model generation", patience, func() bool {
		o, s := j.pod("ps-1"), j.status()
		return o.running() && o.Spec.NodeName == ns.nodes[0] && s != nil && s.ModelGeneration == 3
	})
	took(t, "kubelet killed with a server to the server replaced", began)
	j.goesOn(trainingDigits / 10)
	back()
	j.hurries()
	j.startedOver(epochs)
}
