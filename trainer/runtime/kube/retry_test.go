package kube

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	api "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubetesting "k8s.io/client-go/testing"

	"github.com/elasticdl/elasticdl/test/kubetest"
)

// webhookFails is the answer of an API server whose admission webhook cannot be reached.
var webhookFails = api.NewInternalError(
	errors.New(
		`failed calling webhook "pods.example.com": failed to call webhook: Post "https://hook.example.svc:443/": dial tcp 10.0.0.7:443: connect: connection refused`))

// A request that is repeated says every half minute what is tried, how often, and until when, and
// at its end that it was given up. A user sets for how long.
func TestRepeatedRequestsAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		// as --retry_timeout gives it; 0: it is not given
		patience time.Duration
		// the cluster has not answered before
		fresh bool
		err   error
		lasts time.Duration
		notes int
		// of the first note
		says  string
		fails string
	}{
		"webhook": {err: webhookFails, lasts: 10 * time.Minute, notes: 20,
			says: "an admission webhook of the cluster does not work", fails: "; gave up after 10m0s and"},
		"API server": {err: kubetest.Refused, lasts: 10 * time.Minute, notes: 20,
			says:  "the cluster at https://cluster cannot be reached",
			fails: "connection refused; gave up after 10m0s and"},
		"too many requests": {err: api.NewTooManyRequests("slow down", 1), patience: 2 * time.Minute,
			lasts: 2 * time.Minute, notes: 4, says: "slow down", fails: "gave up after 2m0s"},
		"quota's conflict": {
			err: api.NewConflict(schema.GroupResource{Resource: "resourcequotas"}, "q",
				errors.New("the object has been modified")),
			patience: time.Minute, lasts: time.Minute, notes: 2, says: "the object has been modified",
			fails: "gave up after 1m0s",
		},
		"never answered, asked for": {err: kubetest.Refused, fresh: true, patience: time.Minute,
			lasts: time.Minute, notes: 2, says: "cannot be reached", fails: "gave up after"},
		"never answered": {err: kubetest.Refused, fresh: true, lasts: time.Second,
			fails: "create pod p: the cluster at https://cluster cannot be reached: dial tcp"},
		"webhook, not to be repeated": {err: webhookFails, patience: -1,
			fails: "create pod p: Internal error occurred: failed calling webhook"},
		"quota": {
			err: api.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "j",
				errors.New("exceeded quota: q, requested: configmaps=1, used: configmaps=9, limited: configmaps=9")),
			fails: "exceeded quota: q, requested: configmaps=1, used: configmaps=9, limited: " +
				"configmaps=9; jobs that have ended count, too: elasticdl list -n=a",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var notes strings.Builder
				client := &Client{server: "https://cluster", place: " -n=a", notes: &notes, patience: c.patience}
				client.reached.Store(!c.fresh)
				began := time.Now()
				_, err := ask(t.Context(), client, "create pod p", func(context.Context) (int, error) {
					return 0, c.err
				})
				if lasted := time.Since(began); err == nil || !strings.Contains(err.Error(), c.fails) ||
					!errors.Is(err, c.err) && !errors.Is(err, c.err.(interface{ Unwrap() error }).Unwrap()) ||
					lasted != c.lasts {
					t.Errorf("after %v: %v", lasted, err)
				}
				lines := strings.Split(strings.TrimSuffix(notes.String(), "\n"), "\n")
				if c.notes == 0 {
					if notes.Len() > 0 {
						t.Errorf("notes: %s", &notes)
					}
					return
				}
				until := began.Add(c.lasts).Format(time.TimeOnly)
				if len(lines) != c.notes || !strings.Contains(lines[0], c.says) {
					t.Errorf("%d notes, the first: %s", len(lines), lines[0])
				}
				for i, line := range lines {
					if !strings.HasPrefix(line, "note: create pod p: ") ||
						!strings.HasSuffix(line, "at most until "+until+" (--retry_timeout)") ||
						i > 0 == strings.Contains(line, "; attempt 1,") {
						t.Errorf("note %d: %s", i, line)
					}
				}
			})
		})
	}
}

// After a note on a request that is repeated, an answer is noted, once. Of a request that is
// answered before any note nothing is reported.
func TestAnAnswerIsReported(t *testing.T) {
	for name, c := range map[string]struct {
		fails int // number of attempts
		want  string
	}{
		"answered at once": {0, ""},
		"answered later":   {3, "note: create pod p: the cluster answers again"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var notes strings.Builder
				client := &Client{server: "https://cluster", notes: &notes}
				client.reached.Store(true)
				for range 2 {
					attempts := 0
					answer, err := ask(t.Context(), client, "create pod p", func(context.Context) (int, error) {
						if attempts++; attempts <= c.fails {
							return 0, webhookFails
						}
						return 7, nil
					})
					if answer != 7 || err != nil {
						t.Errorf("answer %d, %v", answer, err)
					}
					c.fails = 0
				}
				lines := strings.Split(strings.TrimSuffix(notes.String(), "\n"), "\n")
				if lines[len(lines)-1] != c.want ||
					strings.Count(notes.String(), "answers again") != min(1, len(c.want)) {
					t.Errorf("notes: %q, want %q at the end", lines, c.want)
				}
			})
		})
	}
}

// An interrupted submission reports the created objects, and whether they still exist. So is one
// whose submission fails.
func TestSubmitSaysWhatItLeaves(t *testing.T) {
	refuses := map[string]error{"webhook": webhookFails,
		"API server": &url.Error{Op: "Post", URL: "https://cluster", Err: kubetest.Refused.Err}}
	for name, c := range map[string]struct {
		err       error
		interrupt bool
		stays     bool // deleting fails, too
		want      []string
	}{
		"interrupted": {refuses["webhook"], true, false, []string{
			"interrupted: deleting what was created of job test: job/elasticdl-test-master, " +
				"configmap/elasticdl-test, configmap/elasticdl-test-state",
			"deleted again: job/elasticdl-test-master, configmap/elasticdl-test,",
		}},
		"interrupted while it is away": {refuses["API server"], true, true, []string{
			"interrupted: deleting what was created",
			"still there: job/elasticdl-test-master, configmap/elasticdl-test, " +
				"configmap/elasticdl-test-state; delete it with: elasticdl stop test --namespace=n, " +
				"or: kubectl delete job/elasticdl-test-master --namespace=n",
		}},
		"gives up": {refuses["webhook"], false, false, []string{"deleted again: job/elasticdl-test-master"}},
		"gives up, too": {refuses["API server"], false, true,
			[]string{"still there: job/elasticdl-test-master, configmap/elasticdl-test,"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, set := testClient()
				var notes strings.Builder
				client.notes, client.place = &notes, " --namespace=n"
				client.reached.Store(true)
				set.PrependReactor("create", "secrets", func(kubetesting.Action) (bool, runtime.Object, error) {
					return true, nil, c.err
				})
				if c.stays {
					set.PrependReactor("delete", "jobs", func(kubetesting.Action) (bool, runtime.Object, error) {
						return true, nil, c.err
					})
				}
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				if c.interrupt {
					time.AfterFunc(time.Minute, func() { cancel(fmt.Errorf("by Ctrl-C")) })
				}
				created, err := client.Submit(ctx, kubetest.Job())
				if err == nil || len(created) > 0 {
					t.Errorf("%v, %v", created, err)
				}
				for _, want := range c.want {
					if !strings.Contains(notes.String(), "note: "+want) {
						t.Errorf("notes lack %q:\n%s", want, &notes)
					}
				}
				if c.stays != strings.Contains(notes.String(), "still there") {
					t.Errorf("notes:\n%s", &notes)
				}
			})
		})
	}
}

// If it is not known whether the Job was created, that is reported.
func TestSubmitSaysWhatIsNotKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, set := testClient()
		var notes strings.Builder
		client.notes = &notes
		client.reached.Store(true)
		for _, verb := range []string{"create", "get"} {
			set.PrependReactor(verb, "jobs", func(a kubetesting.Action) (bool, runtime.Object, error) {
				return !isDry(a), nil, kubetest.Refused
			})
		}
		if _, err := client.Submit(t.Context(), kubetest.Job()); err == nil {
			t.Error("submitted")
		}
		if want := "whether job/elasticdl-test-master was created is not known: elasticdl status " +
			"test says it, and elasticdl stop test deletes it"; !strings.Contains(notes.String(), want) {
			t.Errorf("notes:\n%s", &notes)
		}
	})
}
