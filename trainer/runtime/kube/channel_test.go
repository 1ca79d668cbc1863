package kube

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"

	"github.com/elasticdl/elasticdl/test/kubetest"
	"github.com/elasticdl/elasticdl/trainer/elastic/pod"
	"github.com/elasticdl/elasticdl/trainer/runtime/manifest"
	"github.com/elasticdl/elasticdl/trainer/wire"
	"github.com/elasticdl/elasticdl/trainer/wire/rpc"
)

// forwarder is an API server with one pod, whose port it forwards.
type forwarder struct {
	*httptest.Server
	pod *core.Pod
	// refuses web sockets, as an old cluster does
	old bool
	// refuses to forward, as one without the permission does
	forbidden string
	// listener in the pod; nil: nothing listens
	port net.Listener
	// number of upgrades by web socket and by SPDY
	sockets, plain atomic.Int32
}

// viewed is the service of a master.
type viewed struct {
	wire.UnimplementedJobServer
}

func (viewed) Watch(context.Context, *wire.WatchRequest) (*wire.WatchReply, error) {
	return &wire.WatchReply{Status: &wire.JobStatus{Name: "test", RecordsDone: 7},
		Journal: []byte(`{"last":1,"entries":[{"n":1,"kind":"JobStarted"}]}`),
		Curve:   []byte(`{"every":1000}`)}, nil
}

func (viewed) Stacks(context.Context, *wire.StacksRequest) (*wire.StacksReply, error) {
	return nil, status.Error(codes.FailedPrecondition, "only programs have stacks")
}

// forwards starts an API server with a pod of a master that serves users.
func forwards(t *testing.T) (*forwarder, *Client) {
	t.Helper()
	f := &forwarder{pod: &core.Pod{
		ObjectMeta: meta.ObjectMeta{Name: "elasticdl-test-master", Namespace: "research",
			Labels: manifest.PodLabels("test", pod.ID{Role: pod.Master})},
		Status: core.PodStatus{Phase: core.PodRunning}}}
	f.Server = httptest.NewServer(f)
	t.Cleanup(f.Close)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f.port = lis
	srv := rpc.NewOpenServer()
	wire.RegisterJobServer(srv, viewed{})
	served := make(chan error, 1)
	go func() { served <- srv.Serve(lis) }()
	t.Cleanup(func() {
		srv.Stop()
		<-served
	})
	kubeconfig := filepath.Join(t.TempDir(), "config")
	text := "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: '" + f.URL +
		"'}}], contexts: [{name: c, context: {cluster: c, namespace: research}}]}"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Connect(Place{Kubeconfig: kubeconfig, Patience: -1})
	if err != nil {
		t.Fatal(err)
	}
	return f, c
}

func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const path = "/api/v1/namespaces/research/pods/elasticdl-test-master"
	switch {
	case r.URL.Path == path && f.pod != nil:
		f.answer(w, http.StatusOK, f.pod)
	case r.URL.Path != path+"/portforward":
		missing := api.NewNotFound(core.Resource("x"), "x").ErrStatus
		f.answer(w, http.StatusNotFound, &missing)
	case f.forbidden != "":
		denied := kubetest.Forbidden(f.forbidden, "pods/portforward").(*api.StatusError).ErrStatus
		f.answer(w, http.StatusForbidden, &denied)
	case websocket.IsWebSocketUpgrade(r) && f.old:
		f.answer(w, http.StatusBadRequest, &meta.Status{Status: meta.StatusFailure, Code: http.StatusBadRequest,
			Message: "you must specify Upgrade: SPDY/3.1"})
	case websocket.IsWebSocketUpgrade(r):
		f.sockets.Add(1)
		upgrader := websocket.Upgrader{Subprotocols: []string{"SPDY/3.1+" + portforward.PortForwardProtocolV1Name}}
		ws, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			return
		}
		conn, err := spdy.NewServerConnection(portforward.NewTunnelingConnection("server", ws), f.streams())
		if err == nil {
			<-conn.CloseChan()
		}
	default:
		f.plain.Add(1)
		if _, err := httpstream.Handshake(r, w, []string{portforward.PortForwardProtocolV1Name}); err != nil {
			return
		}
		if conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, f.streams()); conn != nil {
			<-conn.CloseChan()
		}
	}
}

func (f *forwarder) answer(w http.ResponseWriter, code int, object any) {
	switch o := object.(type) {
	case *core.Pod:
		o.TypeMeta = meta.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	case *meta.Status:
		o.TypeMeta = meta.TypeMeta{APIVersion: "v1", Kind: "Status"}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(object)
}

// streams returns what a kubelet does with the two streams of a connection.
func (f *forwarder) streams() httpstream.NewStreamHandler {
	var errs httpstream.Stream
	return func(s httpstream.Stream, replied <-chan struct{}) error {
		if s.Headers().Get(core.PortHeader) != "50003" {
			return errors.New("another port: " + s.Headers().Get(core.PortHeader))
		}
		if s.Headers().Get(core.StreamType) == core.StreamTypeError {
			errs = s
			return nil
		}
		go func() {
			<-replied
			defer errs.Close()
			defer s.Close()
			if f.port == nil {
				io.WriteString(errs, "failed to connect to localhost:50003 inside namespace: connection refused")
				return
			}
			conn, err := net.Dial("tcp", f.port.Addr().String())
			if err != nil {
				return
			}
			go func() {
				io.Copy(conn, s)
				conn.Close()
			}()
			io.Copy(s, conn)
		}()
		return nil
	}
}

// A user reaches the master through the API server: by a web socket, or by SPDY where the cluster
// knows no other.
func TestChannel(t *testing.T) {
	for _, old := range []bool{false, true} {
		f, c := forwards(t)
		f.old = old
		ch, err := c.Channel(t.Context(), "test")
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			v, err := ch.View(t.Context())
			if err != nil || v.Status.RecordsDone != 7 || len(v.Journal.Entries) != 1 || v.Curve.Every != 1000 ||
				v.Status.Namespace != "research" || len(v.Status.Pods) != 1 ||
				v.Status.Pods[0].Role != wire.Role_MASTER {
				t.Errorf("%+v, %v", v, err)
			}
		}
		if _, err := ch.Stacks(t.Context()); err == nil || errors.Is(err, ErrNoChannel) ||
			!strings.Contains(err.Error(), "job test: only programs have stacks") {
			t.Errorf("stacks: %v", err)
		}
		if err := ch.Close(); err != nil {
			t.Error(err)
		}
		if _, err := ch.View(t.Context()); err == nil {
			t.Error("a call on a closed channel")
		}
		if sockets, plain := f.sockets.Load(), f.plain.Load(); sockets+plain != 1 || (plain == 1) != old {
			t.Errorf("old %t: %d web sockets, %d by SPDY", old, sockets, plain)
		}
	}
}

// The error says why a master cannot be asked, and which permission is missing.
func TestNoChannel(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*forwarder)
		want   string
		is     error
	}{
		"no permission": {func(f *forwarder) { f.forbidden = "create" },
			`cannot create resource "pods/portforward"; an administrator of the cluster can allow it: verbs get and ` +
				`create of pods/portforward in namespace research`, nil},
		"pending":   {func(f *forwarder) { f.pod.Status.Phase = core.PodPending }, "does not run", ErrNoChannel},
		"of a node": {func(f *forwarder) { f.pod.Spec.HostNetwork = true }, "hostNetwork", ErrNoChannel},
		"no job":    {func(f *forwarder) { f.pod = nil }, "job test not found in namespace research", ErrNotFound},
		"nothing listens": {func(f *forwarder) { f.port = nil }, "nothing listens at port 50003 of its pod",
			ErrNoChannel},
	} {
		f, client := forwards(t)
		c.change(f)
		_, err := client.Stacks(t.Context(), "test")
		if err == nil || !strings.Contains(err.Error(), c.want) || c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A request that ends while the cluster does not answer leaves no connection.
func TestChannelInterrupted(t *testing.T) {
	_, c := forwards(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if ch, err := c.Channel(ctx, "test"); err == nil {
		ch.Close()
		t.Error("connected, although the context had ended")
	}
	if f, err := c.forward(ctx, "elasticdl-test-master", 50003); err == nil {
		f.Close()
		t.Error("forwarded, although the context had ended")
	}
}

// The end of a forwarded connection has its reason.
func TestForwardedEnd(t *testing.T) {
	f, c := forwards(t)
	f.port = nil
	conn, err := c.forward(t.Context(), "elasticdl-test-master", 50003)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Read(make([]byte, 1)); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("%v", err)
	}
	if err := conn.SetDeadline(time.Now()); !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("a deadline: %v", err)
	}
}
