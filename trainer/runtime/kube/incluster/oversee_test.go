package incluster

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	batch "k8s.io/api/batch/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/master"
)

// A master whose launcher is lost finds out that its Job is suspended or deleted.
func TestMasterOverseesItsJob(t *testing.T) {
	for _, change := range []string{"suspend", "delete"} {
		synctest.Test(t, func(t *testing.T) {
			root := &batch.Job{ObjectMeta: meta.ObjectMeta{Name: masterPod, Namespace: "default", UID: "the-job"}}
			set := fake.NewClientset(root)
			m := &kubeMaster{MasterConfig: MasterConfig{Job: "test", Namespace: "default", Client: kubetest.Set(set)},
				env: map[string]string{job.EnvUID: "the-job"}, log: slog.New(slog.DiscardHandler)}
			notices, ends := make(chan master.Notice, 1), make(chan error, 1)
			go m.oversee(context.Background(), t.Context(), notices, func(err error) { ends <- err })
			time.Sleep(time.Hour)
			synctest.Wait()
			if len(notices)+len(ends) > 0 {
				t.Fatal("it ends a job that is to continue")
			}
			jobs := set.BatchV1().Jobs("default")
			if change == "suspend" {
				root = root.DeepCopy()
				root.Spec.Suspend = new(true)
				if _, err := jobs.Update(t.Context(), root, meta.UpdateOptions{}); err != nil {
					t.Fatal(err)
				}
			} else if err := jobs.Delete(t.Context(), masterPod, meta.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(overseeEvery)
			synctest.Wait()
			suspended, deleted := len(notices) == 1 && <-notices == master.Suspend, len(ends) == 1
			if suspended != (change == "suspend") || deleted != (change == "delete") {
				t.Errorf("%s: suspended %t, ended %t", change, suspended, deleted)
			}
		})
	}
}
