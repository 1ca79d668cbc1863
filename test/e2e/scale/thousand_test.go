//go:build e2e

package scale

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
)

// replacedWithin limits the time until 100 workers that are killed at once run again.
const replacedWithin = 10 * time.Second

// A job of 1,000 workers on 200 nodes: the test measures how long it takes until all pods are
// created, run and are authenticated by their tokens, what that costs the master, and how soon 100
// workers that are killed at once are replaced. The latter is measured again if it is missed, up to
// attempts times.
func TestThousandWorkers(t *testing.T) {
	const workers, killed = 1000, 100
	s := open(t)
	begin := time.Now()
	job := &play{name: "thousand", minibatches: 40 * workers, batch: 2, perTask: 8, each: time.Second}
	s.submit(job, fmt.Sprintf("--num_workers=%d", workers))
	whole := func(what string, is func(*core.Pod) bool) time.Duration {
		s.until(what, 2*time.Minute, func() bool { return s.count(job.name, pod.Worker, is) >= workers })
		return time.Since(begin)
	}
	created := whole("creation of all workers", func(*core.Pod) bool { return true })
	bound := whole("scheduling of all workers", func(p *core.Pod) bool { return p.Spec.NodeName != "" })
	up := whole("running of all workers", running)
	s.until("certificates of all pods", 2*time.Minute, func() bool { return job.certified.Load() >= workers })
	certified := time.Since(begin)
	had, until := job.costUntilNow()
	if had == 0 || until == 0 {
		t.Error("what the master takes cannot be read from /proc")
	}

	var deleted, replaced, again time.Duration
	lost := 0 // how many workers were killed
	for range attempts {
		lost += killed
		deleted, replaced, again = s.strike(job, workers, killed, lost)
		if again < replacedWithin {
			break
		}
		t.Logf("missed: %d workers are replaced after %v", killed, again)
	}

	status := s.await(job, 3*time.Minute)
	peak, cores := job.cost()
	if status.Relaunched < int64(lost) {
		t.Errorf("%d pods were replaced, want %d at least", status.Relaunched, lost)
	}
	var b strings.Builder
	row := func(what, value, limit string) { fmt.Fprintf(&b, "%-62s %10s  %s\n", what, value, limit) }
	round := func(d time.Duration) string { return d.Round(10 * time.Millisecond).String() }
	row(fmt.Sprintf("%d workers: all created", workers), round(created), "< 30s")
	row("all bound", round(bound), "")
	row("all running", round(up), "")
	row("all with a certificate", round(certified), "")
	row("master until then: largest memory", fmt.Sprintf("%d MB", had>>20), "< 300 MB")
	row("master until then: processors, mean", fmt.Sprintf("%.2f", until), "< 1")
	row(fmt.Sprintf("%d killed (deletions took %s): all created again", killed, round(deleted)), round(replaced), "")
	row("all running again", round(again), fmt.Sprint("< ", replacedWithin))
	row("master: largest memory", fmt.Sprintf("%d MB", peak>>20), "< 300 MB")
	row("master: processors, mean of its generation", fmt.Sprintf("%.2f", cores), "< 1")
	row("leases taken back", fmt.Sprint(status.Requeued), "")
	row("the whole job", round(time.Since(begin)), "")
	t.Logf("\n%s", &b)
	for _, c := range []struct {
		what  string
		value float64
		limit float64
	}{
		{"seconds until all workers are created", created.Seconds(), 30},
		{"MB of the master when all pods have certificates", float64(had >> 20), 300},
		{"processors of the master until all pods have certificates", until, 1},
		{"seconds until those that were killed are replaced", again.Seconds(), replacedWithin.Seconds()},
		{"MB of the master", float64(peak >> 20), 300},
		{"processors of the master", cores, 1},
	} {
		if c.value >= c.limit {
			t.Errorf("%s: %.2f, want less than %v", c.what, c.value, c.limit)
		}
	}
}

// strike kills the oldest workers of a job that began with that many. It returns how long their
// deletion takes, and until all that were ever killed are replaced by pods that are created, and
// that run.
func (s *theatre) strike(job *play, workers, killed, ever int) (deleted, created, up time.Duration) {
	began := time.Now()
	var killing sync.WaitGroup
	for _, p := range s.oldest(job.name, killed) {
		killing.Go(func() {
			if err := s.set.CoreV1().Pods(s.namespace).Delete(s.Context(), p.Name, meta.DeleteOptions{}); err != nil {
				s.Error(err)
			}
		})
	}
	killing.Wait()
	deleted = time.Since(began)
	fresh := func(what string, is func(*core.Pod) bool) time.Duration {
		s.until(what, time.Minute, func() bool {
			return s.count(job.name, pod.Worker, func(p *core.Pod) bool {
				return serial(p) >= workers && is(p)
			}) >= ever
		})
		return time.Since(began)
	}
	created = fresh("creation of replacements", func(*core.Pod) bool { return true })
	return deleted, created, fresh("running of replacements", running)
}

// oldest returns the first n workers of a job, by number.
func (s *theatre) oldest(job string, n int) []*core.Pod {
	all, err := s.pods.List(
		labels.SelectorFromSet(labels.Set{manifest.LabelJob: job, manifest.LabelRole: pod.Worker.String()}))
	if err != nil || len(all) < n {
		s.Fatalf("%d workers, want %d: %v", len(all), n, err)
	}
	slices.SortFunc(all, func(a, b *core.Pod) int { return cmp.Compare(serial(a), serial(b)) })
	return all[:n]
}

// serial returns the number of a pod.
func serial(p *core.Pod) int {
	_, id, _, _ := manifest.ParseLabels(p.Labels)
	return id.Index
}

// costUntilNow returns the peak memory of the running master so far, in bytes, and the mean number
// of processors that it has used.
func (j *play) costUntilNow() (peak int64, cores float64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", j.master.Process.Pid))
	_, rest, _ := strings.Cut(string(text), ") ") // skips the program's name
	var ticks float64                             // in hundredths of a second
	if words := strings.Fields(rest); len(words) > 12 {
		// CPU time of the program, and of the kernel on its behalf
		for _, word := range words[11:13] {
			n, _ := strconv.ParseFloat(word, 64)
			ticks += n
		}
	}
	return resident(j.master.Process.Pid), ticks / 100 / time.Since(j.started).Seconds()
}

// cost returns the peak memory of a master that has ended, in bytes, and the mean number of
// processors that it has used.
func (j *play) cost() (peak int64, cores float64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	cpu := j.master.ProcessState.UserTime() + j.master.ProcessState.SystemTime()
	return j.peak, cpu.Seconds() / j.ended.Sub(j.started).Seconds()
}
