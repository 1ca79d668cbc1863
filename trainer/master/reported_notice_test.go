package master

import (
	"context"
	"fmt"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/elasticdl/elasticdl/trainer/elastic/identity"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/wire"
)

// A notice that a pod has from its cloud goes to the runtime, which may not know the pod's node
// yet. Reports of a pod that was replaced are refused.
func TestReportedNotice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		known := false
		var heard []string
		w := start(t, func(c *Config) {
			c.TakenAway = func(id pod.ID, incarnation int, why string) bool {
				heard = append(heard, fmt.Sprintf("%v.%d: %s", id, incarnation, why))
				return known
			}
		})
		w.join()
		report := func(incarnation int) codes.Code {
			header := w.header(pod.ID{Role: pod.Worker, Index: 1})
			header.Incarnation = incarnation
			conn := w.speaker(func(context.Context, any) identity.Header { return header })
			_, err := wire.NewMasterClient(conn).ReportNotice(t.Context(), &wire.ReportNoticeRequest{Why: "AWS"})
			return status.Code(err)
		}
		for _, tt := range []struct {
			known       bool
			incarnation int
			want        codes.Code
		}{{false, 1, codes.Unavailable}, {true, 1, codes.OK}, {true, 0, codes.NotFound}} {
			known = tt.known
			if got := report(tt.incarnation); got != tt.want {
				t.Errorf("%+v: %v", tt, got)
			}
		}
		if len(heard) != 2 || heard[1] != "worker-1.1: AWS" {
			t.Errorf("heard %q", heard)
		}
	})
}
