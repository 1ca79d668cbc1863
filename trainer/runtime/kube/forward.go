package kube

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
	"k8s.io/streaming/pkg/httpstream"

	"github.com/elasticdl/elasticdl/trainer/runtime/role"
)

// refusalLimit is the time that the end of a forwarded connection waits for its reason.
const refusalLimit = time.Second

// forwarded is a connection to a port of a pod. No port of this machine is opened for it: others
// could connect to that.
type forwarded struct {
	httpstream.Stream
	conn httpstream.Connection
	// closed when the other end has said all that it has to say about errors
	judged chan struct{}
	// why the pod could not be connected; nil: it was. Set before judged is closed.
	refused error
	close   sync.Once
}

// forward connects to a port of a pod.
func (c *Client) forward(ctx context.Context, pod string, port int) (*forwarded, error) {
	type result struct {
		*forwarded
		err error
	}
	made := make(chan result, 1)
	// a dialer knows no context: one that comes too late is closed
	go func() {
		f, err := c.dialForward(pod, port)
		if made <- (result{f, err}); ctx.Err() != nil {
			select {
			case r := <-made:
				if r.forwarded != nil {
					r.Close()
				}
			default:
			}
		}
	}()
	select {
	case r := <-made:
		return r.forwarded, r.err
	case <-ctx.Done():
		select {
		case r := <-made:
			if r.forwarded != nil {
				r.Close()
			}
		default:
		}
		return nil, context.Cause(ctx)
	}
}

// dialForward upgrades a request to the API server to a connection, and opens the two streams of
// one forwarded connection in it, as kubectl port-forward does.
func (c *Client) dialForward(pod string, port int) (*forwarded, error) {
	conn, err := c.upgrade(pod)
	if err != nil {
		return nil, err
	}
	headers := http.Header{}
	headers.Set(core.PortHeader, strconv.Itoa(port))
	headers.Set(core.PortForwardRequestIDHeader, "0")
	headers.Set(core.StreamType, core.StreamTypeError)
	errs, err := conn.CreateStream(headers)
	if err == nil {
		errs.Close() // for writing
		headers.Set(core.StreamType, core.StreamTypeData)
		var data httpstream.Stream
		if data, err = conn.CreateStream(headers); err == nil {
			f := &forwarded{Stream: data, conn: conn, judged: make(chan struct{})}
			go f.judge(errs) // ends with the connection
			return f, nil
		}
	}
	conn.Close()
	return nil, fmt.Errorf("open a stream to pod %s: %w", pod, err)
}

// upgrade asks the API server for a connection to a pod: by a web socket or, from a cluster before
// 1.31 or through a proxy that knows no web sockets, by SPDY.
func (c *Client) upgrade(pod string) (httpstream.Connection, error) {
	url := c.set.CoreV1().RESTClient().Post().Namespace(c.namespace).Resource("pods").Name(pod).
		SubResource("portforward").URL()
	config := rest.CopyConfig(c.config)
	config.Timeout = 0
	sockets, err := portforward.NewSPDYOverWebsocketDialerForStreaming(url, config)
	if err != nil {
		return nil, err
	}
	conn, _, err := sockets.Dial(portforward.PortForwardProtocolV1Name)
	if err == nil || !httpstream.IsUpgradeFailure(err) && !httpstream.IsHTTPSProxyError(err) {
		return conn, err
	}
	transport, upgrader, failed := spdy.RoundTripperFor(config)
	if failed != nil {
		return nil, failed
	}
	conn, _, failed = spdy.NewDialerForStreaming(upgrader, &http.Client{Transport: transport}, http.MethodPost, url).
		Dial(portforward.PortForwardProtocolV1Name)
	if failed == nil {
		return conn, nil
	}
	return nil, cmp.Or(answered(failed), answered(err), failed)
}

// answered returns what the API server has answered instead of an upgrade; nil if it is not known.
func answered(err error) error {
	if upgrade, ok := errors.AsType[*httpstream.UpgradeFailureError](err); ok {
		err = upgrade.Cause
	}
	if status, ok := errors.AsType[*api.StatusError](err); ok {
		return status
	}
	return nil
}

// mostRefusal is the number of bytes that are read of the reason of a refusal.
const mostRefusal = 4 << 10

// judge reads why the pod could not be connected.
func (f *forwarded) judge(errs httpstream.Stream) {
	defer close(f.judged)
	text, _ := io.ReadAll(io.LimitReader(errs, mostRefusal))
	if len(text) > 0 {
		f.refused = errors.New(role.Brief(strings.TrimSpace(string(text))))
	}
}

// refusal returns why the pod could not be connected; nil if it was.
func (f *forwarded) refusal() error {
	select {
	case <-f.judged:
		return f.refused
	default:
		return nil
	}
}

// Read implements net.Conn.
func (f *forwarded) Read(b []byte) (int, error) {
	n, err := f.Stream.Read(b)
	if err != nil {
		select {
		case <-f.judged:
			err = cmp.Or(f.refused, err)
		case <-time.After(refusalLimit):
		}
	}
	return n, err
}

// Close implements net.Conn.
func (f *forwarded) Close() (err error) {
	f.close.Do(func() {
		// what is not sent yet is not wanted any more
		f.Stream.Reset()
		err = f.conn.Close()
	})
	return err
}

// LocalAddr and RemoteAddr implement net.Conn.
func (f *forwarded) LocalAddr() net.Addr  { return forwardedAddr{} }
func (f *forwarded) RemoteAddr() net.Addr { return forwardedAddr{} }

// SetDeadline, SetReadDeadline and SetWriteDeadline implement net.Conn. A stream has no deadlines;
// the connection is tested by pings.
func (f *forwarded) SetDeadline(time.Time) error      { return os.ErrNoDeadline }
func (f *forwarded) SetReadDeadline(time.Time) error  { return os.ErrNoDeadline }
func (f *forwarded) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }

// forwardedAddr is the address of both ends.
type forwardedAddr struct{}

func (forwardedAddr) Network() string { return "portforward" }
func (forwardedAddr) String() string  { return "the API server" }
