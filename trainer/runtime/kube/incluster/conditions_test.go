package incluster

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// testConditions returns a writer of conditions, the fake cluster with its Job, and its log.
func testConditions() (*conditionWriter, *fake.Clientset, *strings.Builder) {
	root := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test-master", Namespace: "default", UID: "the-job"},
		Status: batch.JobStatus{Active: 1, Conditions: []batch.JobCondition{
			{Type: batch.JobSuspended, Status: core.ConditionFalse, Reason: "JobResumed"}}}}
	set, log := fake.NewClientset(root), new(strings.Builder)
	w := newConditionWriter(set.BatchV1().Jobs("default"), "test", "the-job",
		slog.New(logline.New(log, slog.LevelInfo)))
	return w, set, log
}

// status returns a status with the condition Running.
func runningOf(status, message string) *wire.JobStatus {
	return &wire.JobStatus{Conditions: []*wire.Condition{{Type: "Running", Status: status, Reason: "Because",
		Message: message, LastTransitionUnixMs: 1500}}}
}

// conditionsOf returns the conditions of the Job, as text.
func conditionsOf(t *testing.T, set *fake.Clientset) string {
	t.Helper()
	root, err := set.BatchV1().Jobs("default").Get(context.Background(), "elasticdl-test-master", meta.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, c := range root.Status.Conditions {
		all = append(all, strings.TrimSpace(string(c.Type)+"="+string(c.Status)+" "+c.Message))
	}
	if root.Status.Active != 1 {
		t.Errorf("the status has %d active pods", root.Status.Active)
	}
	return strings.Join(all, ", ")
}

// patches counts the writes to the cluster.
func patches(set *fake.Clientset) (n int) {
	for _, a := range set.Actions() {
		if a.GetVerb() == "patch" {
			n++
		}
	}
	return n
}

// The conditions are written next to those of the Job controller: a changed status at once, but not
// more often than every three seconds; a changed message each minute; the last at the end.
func TestConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set, log := testConditions()
		w.start()
		w.hear(&wire.JobStatus{}) // of a job that could not begin
		expect := func(want string, writes int) {
			t.Helper()
			synctest.Wait()
			if got := conditionsOf(t, set); got != want || patches(set) != writes {
				t.Errorf("%s after %d writes, want %s after %d", got, patches(set), want, writes)
			}
		}
		expect("Suspended=False", 0)
		w.hear(runningOf("False", "1 of 2"))
		expect("elasticdl.dev/Running=False 1 of 2, Suspended=False", 1)
		w.hear(runningOf("False", "1 of 2"))
		w.hear(runningOf("True", "2 of 2"))
		time.Sleep(conditionEvery - time.Second)
		expect("elasticdl.dev/Running=False 1 of 2, Suspended=False", 1)
		time.Sleep(time.Second)
		expect("elasticdl.dev/Running=True 2 of 2, Suspended=False", 2)
		for range 50 {
			w.hear(runningOf("True", "3 of 3"))
			time.Sleep(time.Second)
		}
		expect("elasticdl.dev/Running=True 2 of 2, Suspended=False", 2)
		time.Sleep(messageEvery)
		expect("elasticdl.dev/Running=True 3 of 3, Suspended=False", 3)
		w.hear(runningOf("False", "at the end"))
		w.end()
		expect("elasticdl.dev/Running=False at the end, Suspended=False", 4)
		if log.Len() > 0 {
			t.Error(log)
		}
	})
}

// A Role that does not allow it is named once, and costs the job nothing.
func TestConditionsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set, log := testConditions()
		var refused atomic.Int32
		set.PrependReactor("patch", "jobs", func(kubetesting.Action) (bool, runtime.Object, error) {
			refused.Add(1)
			return true, nil, api.NewForbidden(schema.GroupResource{Group: "batch", Resource: "jobs/status"},
				"elasticdl-test-master", errors.New("no"))
		})
		w.start()
		w.hear(runningOf("False", ""))
		time.Sleep(time.Minute)
		w.hear(runningOf("True", ""))
		w.end()
		if refused.Load() != 2 || strings.Count(log.String(), "jobs/status in the master's Role") != 1 {
			t.Errorf("refused %d times:\n%s", refused.Load(), log)
		}
	})
}

// At the end no write outlasts the limit, although the API server does not answer.
func TestConditionsEndInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, set, _ := testConditions()
		set.PrependReactor("patch", "jobs", func(kubetesting.Action) (bool, runtime.Object, error) {
			return true, nil, api.NewServerTimeout(schema.GroupResource{}, "patch", 1)
		})
		w.start()
		w.hear(runningOf("False", ""))
		began := time.Now()
		w.end()
		if took := time.Since(began); took > eventLimit+requestLimit {
			t.Errorf("it took %v", took)
		}
	})
}
