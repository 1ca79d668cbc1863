package role

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/elastic/timing"
	"github.com/elasticdl/elasticdl/trainer/runtime/notice"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// reportPause is the time between two attempts to report a notice to the master.
const reportPause = time.Second

// patience is the number of attempts after which the log says that they fail.
const patience = 10

// heed asks the cloud whether it takes this machine away, if the job wants that, and reports a
// notice to the master, which asks all pods of the machine to leave. It ends with ctx, or by the
// function that it returns.
func (r Role) heed(ctx context.Context, self *rpc.Self, log *slog.Logger) (end func()) {
	if r.Cloud == "" {
		return func() {}
	}
	ask, err := notice.Of(r.Cloud)
	if err != nil {
		log.Warn("The cloud is not asked for notices", "error", err)
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	var routine sync.WaitGroup
	routine.Go(func() {
		why, err := notice.Await(ctx, ask, log)
		if err != nil {
			return
		}
		log.Warn("This node will be taken away", "reason", why)
		if err := r.report(ctx, self, why, log); err != nil && ctx.Err() == nil {
			log.Warn("The master does not know that this node will be taken away", "error", err)
		}
	})
	return func() {
		cancel()
		routine.Wait()
	}
}

// report reports a notice to the master, until that has it, or does not know this pod any more.
func (r Role) report(ctx context.Context, self *rpc.Self, why string, log *slog.Logger) error {
	conn, err := rpc.Connect(r.Master, nil, self, rpc.Callee{ID: pod.ID{Role: pod.Master}})
	if err != nil {
		return err
	}
	defer conn.Close()
	client := wire.NewMasterClient(conn)
	for tries := 0; ; tries++ {
		limited, cancel := context.WithTimeout(ctx, timing.BeatLimit)
		_, err := client.ReportNotice(limited, &wire.ReportNoticeRequest{Why: why})
		cancel()
		if err == nil || status.Code(err) == codes.NotFound {
			return err
		}
		if tries == patience {
			log.Warn("The master does not take the notice yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(reportPause):
		}
	}
}
