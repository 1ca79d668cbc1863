package incluster

import (
	"errors"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/elasticdl/elasticdl/trainer/master"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

func emptyState() *core.ConfigMap {
	return &core.ConfigMap{ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test-state", Namespace: "default"}}
}

// testRecorders returns the recorders of n masters of one job that have not begun.
func testRecorders(t *testing.T, n int) (*apiServer, []*recorder) {
	s := newAPIServer(t)
	s.put(emptyState())
	var all []*recorder
	for range n {
		all = append(all, newRecorder(s.client().CoreV1().ConfigMaps("default"), "default", "test",
			"the-job", "master on node-1", slog.New(slog.DiscardHandler)))
	}
	return s, all
}

// Masters that begin at the same time get different incarnations, and only the last may write.
func TestIncarnationsAreSwapped(t *testing.T) {
	s, all := testRecorders(t, 4)
	var began sync.WaitGroup
	for _, r := range all {
		began.Go(func() {
			if _, err := r.begin(t.Context(), &wire.JobStatus{State: "Pending"}); err != nil {
				t.Error(err)
			}
		})
	}
	began.Wait()
	numbers := make(map[int]*recorder)
	for _, r := range all {
		numbers[r.incarnation] = r
	}
	for n := 1; n <= len(all); n++ {
		r := numbers[n]
		if r == nil {
			t.Fatalf("incarnations %v", numbers)
		}
		err := errors.Join(r.Write(t.Context(), []byte("{}")), r.write(t.Context(), &wire.JobStatus{State: "Running"}))
		if (n == len(all)) != (err == nil) || err != nil && !errors.Is(err, master.ErrSuperseded) {
			t.Errorf("incarnation %d writes: %v", n, err)
		}
	}
	if p, err := pastOf(s.maps["elasticdl-test-state"], "the-job"); err != nil || p.incarnation != 4 ||
		string(p.record) != "{}" || p.status.State != "Running" {
		t.Errorf("%+v, %v", p, err)
	}
}

// A superseded master that has a copy of the state does not overwrite what a later one has written.
func TestSupersededWriterWritesNothing(t *testing.T) {
	s, all := testRecorders(t, 2)
	first, second := all[0], all[1]
	if _, err := first.begin(t.Context(), &wire.JobStatus{State: "Pending"}); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(first.Write(t.Context(), []byte(`"one"`)),
		first.write(t.Context(), &wire.JobStatus{State: "Running", RecordsDone: 1})); err != nil {
		t.Fatal(err)
	}
	p, err := second.begin(t.Context(), &wire.JobStatus{State: "Pending"})
	if err != nil || p.incarnation != 1 || string(p.record) != `"one"` || p.status.RecordsDone != 1 {
		t.Fatalf("%+v, %v", p, err)
	}
	if err := second.Write(t.Context(), []byte(`"two"`)); err != nil {
		t.Fatal(err)
	}
	before := maps.Clone(s.maps["elasticdl-test-state"].Data)
	if err := first.Write(t.Context(), []byte(`"three"`)); !errors.Is(err, master.ErrSuperseded) {
		t.Errorf("a record: %v", err)
	}
	if err := first.write(t.Context(), &wire.JobStatus{State: "Succeeded"}); !errors.Is(err, master.ErrSuperseded) {
		t.Errorf("a status: %v", err)
	}
	if now := s.maps["elasticdl-test-state"].Data; !maps.Equal(now, before) {
		t.Errorf("it wrote: %v, was %v", now, before)
	}
}

// The state that an earlier Job of the same name has left is not used.
func TestRecordOfAnotherJob(t *testing.T) {
	s, all := testRecorders(t, 2)
	for i, r := range all {
		r.uid = []string{"the-job-before", "the-job"}[i]
		p, err := r.begin(t.Context(), &wire.JobStatus{State: "Pending"})
		if err != nil || p.incarnation != 0 || p.record != nil || p.status != nil || r.incarnation != 1 {
			t.Errorf("%s: %+v, %v", r.uid, p, err)
		}
		if record := s.maps["elasticdl-test-state"].Data[manifest.KeyRecord]; record != "" {
			t.Errorf("%s finds %s", r.uid, record)
		}
		if err := errors.Join(r.Write(t.Context(), []byte("{}")),
			r.write(t.Context(), &wire.JobStatus{State: "Running"})); err != nil {
			t.Error(err)
		}
	}
	if err := all[0].Write(t.Context(), []byte("{}")); !errors.Is(err, master.ErrSuperseded) {
		t.Errorf("a master of the Job before writes: %v", err)
	}
}

// A record is stored when Write returns, and does not wait for the next status.
func TestRecordsAreNotPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := fake.NewClientset(emptyState())
		maps := set.CoreV1().ConfigMaps("default")
		r := newRecorder(maps, "default", "test", "the-job", "master", slog.New(slog.DiscardHandler))
		if _, err := r.begin(t.Context(), &wire.JobStatus{State: "Pending"}); err != nil {
			t.Fatal(err)
		}
		go r.run(t.Context())
		r.setStatus(&wire.JobStatus{State: "Running", RecordsDone: 1})
		synctest.Wait()
		began := time.Now()
		for _, record := range []string{"1", "2", "3"} {
			r.setStatus(&wire.JobStatus{State: "Running", RecordsDone: 2})
			if err := r.Write(t.Context(), []byte(record)); err != nil {
				t.Fatal(err)
			}
			there, err := maps.Get(t.Context(), "elasticdl-test-state", meta.GetOptions{})
			if err != nil || there.Data[manifest.KeyRecord] != record ||
				!strings.Contains(there.Data[manifest.KeyStatus], `"recordsDone":"1"`) &&
					!strings.Contains(there.Data[manifest.KeyStatus], `"recordsDone": "1"`) {
				t.Errorf("%v, %v", there, err)
			}
		}
		if d := time.Since(began); d > 0 {
			t.Errorf("written within %v", d)
		}
		time.Sleep(2 * stateEvery)
		if there, err := maps.Get(t.Context(), "elasticdl-test-state", meta.GetOptions{}); err != nil ||
			there.Data[manifest.KeyRecord] != "3" || !strings.Contains(there.Data[manifest.KeyStatus], `"2"`) {
			t.Errorf("%v, %v", there, err)
		}
	})
}

// The largest record and the largest status fit into a ConfigMap together. A larger record is
// refused before it is sent.
func TestRecordFits(t *testing.T) {
	set := fake.NewClientset(emptyState())
	r := newRecorder(set.CoreV1().ConfigMaps("default"), "default", "test", "the-job", "master",
		slog.New(slog.DiscardHandler))
	if _, err := r.begin(t.Context(), &wire.JobStatus{State: "Pending"}); err != nil {
		t.Fatal(err)
	}
	if err := r.Write(t.Context(), make([]byte, master.MostRecord+1)); err == nil ||
		!strings.Contains(err.Error(), "elasticdl-test-state") {
		t.Errorf("%v", err)
	}
	if master.MostRecord+stateLimit > 950_000 { // a ConfigMap may have 2^20 bytes
		t.Errorf("%d bytes are too much", master.MostRecord+stateLimit)
	}
}

// FuzzPast checks that any stored state is read, or refused with an error that names the ConfigMap.
func FuzzPast(f *testing.F) {
	f.Add("the-job", "3", "a on b", "{}", `{"state":"Running"}`)
	f.Add("another", "3", "a on b", "{}", `{"state":"Succeeded"}`)
	f.Add("", "", "", "", "")
	f.Add("the-job", "-1", "", "", "{")
	f.Add("the-job", "9999999999", "", "", "{")
	f.Fuzz(func(t *testing.T, uid, incarnation, me, record, status string) {
		state := emptyState()
		state.Data = map[string]string{manifest.KeyUID: uid, keyIncarnation: incarnation, keyMaster: me,
			manifest.KeyRecord: record, manifest.KeyStatus: status}
		p, err := pastOf(state, "the-job")
		switch {
		case err != nil && !strings.Contains(err.Error(), state.Name):
			t.Errorf("%v", err)
		case err == nil && (p.incarnation < 0 || p.incarnation+1 > mostIncarnations):
			t.Errorf("incarnation %d", p.incarnation)
		case uid == "another" && (p.incarnation != 0 || p.record != nil || p.status != nil):
			t.Errorf("that of another job: %+v", p)
		}
	})
}

// A status of which only the signs of life have changed is written seldom, and one with other news
// at once.
func TestSignsOfLifeAreWrittenSeldom(t *testing.T) {
	status := func(change func(*wire.JobStatus)) *wire.JobStatus {
		s := &wire.JobStatus{State: "Running",
			Pods: []*wire.PodStatus{
				{Index: 1, Processes: []*wire.ProcessStatus{{Pid: 7, Cores: 1, Output: "step 1", OutputUnixMs: 5}}}}}
		change(s)
		return s
	}
	process := func(s *wire.JobStatus) *wire.ProcessStatus { return s.Pods[0].Processes[0] }
	before := status(func(*wire.JobStatus) {})
	for name, c := range map[string]struct {
		change func(*wire.JobStatus)
		soon   bool
		late   bool
	}{
		"nothing":          {func(*wire.JobStatus) {}, false, false},
		"cores":            {func(s *wire.JobStatus) { process(s).Cores = 2 }, false, true},
		"output":           {func(s *wire.JobStatus) { process(s).Output = "step 2" }, false, true},
		"time of output":   {func(s *wire.JobStatus) { process(s).OutputUnixMs = 6 }, false, true},
		"a pid":            {func(s *wire.JobStatus) { process(s).Pid = 8 }, true, true},
		"a rank":           {func(s *wire.JobStatus) { process(s).Rank = 8 }, true, true},
		"no process":       {func(s *wire.JobStatus) { s.Pods[0].Processes = nil }, true, true},
		"an incident":      {func(s *wire.JobStatus) { s.History = []*wire.Incident{{Text: "x"}} }, true, true},
		"the end, and all": {func(s *wire.JobStatus) { s.State, process(s).Cores = "Failed", 0 }, true, true},
	} {
		now := status(c.change)
		if soon, late := worthWriting(now, before, stateEvery),
			worthWriting(now, before, signsEvery); soon != c.soon || late != c.late {
			t.Errorf("%s: soon %t, late %t", name, soon, late)
		}
		if want := status(c.change); now.String() != want.String() {
			t.Errorf("%s: the status has changed: %v", name, now)
		}
	}
}

// A status that is too large loses the processes of its pods before it loses pods.
func TestStateOfManyProcesses(t *testing.T) {
	s := &wire.JobStatus{Name: "test", State: "Running"}
	for i := range 1000 {
		p := &wire.PodStatus{Role: wire.Role_WORKER, Index: int32(i), State: "Running"}
		for pid := range 8 {
			p.Processes = append(p.Processes, &wire.ProcessStatus{Pid: int32(pid), Output: strings.Repeat("é", 160)})
		}
		s.Pods = append(s.Pods, p)
	}
	text, err := encode(s, "default")
	got := new(wire.JobStatus)
	if err := errors.Join(err, protojson.Unmarshal(text, got)); err != nil {
		t.Fatal(err)
	}
	if len(text) > stateLimit || len(got.Pods) != 1000 || len(got.Pods[0].Processes) != 0 ||
		len(s.Pods[0].Processes) != 8 {
		t.Errorf("%d bytes, %d pods", len(text), len(got.Pods))
	}
}
