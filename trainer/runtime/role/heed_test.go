package role

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/test/speak"
	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/job"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// noticed is a master that hears of notices, and does not take the first attempt.
type noticed struct {
	wire.UnimplementedMasterServer
	heard chan string
	tries int
}

func (n *noticed) ReportNotice(ctx context.Context, r *wire.ReportNoticeRequest) (*wire.ReportNoticeReply, error) {
	if n.tries++; n.tries == 1 {
		return nil, status.Error(codes.Unavailable, "the node is not known yet")
	}
	n.heard <- rpc.Caller(ctx).ID().String() + ": " + r.Why
	return new(wire.ReportNoticeReply), nil
}

// A server or worker whose cloud announces that it takes the machine away reports that to its
// master until the master has it. One that is not to ask the cloud does not.
func TestHeedsItsCloud(t *testing.T) {
	asked := make(chan struct{}, 100)
	cloud := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked <- struct{}{}
		w.Write([]byte("TRUE"))
	}))
	defer cloud.Close()
	t.Setenv("GCE_METADATA_HOST", strings.TrimPrefix(cloud.URL, "http://"))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := rpc.NewServer(speak.Self(identity.Header{Job: "uid", Role: pod.Master, Incarnation: 1}), true)
	master := &noticed{heard: make(chan string, 100)}
	wire.RegisterMasterServer(server, master)
	go server.Serve(listener)
	defer server.Stop()
	self := speak.Self(identity.Header{Job: "uid", Role: pod.Worker, Index: 3, Incarnation: 2, Master: 1})
	r := Role{Master: listener.Addr().String()}
	r.heed(t.Context(), self, slog.New(slog.DiscardHandler))()
	if len(asked) > 0 {
		t.Error("it asked a cloud that the job does not name")
	}
	r.Cloud = job.NoticeGCE
	end := r.heed(t.Context(), self, slog.New(slog.DiscardHandler))
	if got := <-master.heard; got != "worker-3: GCE announces: preempted" {
		t.Errorf("the master heard %q", got)
	}
	end()
	r.heed(t.Context(), self, slog.New(slog.DiscardHandler))() // it ends, whatever it does
}
