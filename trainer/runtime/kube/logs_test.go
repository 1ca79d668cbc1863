package kube

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/logline"
	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

func begun(restarts int32) func(*core.Pod) {
	return func(p *core.Pod) {
		p.Status.ContainerStatuses = []core.ContainerStatus{{
			Name: p.Spec.Containers[1].Name, RestartCount: restarts,
			State: core.ContainerState{Running: &core.ContainerStateRunning{}},
		}}
	}
}

func stamped(seconds int, text string) string {
	return morning.Add(time.Duration(seconds)*time.Second+time.Nanosecond).Format(time.RFC3339Nano) + " " + text + "\n"
}

// answerLogs answers each request for a log. The fake cluster does not pass on the name of the pod.
func answerLogs(set *fake.Clientset, answer func(o *core.PodLogOptions) string) {
	set.PrependReactor("get", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
		if a.GetSubresource() != "log" {
			return false, nil, nil
		}
		o := a.(kubetesting.GenericAction).GetValue().(*core.PodLogOptions)
		return true, &runtime.Unknown{Raw: []byte(answer(o))}, nil
	})
}

// TestLogs checks that without following, each log is copied whole, by time, and of lines with the
// same time in the order of the pods. An earlier run of a container comes first, whatever its
// times.
func TestLogs(t *testing.T) {
	objects, _ := submitted(t, nil)
	c, set := testClient(append(objects,
		podOf(pod.ID{Role: pod.Worker, Index: 10}, core.PodFailed, exited(1, "Error", "")),
		podOf(pod.ID{Role: pod.Worker, Index: 2}, core.PodRunning, begun(1)),
		podOf(pod.ID{Role: pod.Worker, Index: 3}, core.PodPending, unschedulable),
		podOf(pod.ID{Role: pod.Master}, core.PodRunning, begun(0)))...)
	answerLogs(set, func(o *core.PodLogOptions) string {
		text := "now"
		if o.Previous {
			text = "before"
		}
		if o.SinceTime != nil {
			return stamped(1, "since")
		}
		if o.TailLines != nil && *o.TailLines == 1 {
			return stamped(1, "tail of "+o.Container)
		}
		return stamped(0, o.Container+" "+text) + strings.TrimSuffix(stamped(1, "unfinished"), "\n")
	})
	for _, test := range []struct {
		o    role.LogOptions
		want string
		err  string
	}{
		{role.LogOptions{Tail: -1},
			"[master] master now\n[worker-2] worker before\n[worker-10] worker now\n[master] unfinished\n" +
				"[worker-2] unfinished\n[worker-2] worker now\n[worker-2] unfinished\n[worker-10] unfinished\n", ""},
		{role.LogOptions{Pod: "worker-10", Tail: -1}, "worker now\nunfinished\n", ""},
		{role.LogOptions{Pod: "master", Tail: 1}, "tail of master\n", ""},
		{role.LogOptions{Tail: -1, Previous: true}, "[worker-2] worker before\n[worker-2] unfinished\n", ""},
		{role.LogOptions{Pod: "worker-2", Tail: -1, Previous: true}, "worker before\nunfinished\n", ""},
		{role.LogOptions{Pod: "master", Previous: true}, "",
			"log of the start before the last not found: the container of pod master of job test " +
				"has not been restarted"},
		{role.LogOptions{Pod: "master", Tail: -1, Since: time.Minute}, "since\n", ""},
		{role.LogOptions{Pod: "worker-3"}, "",
			"log of pod worker-3 of job test: it has not begun: Unschedulable: 0/2 nodes are available"},
		{role.LogOptions{Pod: "worker-1"}, "",
			`log of pod "worker-1" of job test not found (there are master, worker-2, worker-3, worker-10)`},
	} {
		var out strings.Builder
		err := c.Logs(t.Context(), "test", test.o, &out)
		if out.String() != test.want || (test.err == "") != (err == nil) || err != nil && err.Error() != test.err {
			t.Errorf("%+v: %v\n%swant\n%s", test.o, err, &out, test.want)
		}
	}
	if err := c.Logs(t.Context(), "ghost", role.LogOptions{}, nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("ghost: %v", err)
	}
	broken := errors.New("broken pipe")
	if err := c.Logs(t.Context(), "test", role.LogOptions{Tail: -1}, failing{broken}); !errors.Is(err, broken) {
		t.Errorf("nobody reads: %v", err)
	}
}

// TestLogsAreByTime checks that the lines of several pods are merged by time, whether they are
// followed or not. A line without a time follows the line before.
func TestLogsAreByTime(t *testing.T) {
	for _, follow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			objects, root := submitted(t, nil)
			conditioned(batch.JobComplete, "", "")(root)
			end := func(p *core.Pod) { exited(0, "Completed", "")(p) }
			c, set := testClient(append(objects,
				podOf(pod.ID{Role: pod.Master}, core.PodSucceeded, end),
				podOf(pod.ID{Role: pod.Worker, Index: 3}, core.PodSucceeded, end))...)
			answerLogs(set, func(o *core.PodLogOptions) string {
				switch {
				case o.SinceTime != nil:
					return ""
				case o.Container == "master":
					return stamped(1, "a") + stamped(5, "b") + stamped(6, "c")
				}
				return "before any time\n" + stamped(2, "d") + "  File of a traceback\n" +
					stamped(3, "e") + stamped(9, "f")
			})
			var out strings.Builder
			const want = "[worker-3] before any time\n[master] a\n[worker-3] d\n[worker-3]   File " +
				"of a traceback\n[worker-3] e\n[master] b\n[master] c\n[worker-3] f\n"
			if err := c.Logs(t.Context(), "test", role.LogOptions{Tail: -1, Follow: follow},
				&out); err != nil || out.String() != want {
				t.Errorf("follow %t: %v\n%swant\n%s", follow, err, &out, want)
			}
		})
	}
}

// TestLogsOfADeadNode checks that a log that cannot be read is noted without delay, and that the
// others are read.
func TestLogsOfADeadNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects, _ := submitted(t, nil)
		c, set := testClient(append(objects,
			podOf(pod.ID{Role: pod.Master}, core.PodRunning, begun(0)),
			podOf(pod.ID{Role: pod.Worker}, core.PodRunning, begun(0)))...)
		c.reached.Store(true)
		var notes strings.Builder
		c.notes = &notes
		answerLogs(set, func(*core.PodLogOptions) string { return stamped(0, "hello") })
		set.PrependReactor("get", "pods", func(a kubetesting.Action) (bool, runtime.Object, error) {
			if a.GetSubresource() != "log" ||
				a.(kubetesting.GenericAction).GetValue().(*core.PodLogOptions).Container != "master" {
				return false, nil, nil
			}
			return true, nil, api.NewInternalError(errors.New("dial tcp 10.0.0.1:10250: connect: connection refused"))
		})
		var out strings.Builder
		began := time.Now()
		err := c.Logs(t.Context(), "test", role.LogOptions{Tail: -1}, &out)
		if err != nil || out.String() != "[worker-0] hello\n" ||
			!strings.Contains(notes.String(), "logs of pod master: its node does not give it") ||
			time.Since(began) > time.Second {
			t.Errorf("%v after %v: %s, %s", err, time.Since(began), &out, &notes)
		}
	})
}

// TestTailOfACutConnection checks that no part of an incomplete line is written, so that the line
// is written once when it is sent again.
func TestTailOfACutConnection(t *testing.T) {
	var out strings.Builder
	l := &tail{put: func(line logline.Line) error {
		_, err := out.WriteString(line.Text)
		return err
	}}
	first := io.MultiReader(strings.NewReader(stamped(1, "one")+strings.TrimSuffix(stamped(2, "tw"),
		"\n")), iotest.ErrReader(io.ErrUnexpectedEOF))
	if err := l.copy(first); !errors.Is(err, errCut) {
		t.Errorf("cut: %v", err)
	}
	if err := l.copy(strings.NewReader(stamped(1, "one") + stamped(2, "two"))); err != nil ||
		out.String() != "one\ntwo\n" {
		t.Errorf("%v: %q", err, &out)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

// TestFollow checks that a broken connection neither loses nor repeats a line, that later pods are
// followed, and that the end of the job ends the call.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects, root := submitted(t, nil)
		master := podOf(pod.ID{Role: pod.Master}, core.PodRunning, begun(0))
		worker := podOf(pod.ID{Role: pod.Worker, Index: 4}, core.PodRunning, begun(0))
		c, set := testClient(append(objects, master)...)
		requests := 0
		answerLogs(set, func(o *core.PodLogOptions) string {
			if o.Container == "worker" {
				return stamped(9, "hello")
			}
			requests++
			switch {
			case o.SinceTime == nil:
				return stamped(1, "one") + stamped(2, "two") // then the connection breaks
			case !o.SinceTime.Equal(&meta.Time{Time: morning.Add(2*time.Second + time.Nanosecond)}):
				return stamped(3, "three")
			}
			return stamped(2, "two") + stamped(3, "three")
		})
		go func() {
			time.Sleep(10 * time.Second)
			set.CoreV1().Pods("default").Create(t.Context(), worker, meta.CreateOptions{})
			time.Sleep(10 * time.Second)
			for _, p := range []*core.Pod{master, worker} {
				p.Status.Phase = core.PodSucceeded
				exited(0, "Completed", "")(p)
				set.CoreV1().Pods("default").UpdateStatus(t.Context(), p, meta.UpdateOptions{})
			}
			conditioned(batch.JobComplete, "", "")(root)
			set.BatchV1().Jobs("default").UpdateStatus(t.Context(), root, meta.UpdateOptions{})
		}()
		var out strings.Builder
		began := time.Now()
		err := c.Logs(t.Context(), "test", role.LogOptions{Follow: true, Tail: -1}, &out)
		if want := "[master] one\n[master] two\n[master] three\n[worker-4] hello\n"; err != nil ||
			out.String() != want {
			t.Errorf("%v\n%swant\n%s", err, &out, want)
		}
		if took := time.Since(began); took < 20*time.Second || took > 25*time.Second || requests > 30 {
			t.Errorf("%d requests, %v", requests, took)
		}
	})
}

// TestFollowOfNothing checks that Logs returns when the job that it follows is deleted.
func TestFollowOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects, root := submitted(t, nil)
		c, set := testClient(objects...)
		go func() {
			time.Sleep(time.Minute)
			set.BatchV1().Jobs("default").Delete(t.Context(), root.Name, meta.DeleteOptions{})
		}()
		if err := c.Logs(t.Context(), "test", role.LogOptions{Follow: true}, failing{}); err != nil {
			t.Error(err)
		}
	})
}
